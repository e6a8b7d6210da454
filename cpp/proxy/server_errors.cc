#include "proxy/server_errors.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "proxy/health_checker.h"
#include "proxy/lane.h"

namespace vllm_router {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

constexpr std::string_view kOutlier = "most of its responses are 5xx, and not so the other workers'";

int64_t WindowOf(const Lane& lane) { return lane.options.breaker.window_ms * kNanosPerMs; }

}  // namespace

void ServerErrors::Hold(std::shared_ptr<Worker> worker, BreakerPass pass) {
  pass.Hold(lane_.clock.NowNanos());
  held_.push_back({std::move(worker), std::move(pass)});
}

// What a worker could do at a later attempt it is not blamed for: nobody else has been asked.
void ServerErrors::CountAgainstAllBut(const Worker& worker) {
  for (Held& held : held_) {
    if (held.worker.get() == &worker) continue;
    held.worker->responses.CountError(WindowOf(lane_), lane_.clock.NowNanos());
    CountAgainst(held.worker, held.pass, /*at_end=*/false, "another worker served what it answered with 5xx");
  }
  held_.clear();
}

void ServerErrors::SettleAlone() {
  const std::shared_ptr<Worker> worker = held_.front().worker;
  const bool others_agree =
      std::ranges::any_of(held_, [&](const Held& held) { return held.worker != worker; });
  if (others_agree) {
    for (const Held& held : held_) lane_.recorder.ServerError(held.worker, ErrorBlame::kRequest);
    held_.clear();
    return;
  }
  // However often the one worker was asked, it is one request that failed.
  worker->responses.CountError(WindowOf(lane_), lane_.clock.NowNanos());
  if (DoesWorseThanFleet(*worker)) {
    CountAgainst(worker, held_.back().pass, /*at_end=*/false, kOutlier);
  } else {
    lane_.recorder.ServerError(worker, ErrorBlame::kUnclear);
  }
  held_.clear();
}

// Its head was counted as a success. What is no failure of the worker says nothing of whether its streams break off.
void ServerErrors::EndedInError(const std::shared_ptr<Worker>& worker, BreakerPass& pass) {
  worker->responses.TurnIntoError(WindowOf(lane_), lane_.clock.NowNanos());
  if (DoesWorseThanFleet(*worker)) {
    CountAgainst(worker, pass, /*at_end=*/true, kOutlier);
  } else {
    lane_.recorder.ServerError(worker, ErrorBlame::kUnclear);
  }
}

bool ServerErrors::DoesWorseThanFleet(Worker& worker) const {
  const int64_t now = lane_.clock.NowNanos();
  const ErrorShare own = worker.responses.Within(WindowOf(lane_), now);
  return IsOutlier(own, SharesOfOthers(*lane_.router->fleet(), worker, WindowOf(lane_), now));
}

// One thread at a time, or two breakers could both be the last that may open. The fleet is published before the next one
// looks at it.
void ServerErrors::CountAgainst(
    const std::shared_ptr<Worker>& worker, BreakerPass& pass, bool at_end, std::string_view why) {
  lane_.recorder.ServerError(worker, ErrorBlame::kWorker);
  lane_.recorder.Judged(worker, BreakerVerdict::kFailure);
  const BreakerOptions& options = lane_.options.breaker;
  std::lock_guard lock(lane_.gates.ejecting);
  const bool may_open = MayEject(*lane_.router->fleet());
  const int64_t now = lane_.clock.NowNanos();
  const std::optional<BreakerChange> change =
      at_end ? pass.SettleEnd(options, /*broke_off=*/true, now, may_open)
             : pass.Settle(options, BreakerVerdict::kFailure, now, may_open);
  if (change) {
    BreakerMoved(lane_, worker, *change, why);
  } else if (!may_open && worker->breaker.IsHeldClosed(options)) {
    lane_.recorder.ejections_overflow.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace vllm_router
