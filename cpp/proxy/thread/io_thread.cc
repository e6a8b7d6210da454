#include "proxy/thread/io_thread.h"

#include "base/limits.h"

namespace vllm_router {
namespace {

constexpr int64_t kLogFlushMs = 100;

}  // namespace

IoThread::IoThread(
    const FixedOptions& options, const Snapshot<Settings>& settings, const std::string& hop_name,
    ServerLimits& limits, std::shared_ptr<Router> router, const KeySets& keys, TlsFiles& tls,
    const Logs& logs)
    : options(options),
      hop_name(hop_name),
      limits(limits),
      bearer(options.api_key.empty() ? std::string() : "Bearer " + options.api_key),
      router(std::move(router)),
      tls(tls),
      resolver(loop),
      ids(Random::EntropySeed()),
      telemetry(this->router->policy().name(), logs),
      http(loop, buffers, resolver, tls, bearer, hop_name),
      upstreams(
          loop.timers(), settings.Load()->upstream_pool_size, settings.Load()->upstream_pool_idle_ms,
          {.open = &telemetry.upstream_open, .idle = &telemetry.upstream_idle}),
      tokenizer(http, telemetry, *this->router, ids),
      fleet(&this->router->fleet_snapshot()),
      server_settings(settings),
      settings(&settings),
      authorizer(keys),
      fan_out_paths(options.fan_out_paths),
      claims(std::make_unique<ClaimKeeper>(*this)),
      retry_budget(limits.retries) {}

IoThread::~IoThread() = default;

void IoThread::FlushLogSoon() {
  if (!telemetry.has_lines()) return;
  if (telemetry.collected_bytes() >= flush_at_bytes_) HandOverLines();
  if (log_timer_.armed()) return;
  log_timer_.Arm(loop.timers(), kLogFlushMs, &IoThread::OnFlushLog, this);
}

// A log without room is retried when as many lines have been collected again.
void IoThread::HandOverLines() {
  telemetry.Flush();
  flush_at_bytes_ = telemetry.collected_bytes() + kLogPieceBytes;
}

void IoThread::OnFlushLog(void* thread) {
  auto* self = static_cast<IoThread*>(thread);
  self->HandOverLines();
  self->FlushLogSoon();  // if the log had no room
}

}  // namespace vllm_router
