#include "proxy/health_checker.h"

#include <set>

#include "base/log.h"
#include "proxy/fetch.h"

namespace vllm_router {

HealthChecker::HealthChecker(Lane& lane) : lane_(lane), delay_(lane.loop) {}

void HealthChecker::Start() {
  if (lane_.options.health_check_interval_ms <= 0) return;
  ++open_;
  Spawn(Run());
}

void HealthChecker::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> HealthChecker::Run() {
  while (!stopped_) {
    std::set<std::string> hosts;
    const std::shared_ptr<const FleetView> fleet = lane_.router->fleet();
    for (const FleetView::Member& member : fleet->members()) {
      const WorkerUrl& url = member.worker->url;
      if (!hosts.insert(url.base).second) continue;
      ++open_;
      Spawn(Probe(url));
    }
    std::erase_if(trackers_, [&hosts](const auto& entry) { return !hosts.contains(entry.first); });
    const int64_t interval = lane_.options.health_check_interval_ms * 1'000'000;
    const int64_t jitter = static_cast<int64_t>(lane_.ids.Below(static_cast<uint64_t>(interval / 5 + 1)));
    co_await delay_.For(interval - interval / 10 + jitter);  // +-10 %, so that routers do not ask in step
  }
  --open_;
}

Task<void> HealthChecker::Probe(WorkerUrl url) {
  const StatusOr<Fetched> answer = co_await Fetch(
      lane_, nullptr, url, lane_.options.health_check_endpoint, lane_.options.health_check_timeout_ms);
  --open_;
  if (stopped_) co_return;
  const bool healthy = answer.ok() && answer->status >= 200 && answer->status < 300;
  const auto [entry, added] = trackers_.try_emplace(
      url.base, lane_.options.health_failure_threshold, lane_.options.health_success_threshold);
  if (!entry->second.Observe(healthy)) co_return;
  if (!lane_.router->SetHealthy(url.base, healthy).ok()) co_return;  // removed meanwhile
  if (healthy) {
    Log(LogLevel::kInfo, "worker " + url.base + " is healthy again");
  } else {
    Log(LogLevel::kWarning, "worker " + url.base + " is unhealthy: " +
                                (answer.ok() ? "its health check answered " + std::to_string(answer->status)
                                             : std::string(answer.status().message())));
  }
}

}  // namespace vllm_router
