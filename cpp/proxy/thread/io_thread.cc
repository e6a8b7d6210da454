#include "proxy/thread/io_thread.h"

#include "base/limits.h"
#include "http/head_parser.h"
#include "net/resolver.h"
#include "proxy/api/fan_out_paths.h"
#include "proxy/api/server_options.h"
#include "proxy/client/http_client.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/security/authorizer.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/server_limits.h"
#include "redis/redis_link.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kLogFlushMs = 100;

}  // namespace

struct IoThread::Parts {
  Parts(IoThread& thread, const Settings& settings, const KeySets& keys, const Logs& logs)
      : resolver(thread.loop),
        telemetry(thread.router->policy().name(), logs),
        http(thread.loop, thread.buffers, resolver, thread.tls, thread.bearer, thread.hop_name),
        upstreams(
            thread.loop.timers(), settings.upstream_pool_size, settings.upstream_pool_idle_ms,
            {.open = &telemetry.connections.upstream_open, .idle = &telemetry.connections.upstream_idle}),
        tokenizer(http, telemetry.tokenizing, *thread.router, thread.ids),
        authorizer(keys),
        fan_out_paths(thread.options.fan_out_paths) {}

  Resolver resolver;
  Telemetry telemetry;
  HttpClient http;
  UpstreamPool upstreams;
  RemoteTokenizer tokenizer;
  Authorizer authorizer;
  const FanOutPaths fan_out_paths;
};

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
      ids(Random::EntropySeed()),
      parts_(std::make_unique<Parts>(*this, *settings.Load(), keys, logs)),
      resolver(parts_->resolver),
      telemetry(parts_->telemetry),
      http(parts_->http),
      upstreams(parts_->upstreams),
      tokenizer(parts_->tokenizer),
      authorizer(parts_->authorizer),
      fan_out_paths(parts_->fan_out_paths),
      fleet(&this->router->fleet_snapshot()),
      server_settings(settings),
      settings(&settings),
      retry_budget(limits.retries) {}

IoThread::~IoThread() = default;

void IoThread::FlushLogSoon() {
  if (telemetry.lines.empty()) return;
  if (telemetry.lines.bytes() >= flush_at_bytes_) HandOverLines();
  if (log_timer_.armed()) return;
  log_timer_.Arm(loop.timers(), kLogFlushMs, &IoThread::OnFlushLog, this);
}

// A log without room is retried when as many lines have been collected again.
void IoThread::HandOverLines() {
  telemetry.lines.Flush();
  flush_at_bytes_ = telemetry.lines.bytes() + kLogPieceBytes;
}

void IoThread::OnFlushLog(void* thread) {
  auto* self = static_cast<IoThread*>(thread);
  self->HandOverLines();
  self->FlushLogSoon();  // if the log had no room
}

}  // namespace vllm_router
