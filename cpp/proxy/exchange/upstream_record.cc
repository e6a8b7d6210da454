// What an UpstreamRequest reports of its attempt: to the worker's circuit breaker, its back-off and its health check.
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/upstream_request.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {

// Of the attempt that has just ended. Only the worker's behaviour counts: a client that leaves never
// gets here.
void UpstreamRequest::RecordAttempt() {
  if (drained_ || moved_) return;
  if (responded_) {
    const ResponseHead& head = response();
    const std::string_view retry_after = FindHeader(head.fields, "retry-after").value_or("");
    if (head.status == 429 || head.status == 503) BeginBackoff(ParseRetryAfter(retry_after).value_or(0));
    RecordResult(VerdictOf(head.status, !retry_after.empty()));
    return;
  }
  if (unreached()) worker()->breaker.NotReached();
  RecordFailure(!unreached(), ErrorOf(error_).code);
  if (unreached() || error_ == HttpError::kWorkerClosed) thread_.health.suspect(worker());
}

// `result` is of the response's status.
void UpstreamRequest::RecordResult(BreakerResult result) {
  if (!pass_ || std::exchange(recorded_, true)) return;
  if (result == BreakerResult::kServerError) {
    server_errors_.Hold(worker(), *std::move(pass_));
    pass_.reset();
    return;
  }
  thread_.telemetry.RecordResult(worker(), result);
  const BreakerOptions& options = settings_.breaker;
  const int64_t now = thread_.clock.NowNanos();
  succeeded_ = result == BreakerResult::kSuccess;
  if (succeeded_) {
    worker()->responses.CountSuccess(options.window_ms * kNanosPerMs, now);
    server_errors_.ServedBy(*worker());
  }
  const std::optional<BreakerChange> change = pass_->Settle(options, result, now);
  if (!change) return;
  const bool panicked = change->from == BreakerState::kOpen;
  OnBreakerStateChange(
      thread_, worker(), *change, panicked ? "it served a request in panic mode" : std::string_view());
}

// The request may have caused a failure after it was sent, but not that the worker is unreachable.
void UpstreamRequest::RecordFailure(bool reached, std::string_view why) {
  if (!pass_ || std::exchange(recorded_, true)) return;
  thread_.telemetry.RecordResult(worker(), BreakerResult::kFailure);
  if (reached) {
    RecordWorkerFailure(thread_, worker(), *pass_, FailedAt::kHead, why);
    return;
  }
  const std::optional<BreakerChange> change =
      pass_->Settle(settings_.breaker, BreakerResult::kFailure, thread_.clock.NowNanos());
  if (change) OnBreakerStateChange(thread_, worker(), *change, why);
}

void UpstreamRequest::RecordTimeout() { RecordFailure(/*reached=*/true, "the request timed out"); }

void UpstreamRequest::RecordResponseEnd(ResponseEnd end) {
  if (drained_ || !pass_ || !succeeded_) return;
  if (end == ResponseEnd::kServerError) {
    server_errors_.EndedInError(worker(), *pass_);
  } else if (end == ResponseEnd::kAborted) {
    if (thread_.limits.aborted.Count(worker()->id, settings_.breaker, thread_.clock.NowNanos())) {
      Log(LogLevel::kWarning,
          Concat("worker ", worker()->url.url, " aborts responses, as an engine that ends does"));
      server_errors_.EndedInError(worker(), *pass_);
    }
  } else if (end == ResponseEnd::kBrokeOff) {
    thread_.telemetry.RecordResult(worker(), BreakerResult::kFailure);
    RecordWorkerFailure(
        thread_, worker(), *pass_, FailedAt::kEnd, "its responses end before they are complete");
  } else {
    pass_->SettleEnd(settings_.breaker, /*broke_off=*/false, thread_.clock.NowNanos());
  }
  if (end != ResponseEnd::kWhole) thread_.health.suspect(worker());
}

// Other workers are preferred for a while.
void UpstreamRequest::BeginBackoff(int64_t retry_after_ms) {
  if (retry_after_ms <= 0 ||
      !worker()->backoff.Begin(thread_.clock.NowNanos(), retry_after_ms * kNanosPerMs)) {
    return;
  }
  thread_.router->RefreshFleet();
  Log(LogLevel::kDebug,
      Concat("worker ", worker()->url.url, " is in back-off for ", retry_after_ms / 1000, " s"));
}

}  // namespace vllm_router
