#include "proxy/server_errors.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "proxy/health_checker.h"
#include "proxy/lane.h"

namespace vllm_router {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

}  // namespace

void ServerErrors::Hold(std::shared_ptr<Worker> worker, BreakerPass pass) {
  pass.Hold(lane_.clock.NowNanos());
  held_.push_back({std::move(worker), std::move(pass)});
}

// What a worker could do at a later attempt it is not blamed for: nobody else has been asked.
void ServerErrors::CountAgainstAllBut(const Worker& worker) {
  const int64_t window_ns = lane_.options.breaker.window_ms * kNanosPerMs;
  for (Held& held : held_) {
    if (held.worker.get() == &worker) continue;
    held.worker->responses.CountError(window_ns, lane_.clock.NowNanos());
    CountAgainst(held, "another worker served what it answered with 5xx");
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
  const int64_t window_ns = lane_.options.breaker.window_ms * kNanosPerMs;
  const int64_t now = lane_.clock.NowNanos();
  worker->responses.CountError(window_ns, now);
  const ErrorShare own = worker->responses.Within(window_ns, now);
  if (IsOutlier(own, SharesOfOthers(*lane_.router->fleet(), *worker, window_ns, now))) {
    CountAgainst(held_.back(), "most of its responses are 5xx, and not so the other workers'");
  } else {
    lane_.recorder.ServerError(worker, ErrorBlame::kUnclear);
  }
  held_.clear();
}

// One thread at a time, or two breakers could both be the last that may open. The fleet is published before the next one
// looks at it.
void ServerErrors::CountAgainst(Held& held, std::string_view why) {
  lane_.recorder.ServerError(held.worker, ErrorBlame::kWorker);
  lane_.recorder.Judged(held.worker, BreakerVerdict::kFailure);
  const BreakerOptions& options = lane_.options.breaker;
  std::lock_guard lock(lane_.gates.ejecting);
  const bool may_open = MayEject(*lane_.router->fleet());
  const std::optional<BreakerChange> change =
      held.pass.Settle(options, BreakerVerdict::kFailure, lane_.clock.NowNanos(), may_open);
  if (change) {
    BreakerMoved(lane_, held.worker, *change, why);
  } else if (!may_open && held.worker->breaker.IsHeldClosed(options)) {
    lane_.recorder.ejections_overflow.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace vllm_router
