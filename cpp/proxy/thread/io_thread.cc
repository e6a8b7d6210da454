#include "proxy/thread/io_thread.h"

#include "base/limits.h"

namespace vllm_router {
namespace {

constexpr int64_t kLogFlushMs = 100;

}  // namespace

Lane::Lane(
    const ServerOptions& options, const std::string& hop_name, Gates& gates, std::shared_ptr<Router> router,
    const DoorKeys& keys, TlsFiles& tls, const Logs& logs)
    : options(options),
      hop_name(hop_name),
      gates(gates),
      bearer(options.api_key.empty() ? std::string() : "Bearer " + options.api_key),
      router(std::move(router)),
      tls(tls),
      resolver(loop),
      ids(Dice::EntropySeed()),
      recorder(this->router->policy().name(), logs),
      http(loop, buffers, resolver, tls, bearer, hop_name),
      upstreams(
          loop.timers(), options.upstream_pool_size, options.upstream_pool_idle_ms,
          {.open = &recorder.upstream_open, .idle = &recorder.upstream_idle}),
      tokenizer(http, recorder, *this->router, options, ids),
      fleet(&this->router->fleet_snapshot()),
      gatekeeper(keys),
      cors(options.cors_allowed_origins),
      fan_out_paths(options.fan_out_paths),
      retry_budget(gates.retries) {}

Lane::~Lane() = default;

void Lane::FlushLogSoon() {
  if (!recorder.has_lines()) return;
  if (recorder.collected_bytes() >= flush_at_bytes_) HandOverLines();
  if (log_timer_.armed()) return;
  log_timer_.Arm(loop.timers(), kLogFlushMs, &Lane::OnFlushLog, this);
}

// A log that has no room is asked again when as much has been collected once more.
void Lane::HandOverLines() {
  recorder.Flush();
  flush_at_bytes_ = recorder.collected_bytes() + kLogPieceBytes;
}

void Lane::OnFlushLog(void* lane) {
  auto* self = static_cast<Lane*>(lane);
  self->HandOverLines();
  self->FlushLogSoon();  // where the log had no room
}

}  // namespace vllm_router
