#include "proxy/exchange/server_errors.h"

#include <algorithm>
#include <utility>

#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr std::string_view kOutlier = "most of its responses are 5xx, unlike those of the other workers";

}  // namespace

void ServerErrors::Hold(std::shared_ptr<Worker> worker, BreakerPass pass) {
  pass.Hold(thread_.clock.NowNanos());
  held_.push_back({std::move(worker), std::move(pass)});
}

// A worker that served the request at a later attempt is not blamed: no other worker was attempted.
void ServerErrors::CountAgainstAllBut(const Worker& worker) {
  for (Held& held : held_) {
    if (held.worker.get() == &worker) continue;
    held.worker->responses.CountError(window_ns_, thread_.clock.NowNanos());
    CountAgainst(
        held.worker, held.pass, FailedAt::kHead,
        "another worker served a request to which it responded with 5xx");
  }
  held_.clear();
}

void ServerErrors::SettleAlone() {
  const std::shared_ptr<Worker> worker = held_.front().worker;
  const bool others_agree =
      std::ranges::any_of(held_, [&](const Held& held) { return held.worker != worker; });
  if (others_agree) return RequestIsBad();
  // However often the one worker was attempted, one request failed.
  worker->responses.CountError(window_ns_, thread_.clock.NowNanos());
  if (DoesWorseThanFleet(*worker)) {
    CountAgainst(worker, held_.back().pass, FailedAt::kHead, kOutlier);
  } else {
    thread_.telemetry.ServerError(worker, ErrorBlame::kUnclear);
  }
  held_.clear();
}

void ServerErrors::RequestIsBad() {
  for (const Held& held : held_) thread_.telemetry.ServerError(held.worker, ErrorBlame::kRequest);
  held_.clear();
}

// Its head was counted as a success. An end that is no failure of the worker does not show whether its
// streams break off.
void ServerErrors::EndedInError(const std::shared_ptr<Worker>& worker, BreakerPass& pass) {
  worker->responses.TurnIntoError(window_ns_, thread_.clock.NowNanos());
  if (DoesWorseThanFleet(*worker)) {
    CountAgainst(worker, pass, FailedAt::kEnd, kOutlier);
  } else {
    thread_.telemetry.ServerError(worker, ErrorBlame::kUnclear);
  }
}

bool ServerErrors::DoesWorseThanFleet(Worker& worker) const {
  const int64_t now = thread_.clock.NowNanos();
  const ErrorShare own = worker.responses.Within(window_ns_, now);
  return IsOutlier(own, SharesOfOthers(*thread_.router->fleet(), worker, window_ns_, now));
}

void ServerErrors::CountAgainst(
    const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at, std::string_view why) {
  thread_.telemetry.ServerError(worker, ErrorBlame::kWorker);
  thread_.telemetry.RecordResult(worker, BreakerResult::kFailure);
  RecordWorkerFailure(thread_, worker, pass, at, why);
}

}  // namespace vllm_router
