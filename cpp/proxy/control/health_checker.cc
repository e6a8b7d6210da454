#include "proxy/control/health_checker.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/probe_failure.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/quarantine.h"
#include "routing/router.h"
#include "worker/slow_start.h"

namespace vllm_router {
namespace {
constexpr int64_t kLongestCheckPauseNs = 1'000 * kNanosPerMs;  // maximum time between looks at the fleet
constexpr int64_t kSlowStartSteps = 20;                        // the fleet is published once per step

HealthOptions OptionsOf(const Settings& settings) {
  return {
      .interval_ns = settings.health_check_interval_ms * kNanosPerMs,
      .failure_threshold = settings.health_failure_threshold,
      .success_threshold = settings.health_success_threshold};
}

}  // namespace

HealthChecker::HealthChecker(IoThread& thread, OnDead on_dead)
    : HostPoller(thread),
      on_dead_(std::move(on_dead)),
      checks_(thread.server_settings.Load()->health_check_interval_ms > 0),
      slow_start_delay_(thread.loop) {}

void HealthChecker::Start() {
  if (checks()) Begin();
}

void HealthChecker::Stop() {
  HostPoller::Stop();
  slow_start_delay_.Cancel();
}

void HealthChecker::FollowSettings() {
  const int64_t now = thread_.clock.NowNanos();
  const HealthOptions options = OptionsOf(*thread_.settings.Get());
  for (auto& [base, watch] : watches_) watch.SetOptions(options, now);
  PassNow();
}

void HealthChecker::FollowFleet(const FleetView& fleet) {
  if (std::exchange(membership_version_, fleet.membership_version()) == fleet.membership_version()) return;
  const std::map<std::string, Host> last = std::exchange(hosts_, {});
  for (const FleetView::Member& member : fleet.members()) {
    Host& host = hosts_.try_emplace(member.worker->url.base, Host{member.worker->url}).first->second;
    host.workers.insert(member.worker->id);
  }
  // Of those that left, and of those whose workers are all new: what was found of others says nothing.
  std::erase_if(watches_, [&](const auto& entry) {
    const auto now = hosts_.find(entry.first);
    const auto before = last.find(entry.first);
    return now == hosts_.end() || before == last.end() ||
           std::ranges::none_of(
               now->second.workers, [&](WorkerId worker) { return before->second.workers.contains(worker); });
  });
  std::erase_if(dead_, [this](const std::string& base) { return !hosts_.contains(base); });
  const int64_t now = thread_.clock.NowNanos();
  for (const auto& [base, host] : hosts_) watches_.try_emplace(base, OptionsOf(*thread_.settings.Get()), now);
  for (const FleetView::Member& member : fleet.members()) {  // a rank may join a known host
    if (watches_.at(member.worker->url.base).known()) {
      member.worker->health_known.store(true, std::memory_order_relaxed);
    }
  }
}

int64_t HealthChecker::Pass(const FleetView& fleet) {
  FollowFleet(fleet);
  const int64_t now = thread_.clock.NowNanos();
  int64_t next =
      now + std::min(kLongestCheckPauseNs, thread_.settings.Get()->health_check_interval_ms * kNanosPerMs);
  // Those that wait for longest first: many hosts that accept and never respond must not keep others from
  // their turn.
  std::vector<std::pair<int64_t, const std::string*>> due;
  for (auto& [base, watch] : watches_) {
    if (watch.Due(now)) {
      due.emplace_back(watch.due_ns(), &base);
    } else if (!watch.polling()) {
      next = std::min(next, std::max(watch.due_ns(), now + kNanosPerMs));
    }
  }
  std::ranges::sort(due);
  for (const auto& [due_ns, base] : due) {
    if (polling_ == kMaxHealthChecks) break;  // the end of another check starts a new pass
    watches_.at(*base).Begin();
    ++polling_;
    Spawn(Probe(hosts_.at(*base).url));
  }
  return next - now;
}

Task<void> HealthChecker::Probe(WorkerUrl url) {
  const UnderWay under_way(*this);
  const int64_t begun_ns = thread_.clock.NowNanos();
  const std::shared_ptr<const Settings> settings = thread_.settings.Get();
  const StatusOr<HttpResponse> response = co_await thread_.http.Get(
      nullptr, url, settings->health_check_endpoint, settings->health_check_timeout_ms);
  if (polling_-- == kMaxHealthChecks) PassNow();  // others may have waited for their turn
  if (stopped()) co_return;
  const auto found = watches_.find(url.base);
  if (found == watches_.end()) co_return;  // removed meanwhile
  const bool healthy = IsSuccess(response);
  const double spread = static_cast<double>(thread_.ids.Below(2001)) / 1000 - 1;
  const bool changed = found->second.End(healthy, thread_.clock.NowNanos(), spread);
  if (healthy) {
    any_responded_.store(true, std::memory_order_relaxed);
    dead_.erase(url.base);
    ReportWorkerUp(thread_, url, begun_ns);
  } else {
    ReportWorkerDown(thread_, url);
  }
  if (changed && thread_.router->SetHealthy(url.base, healthy).ok()) {
    for (const auto& on_change : on_change_) on_change();
    if (healthy) {
      Log(LogLevel::kInfo, "worker " + url.base + " is healthy again");
    } else {
      Log(LogLevel::kWarning,
          Concat(
              "worker ", url.base, " is unhealthy: it ",
              ProbeFailure(url, settings->health_check_endpoint, response, thread_.http.KeyUseFor(url))));
    }
  }
  const bool dead =
      !found->second.healthy() && absl::IsUnavailable(response.status()) && dead_.insert(url.base).second;
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  for (const FleetView::Member& member : fleet->members()) {
    if (member.worker->url.base != url.base) continue;
    member.worker->health_known.store(true, std::memory_order_relaxed);
    if (dead) on_dead_(member.worker);
    if (!found->second.suspected()) member.worker->suspected.store(false, std::memory_order_relaxed);
    if (changed && healthy) Recovered(member.worker);
    if (!response.ok()) member.worker->breaker.NotReached();
    if (!healthy) continue;
    const std::optional<BreakerChange> change = member.worker->breaker.Reached();
    if (change) OnBreakerStateChange(thread_, member.worker, *change, "it can be reached again");
  }
}

void HealthChecker::ReportPassiveFailure(const std::shared_ptr<Worker>& worker) {
  if (!checks() || worker->suspected.exchange(true, std::memory_order_relaxed)) return;
  thread_.loop.Post([this, worker] {
    const auto found = watches_.find(worker->url.base);
    if (found == watches_.end() || !found->second.healthy()) {
      worker->suspected.store(false, std::memory_order_relaxed);
      return;
    }
    found->second.ReportPassiveFailure(thread_.clock.NowNanos());
    PassNow();
  });
}

void HealthChecker::Recovered(const std::shared_ptr<Worker>& worker) {
  if (thread_.server_settings.Load()->slow_start_ms <= 0) return;
  worker->slow_start_factor.store(
      kSlowStartFirst, std::memory_order_relaxed);  // now, before the next request
  thread_.router->RefreshFleet();
  thread_.loop.Post([this, worker] {
    if (stopped()) return;
    std::erase_if(slow_starts_, [&worker](const SlowStart& other) { return other.worker == worker; });
    slow_starts_.push_back({worker, thread_.clock.NowNanos()});
    if (std::exchange(slow_starting_, true)) return;
    Spawn(RunSlowStarts());
  });
}

Task<void> HealthChecker::RunSlowStarts() {
  const UnderWay under_way(*this);
  while (!stopped() && !slow_starts_.empty()) {
    const int64_t step = thread_.settings.Get()->slow_start_ms * kNanosPerMs / kSlowStartSteps;
    co_await slow_start_delay_.For(std::max(step, 50 * kNanosPerMs));
    const int64_t window = std::max<int64_t>(1, thread_.settings.Get()->slow_start_ms * kNanosPerMs);
    const int64_t now = thread_.clock.NowNanos();
    std::erase_if(slow_starts_, [now, window](const SlowStart& slow_start) {
      const uint32_t slow_start_factor = SlowStartFactorAt(now - slow_start.since_ns, window);
      slow_start.worker->slow_start_factor.store(slow_start_factor, std::memory_order_relaxed);
      return slow_start_factor == kWeightOne;
    });
    thread_.router->RefreshFleet();
  }
  slow_starting_ = false;
}

}  // namespace vllm_router
