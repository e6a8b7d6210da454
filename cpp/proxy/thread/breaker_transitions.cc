#include "proxy/thread/breaker_transitions.h"

#include <optional>
#include <string>

#include "base/log.h"
#include "base/mutex.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"
#include "worker/outlier_detector.h"
#include "worker/worker.h"

namespace vllm_router {

void OnBreakerStateChange(
    IoThread& thread, const std::shared_ptr<Worker>& worker, BreakerChange change, std::string_view why) {
  thread.telemetry.OnBreakerStateChange(worker, change);
  thread.router->RefreshFleet();
  std::string sentence = "worker " + worker->url.url + ": circuit breaker " +
                         std::string(BreakerStateName(change.from)) + " -> " +
                         std::string(BreakerStateName(change.to));
  if (!why.empty()) sentence.append(": ").append(why);
  Log(change.to == BreakerState::kOpen ? LogLevel::kWarning : LogLevel::kInfo, sentence);
  if (change.to == BreakerState::kClosed) thread.health.recovered(worker);
}

// One thread at a time, or two breakers could both be the last that may open. The fleet is published
// before the next thread looks at it.
void RecordWorkerFailure(
    IoThread& thread, const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at,
    std::string_view why) {
  const BreakerOptions& options = thread.settings.Get()->breaker;
  MutexLock lock(thread.limits.ejecting);
  const bool may_open = MayEject(*thread.router->fleet());
  const int64_t now = thread.clock.NowNanos();
  const std::optional<BreakerChange> change =
      at == FailedAt::kEnd ? pass.SettleEnd(options, /*broke_off=*/true, now, may_open)
                           : pass.Settle(options, BreakerResult::kFailure, now, may_open);
  if (change) {
    OnBreakerStateChange(thread, worker, *change, why);
  } else if (!may_open && worker->breaker.IsHeldClosed(options)) {
    thread.telemetry.ejections_overflow.fetch_add(1, std::memory_order_relaxed);
  }
}

void AdmitHalfOpen(IoThread& thread, const FleetView& fleet) {
  const int64_t now = thread.clock.NowNanos();
  const std::shared_ptr<const Settings> settings = thread.settings.Get();
  bool rested = false;
  for (const FleetView::Member& member : fleet.members()) {
    const std::optional<BreakerChange> change = member.worker->breaker.ComeDue(settings->breaker, now);
    if (change) OnBreakerStateChange(thread, member.worker, *change, "its open time is over, probing");
    rested |= member.worker->backoff.End(now);
  }
  if (rested) thread.router->RefreshFleet();
}

void BeginPanic(IoThread& thread, const FleetView& fleet) {
  thread.telemetry.panic_requests.fetch_add(1, std::memory_order_relaxed);
  if (thread.limits.panicking.exchange(true, std::memory_order_relaxed)) return;
  Log(LogLevel::kWarning,
      "panic mode: no circuit breaker of the " + std::to_string(fleet.in_rotation()) +
          " healthy workers admits requests; they go to the worker whose breaker opened first");
}

void EndPanic(IoThread& thread, const Worker& found) {
  if (!thread.limits.panicking.exchange(false, std::memory_order_relaxed)) return;
  Log(LogLevel::kInfo, "panic mode is over: the circuit breaker of worker " + found.url.url + " is closed");
}

}  // namespace vllm_router
