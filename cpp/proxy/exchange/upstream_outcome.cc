#include "proxy/exchange/upstream_outcome.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/head.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {

UpstreamOutcome::UpstreamOutcome(
    IoThread& thread, const Settings& settings, ServerErrors& server_errors, const Ticket& ticket,
    AttemptRecord& record, std::optional<BreakerPass> pass)
    : thread_(thread),
      settings_(settings),
      server_errors_(server_errors),
      ticket_(ticket),
      record_(record),
      pass_(std::move(pass)) {}

void UpstreamOutcome::Responded(const ResponseHead& head) {
  record_.Responded(head.status);
  const std::string_view retry_after = FindHeader(head.fields, "retry-after").value_or("");
  has_retry_after_ = !retry_after.empty();
  retry_after_ms_ = ParseRetryAfter(retry_after).value_or(0);
}

void UpstreamOutcome::Failed(HttpError error) {
  error_ = error;
  const std::string_view code = ErrorOf(this->error()).code;
  record_.Failed(thread_.clock.NowNanos(), moved_ ? std::string_view("moved") : code);
}

AttemptFailure UpstreamOutcome::failure() const {
  // Without a byte of the request it is as if the worker had not been reached.
  if (drained_) return record_.first_sent_ns() == 0 ? AttemptFailure::kConnect : AttemptFailure::kDrained;
  return moved_                                     ? AttemptFailure::kMoved
         : lost_                                    ? AttemptFailure::kLost
         : unreached()                              ? AttemptFailure::kConnect
         : error_ == HttpError::kWorkerBadResponse  ? AttemptFailure::kBadResponse
         : error_ == HttpError::kWorkerWriteTimeout ? AttemptFailure::kSendTimeout
         : error_ == HttpError::kFirstByteTimeout   ? AttemptFailure::kFirstByteTimeout
                                                    : AttemptFailure::kBroken;
}

void UpstreamOutcome::RecordAttempt() {
  if (drained_ || moved_) return;
  if (responded()) {
    if (record_.status() == 429 || record_.status() == 503) BeginBackoff(retry_after_ms_);
    return RecordStatus();
  }
  if (unreached()) worker()->breaker.NotReached();
  RecordFailure(!unreached(), ErrorOf(error_).code);
  if (unreached() || error_ == HttpError::kWorkerClosed) thread_.health.suspect(worker());
}

void UpstreamOutcome::RecordStatus() {
  if (!pass_ || std::exchange(recorded_, true)) return;
  const BreakerResult result = VerdictOf(record_.status(), has_retry_after_);
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
void UpstreamOutcome::RecordFailure(bool reached, std::string_view why) {
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

void UpstreamOutcome::RecordTimeout() { RecordFailure(/*reached=*/true, "the request timed out"); }

void UpstreamOutcome::RecordResponseEnd(ResponseEnd end) {
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
void UpstreamOutcome::BeginBackoff(int64_t retry_after_ms) {
  if (retry_after_ms <= 0 ||
      !worker()->backoff.Begin(thread_.clock.NowNanos(), retry_after_ms * kNanosPerMs)) {
    return;
  }
  thread_.router->RefreshFleet();
  Log(LogLevel::kDebug,
      Concat("worker ", worker()->url.url, " is in back-off for ", retry_after_ms / 1000, " s"));
}

}  // namespace vllm_router
