#include "proxy/control/health_checker.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "proxy/client/http_client.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/quarantine.h"
#include "worker/warmth.h"

namespace vllm_router {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kLongestSleepNs = 1'000 * kMs;  // after which the fleet is looked at again
constexpr int64_t kWarmingSteps = 20;             // so the fleet is published as often

HealthOptions OptionsOf(const ServerOptions& options) {
  return {
      .interval_ns = options.health_check_interval_ms * kMs,
      .failure_threshold = options.health_failure_threshold,
      .success_threshold = options.health_success_threshold};
}

}  // namespace

HealthChecker::HealthChecker(Lane& lane) : lane_(lane), delay_(lane.loop), warming_delay_(lane.loop) {}

void HealthChecker::Start() {
  if (!checks()) return;
  ++open_;
  Spawn(Run());
}

void HealthChecker::Stop() {
  stopped_ = true;
  delay_.Cancel();
  warming_delay_.Cancel();
}

void HealthChecker::FollowFleet(const FleetView& fleet) {
  if (std::exchange(membership_, fleet.membership()) == fleet.membership()) return;
  hosts_.clear();
  for (const FleetView::Member& member : fleet.members()) {
    hosts_.try_emplace(member.worker->url.base, member.worker->url);
  }
  std::erase_if(watches_, [this](const auto& entry) { return !hosts_.contains(entry.first); });
  std::erase_if(dead_, [this](const std::string& base) { return !hosts_.contains(base); });
  const int64_t now = lane_.clock.NowNanos();
  for (const auto& [base, url] : hosts_) watches_.try_emplace(base, OptionsOf(lane_.options), now);
  for (const FleetView::Member& member : fleet.members()) {  // a rank may join a host that is known
    if (watches_.at(member.worker->url.base).known()) {
      member.worker->health_known.store(true, std::memory_order_relaxed);
    }
  }
}

Task<void> HealthChecker::Run() {
  while (!stopped_) {
    const std::shared_ptr<const FleetView> fleet = lane_.router->fleet();
    FollowFleet(*fleet);
    const int64_t now = lane_.clock.NowNanos();
    int64_t next = now + std::min(kLongestSleepNs, lane_.options.health_check_interval_ms * kMs);
    for (auto& [base, watch] : watches_) {
      if (watch.Due(now)) {
        if (asking_ == kMaxHealthChecks) continue;  // the end of another one brings us back
        watch.Begin();
        ++open_;
        ++asking_;
        Spawn(Probe(hosts_.at(base)));
      } else if (!watch.asking()) {
        next = std::min(next, std::max(watch.due_ns(), now + kMs));
      }
    }
    co_await delay_.For(next - now);
  }
  --open_;
}

Task<void> HealthChecker::Probe(WorkerUrl url) {
  const int64_t begun_ns = lane_.clock.NowNanos();
  const StatusOr<HttpResponse> answer = co_await lane_.http.Get(
      nullptr, url, lane_.options.health_check_endpoint, lane_.options.health_check_timeout_ms);
  --open_;
  if (asking_-- == kMaxHealthChecks) delay_.Cancel();  // others may have waited for their turn
  if (stopped_) co_return;
  const auto found = watches_.find(url.base);
  if (found == watches_.end()) co_return;  // removed meanwhile
  const bool healthy = answer.ok() && answer->status >= 200 && answer->status < 300;
  const double spread = static_cast<double>(lane_.ids.Below(2001)) / 1000 - 1;
  const bool changed = found->second.End(healthy, lane_.clock.NowNanos(), spread);
  if (healthy) {
    anybody_answered_.store(true, std::memory_order_relaxed);
    dead_.erase(url.base);
    ReportWorkerUp(lane_, url, begun_ns);
  } else {
    ReportWorkerDown(lane_, url);
  }
  if (changed && lane_.router->SetHealthy(url.base, healthy).ok()) {
    if (healthy) {
      Log(LogLevel::kInfo, "worker " + url.base + " is healthy again");
    } else {
      Log(LogLevel::kWarning, "worker " + url.base + " is unhealthy: " +
                                  (answer.ok() ? "its health check answered " + std::to_string(answer->status)
                                               : std::string(answer.status().message())));
    }
  }
  const bool dead =
      !found->second.healthy() && absl::IsUnavailable(answer.status()) && dead_.insert(url.base).second;
  const std::shared_ptr<const FleetView> fleet = lane_.router->fleet();
  for (const FleetView::Member& member : fleet->members()) {
    if (member.worker->url.base != url.base) continue;
    member.worker->health_known.store(true, std::memory_order_relaxed);
    if (dead) on_dead_(member.worker);
    if (!found->second.suspected()) member.worker->suspected.store(false, std::memory_order_relaxed);
    if (changed && healthy) Recovered(member.worker);
    if (!answer.ok()) member.worker->breaker.NotReached();
    if (!healthy) continue;
    const std::optional<BreakerChange> change = member.worker->breaker.Reached();
    if (change) BreakerMoved(lane_, member.worker, *change, "it is within reach again");
  }
}

void HealthChecker::Suspect(const std::shared_ptr<Worker>& worker) {
  if (!checks() || worker->suspected.exchange(true, std::memory_order_relaxed)) return;
  lane_.loop.Post([this, worker] {
    const auto found = watches_.find(worker->url.base);
    if (found == watches_.end() || !found->second.healthy()) {
      worker->suspected.store(false, std::memory_order_relaxed);
      return;
    }
    found->second.Suspect(lane_.clock.NowNanos());
    delay_.Cancel();
  });
}

void HealthChecker::Recovered(const std::shared_ptr<Worker>& worker) {
  if (lane_.options.slow_start_ms <= 0) return;
  worker->warmth.store(kFirstWarmth, std::memory_order_relaxed);  // now, before the next request
  lane_.router->RefreshFleet();
  lane_.loop.Post([this, worker] {
    if (stopped_) return;
    std::erase_if(warming_, [&worker](const Warming& other) { return other.worker == worker; });
    warming_.push_back({worker, lane_.clock.NowNanos()});
    if (std::exchange(warming_up_, true)) return;
    ++open_;
    Spawn(WarmUp());
  });
}

Task<void> HealthChecker::WarmUp() {
  const int64_t window = lane_.options.slow_start_ms * kMs;
  while (!stopped_ && !warming_.empty()) {
    co_await warming_delay_.For(std::max(window / kWarmingSteps, 50 * kMs));
    const int64_t now = lane_.clock.NowNanos();
    std::erase_if(warming_, [now, window](const Warming& warming) {
      const uint32_t warmth = WarmthAt(now - warming.since_ns, window);
      warming.worker->warmth.store(warmth, std::memory_order_relaxed);
      return warmth == kWeightOne;
    });
    lane_.router->RefreshFleet();
  }
  warming_up_ = false;
  --open_;
}

}  // namespace vllm_router
