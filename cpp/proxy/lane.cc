#include "proxy/lane.h"

#include "proxy/fetch.h"

namespace vllm_router {
namespace {

constexpr int64_t kLogFlushMs = 100;

}  // namespace

Lane::Lane(const ServerOptions& options, std::shared_ptr<Router> router, Admin& admin)
    : options(options),
      bearer(options.api_key.empty() ? std::string() : "Bearer " + options.api_key),
      router(std::move(router)),
      admin(admin),
      resolver(loop),
      recorder(options.access_log, this->router->policy().name()),
      upstreams(
          loop.timers(), options.upstream_pool_size, options.upstream_pool_idle_ms,
          {.open = &recorder.upstream_open, .idle = &recorder.upstream_idle}),
      fleet(&this->router->fleet_snapshot()),
      ids(Dice::EntropySeed()) {}

Lane::~Lane() = default;

void Lane::FlushLogSoon() {
  if (!recorder.has_lines() || log_timer_.armed()) return;
  log_timer_.Arm(
      loop.timers(), kLogFlushMs, [](void* recorder) { static_cast<Recorder*>(recorder)->Flush(); },
      &recorder);
}

void Lane::CancelFetches() {
  for (FetchDeadline* fetch : fetches) FetchDeadline::Pass(fetch);
}

}  // namespace vllm_router
