#include "proxy/thread/breaker_transitions.h"

#include <mutex>
#include <optional>
#include <string>

#include "base/log.h"

namespace vllm_router {

void BreakerMoved(
    Lane& lane, const std::shared_ptr<Worker>& worker, BreakerChange change, std::string_view why) {
  lane.recorder.BreakerMoved(worker, change);
  lane.router->RefreshFleet();
  std::string sentence = "worker " + worker->url.url + ": circuit breaker " +
                         std::string(BreakerStateName(change.from)) + " -> " +
                         std::string(BreakerStateName(change.to));
  if (!why.empty()) sentence.append(": ").append(why);
  Log(change.to == BreakerState::kOpen ? LogLevel::kWarning : LogLevel::kInfo, sentence);
  if (change.to == BreakerState::kClosed) lane.health.recovered(worker);
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

}  // namespace vllm_router
