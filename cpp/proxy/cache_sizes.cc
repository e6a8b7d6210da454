#include "proxy/cache_sizes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "index/block_cache_tracker.h"
#include "proxy/fetch.h"
#include "proxy/lane.h"
#include "proxy/load_report.h"

namespace vllm_router {

CacheSizes::CacheSizes(Lane& lane) : lane_(lane), delay_(lane.loop) {}

void CacheSizes::Start() {
  if (!lane_.router->policy().block_routing(*lane_.router->fleet())) return;
  ++open_;
  Spawn(Run());
}

void CacheSizes::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> CacheSizes::Run() {
  while (!stopped_) {
    Look();
    co_await delay_.For(kLookNanos);
  }
  --open_;
}

void CacheSizes::Look() {
  std::map<std::string, Workers> healthy;
  const std::shared_ptr<const FleetView> fleet = lane_.router->fleet();
  for (const FleetView::Member& member : fleet->members()) {
    if (member.healthy) healthy[member.worker->url.base].push_back(member.worker);
  }
  // A host that is not healthy is forgotten, and so is due when it is.
  std::erase_if(hosts_, [&healthy](const auto& entry) { return !healthy.contains(entry.first); });
  const int64_t now = lane_.clock.NowNanos();
  for (auto& [base, workers] : healthy) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    std::vector<WorkerId> ids;
    for (const std::shared_ptr<Worker>& worker : workers) ids.push_back(worker->id);
    if (host->asked || (ids == host->workers && now < host->due_ns)) continue;
    host->workers = std::move(ids);
    host->due_ns = now + kAgainNanos;
    host->asked = true;
    ++open_;
    Spawn(Ask(host, std::move(workers)));
  }
}

Task<void> CacheSizes::Ask(std::shared_ptr<Host> host, Workers workers) {
  std::string target = "/metrics";
  const StatusOr<Fetched> answer = co_await Fetch(
      lane_, nullptr, workers.front()->url, std::move(target), lane_.options.health_check_timeout_ms);
  --open_;
  host->asked = false;
  if (stopped_) co_return;
  if (!answer.ok()) host->due_ns = lane_.clock.NowNanos() + kSoonNanos;
  if (!answer.ok() || answer->status != 200) co_return;
  for (const std::shared_ptr<Worker>& worker : workers) {
    const std::optional<uint64_t> tokens = CacheTokensInMetrics(answer->body, worker->url.rank);
    if (tokens) Apply(*worker, *tokens);
  }
}

// Should the worker leave just now and another get its place, that one has the wrong size until it is asked itself.
void CacheSizes::Apply(const Worker& worker, uint64_t tokens) {
  const std::shared_ptr<const FleetView> fleet = lane_.router->fleet();
  const std::optional<uint32_t> position = fleet->Find(worker.url.url);
  const std::optional<BlockRouting> routing = lane_.router->policy().block_routing(*fleet);
  if (!position || !routing || *position >= routing->owners.size()) return;
  const uint64_t blocks = std::max<uint64_t>(1, tokens / lane_.router->options().policy.block_size);
  if (routing->worker_capacity[*position] == blocks) return;
  routing->tracker->SetCapacityOf(routing->owners[*position], blocks);
  Log(LogLevel::kInfo, Concat(
                           "worker ", worker.url.url, ": its cache holds ", tokens,
                           " tokens, so the index keeps ", blocks, " blocks of it"));
}

}  // namespace vllm_router
