#include "proxy/health_checker.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "proxy/fetch.h"
#include "proxy/quarantine.h"
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

void BreakerMoved(
    Lane& lane, const std::shared_ptr<Worker>& worker, BreakerChange change, std::string_view why) {
  lane.recorder.BreakerMoved(worker, change);
  lane.router->RefreshFleet();
  std::string sentence = "worker " + worker->url.url + ": circuit breaker " +
                         std::string(BreakerStateName(change.from)) + " -> " +
                         std::string(BreakerStateName(change.to));
  if (!why.empty()) sentence.append(": ").append(why);
  Log(change.to == BreakerState::kOpen ? LogLevel::kWarning : LogLevel::kInfo, sentence);
  if (change.to == BreakerState::kClosed && lane.health != nullptr) lane.health->Recovered(worker);
}

// One thread at a time, or two breakers could both be the last that may open. The fleet is published before the next one
// looks at it.
void SettleFailure(
    Lane& lane, const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at, std::string_view why) {
  const BreakerOptions& options = lane.options.breaker;
  std::lock_guard lock(lane.gates.ejecting);
  const bool may_open = MayEject(*lane.router->fleet());
  const int64_t now = lane.clock.NowNanos();
  const std::optional<BreakerChange> change =
      at == FailedAt::kEnd ? pass.SettleEnd(options, /*broke_off=*/true, now, may_open)
                           : pass.Settle(options, BreakerVerdict::kFailure, now, may_open);
  if (change) {
    BreakerMoved(lane, worker, *change, why);
  } else if (!may_open && worker->breaker.IsHeldClosed(options)) {
    lane.recorder.ejections_overflow.fetch_add(1, std::memory_order_relaxed);
  }
}

void WorkersComeDue(Lane& lane, const FleetView& fleet) {
  const int64_t now = lane.clock.NowNanos();
  bool rested = false;
  for (const FleetView::Member& member : fleet.members()) {
    const std::optional<BreakerChange> change = member.worker->breaker.ComeDue(lane.options.breaker, now);
    if (change) BreakerMoved(lane, member.worker, *change, "it is time for a probe");
    rested |= member.worker->cool_down.End(now);
  }
  if (rested) lane.router->RefreshFleet();
}

void BeginPanic(Lane& lane, const FleetView& fleet) {
  lane.recorder.panic_requests.fetch_add(1, std::memory_order_relaxed);
  if (lane.gates.panicking.exchange(true, std::memory_order_relaxed)) return;
  Log(LogLevel::kWarning,
      "panic mode: no circuit breaker of the " + std::to_string(fleet.in_rotation()) +
          " healthy workers admits requests; they go to the worker whose breaker opened first");
}

void EndPanic(Lane& lane, const Worker& found) {
  if (!lane.gates.panicking.exchange(false, std::memory_order_relaxed)) return;
  Log(LogLevel::kInfo, "panic mode is over: the circuit breaker of worker " + found.url.url + " is closed");
}

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
  const StatusOr<Fetched> answer = co_await Fetch(
      lane_, nullptr, url, lane_.options.health_check_endpoint, lane_.options.health_check_timeout_ms);
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
