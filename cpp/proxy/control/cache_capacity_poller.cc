#include "proxy/control/cache_capacity_poller.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "policy/policy_options.h"
#include "proxy/api/server_options.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/probe_failure.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {

// What began goes on when the settings need it no more: a request in five minutes.
void CacheCapacityPoller::FollowSettings() {
  const bool is_needed = thread_.router->pool().models_caches() || thread_.settings.Get()->has_programs();
  if (is_needed && !std::exchange(begun_, true)) Begin();
}

int64_t CacheCapacityPoller::Pass(const FleetView& fleet) {
  Hosts healthy = HostsOf(fleet, Which::kHealthy);
  // An unhealthy host is forgotten, so it is due once it is healthy again.
  std::erase_if(hosts_, [&healthy](const auto& entry) { return !healthy.contains(entry.first); });
  const int64_t now = thread_.clock.NowNanos();
  for (auto& [base, workers] : healthy) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    std::vector<WorkerId> ids;
    for (const std::shared_ptr<Worker>& worker : workers) ids.push_back(worker->id);
    for (Size& size : host->sizes) {
      const auto found = std::ranges::find(ids, size.worker);
      if (found != ids.end()) Apply(*workers[static_cast<size_t>(found - ids.begin())], &size);
    }
    if (host->polling || (ids == host->workers && now < host->due_ns)) continue;
    host->workers = std::move(ids);
    host->due_ns = now + kAgainNanos;
    host->polling = true;
    Spawn(Poll(host, std::move(workers)));
  }
  return kLookNanos;
}

Task<void> CacheCapacityPoller::Poll(std::shared_ptr<Host> host, Workers workers) {
  const UnderWay under_way(*this);
  std::string target = "/metrics";
  const StatusOr<HttpResponse> response = co_await thread_.http.Get(
      nullptr, workers.front()->url, std::move(target), thread_.settings.Get()->health_check_timeout_ms);
  host->polling = false;
  if (stopped()) co_return;
  if (!response.ok()) host->due_ns = thread_.clock.NowNanos() + kSoonNanos;
  const bool has_other_sources = thread_.options.kv_events_engine == KvEventsEngine::kTrtllm;
  if (response.ok() && !has_other_sources) WarnOfGuesses(*host, workers.front()->url.base, *response);
  if (!response.ok() || response->status != 200) co_return;
  std::vector<Size> sizes;
  for (const std::shared_ptr<Worker>& worker : workers) {
    const std::optional<ReportedCache> told = CacheInMetrics(response->body, worker->url.rank);
    if (!told) continue;
    worker->cache_tokens.store(told->tokens, std::memory_order_relaxed);
    const auto known = std::ranges::find(host->sizes, worker->id, &Size::worker);
    const bool same = known != host->sizes.end() && known->told == *told;
    sizes.push_back({.worker = worker->id, .told = *told, .size = same ? known->size : CacheSize{}});
    Apply(*worker, &sizes.back());
  }
  host->sizes = std::move(sizes);
}

// An engine that is neither vLLM nor SGLang works, but nothing of its cache is known.
void CacheCapacityPoller::WarnOfGuesses(
    Host& host, const std::string& base, const HttpResponse& response) const {
  const bool is_told = response.status == 200 && CacheInMetrics(response.body, std::nullopt);
  const bool may_come = response.status != 200 && response.status != 404 && response.status != 405 &&
                        response.status != 501 && !IsRefusal(response);
  if (is_told || may_come || std::exchange(host.warned, true)) return;
  if (!thread_.router->pool().models_caches()) {
    Log(LogLevel::kWarning,
        Concat(
            "worker ", base,
            " does not tell of its KV cache in GET /metrics, so it has room for every program; "
            "its capacity can be set (docs/how-to/share_a_fleet.md#programs)"));
    return;
  }
  const PolicyOptions& options = thread_.router->options().policy;
  const bool tells_load = response.status == 200 && LoadInMetrics(response.body, std::nullopt);
  const std::string found = response.status == 200
                                ? std::string("neither vLLM's nor SGLang's metrics of a cache")
                                : Concat("status ", response.status);
  Log(LogLevel::kWarning,
      Concat(
          "worker ", base, " does not tell of its KV cache (GET /metrics: ", found,
          "), so guesses hold: blocks of ", options.block_size, " tokens (--block-size), at most ",
          options.max_blocks_per_worker, " of them (--max-blocks-per-worker)",
          tells_load ? "" : "; its load may be what this router sends it only",
          ". SGLang needs --enable-metrics, llama.cpp --metrics; for other engines set the two flags"));
}

void CacheCapacityPoller::Apply(const Worker& worker, Size* size) {
  if (!thread_.router->pool().models_caches()) return;
  const double bytes_per_token = worker.bytes_per_token.value();
  const auto bytes = static_cast<uint64_t>(static_cast<double>(size->told.tokens) * bytes_per_token);
  const uint64_t before = size->size.bytes;
  if (std::max(bytes, before) - std::min(bytes, before) <= before / 16) return;
  const bool first = before == 0;
  size->size = {.bytes = bytes, .block_tokens = size->told.block_tokens, .gpu_blocks = size->told.gpu_blocks};
  thread_.router->pool().SetCacheSize(worker.id, size->size);
  Log(first ? LogLevel::kInfo : LogLevel::kDebug,
      Concat(
          "worker ", worker.url.url, ": its cache holds ", size->told.tokens, " tokens, so up to ", bytes,
          " bytes of prompts are remembered for it",
          size->told.block_tokens == 0 ? ""
                                       : Concat("; its blocks have ", size->told.block_tokens, " tokens")));
}

}  // namespace vllm_router
