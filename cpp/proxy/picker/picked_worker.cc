#include "proxy/picker/picked_worker.h"

#include <utility>

#include "base/time_units.h"
#include "net/event_loop.h"
#include "proxy/api/settings.h"
#include "proxy/picker/worker_search.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "routing/retry_plan.h"
#include "routing/router.h"

namespace vllm_router {

PickedWorker::PickedWorker(IoThread& thread, const Settings& settings, RequestInfo& info)
    : thread_(thread), settings_(settings), info_(info), server_errors_(thread, settings.breaker) {}

void PickedWorker::Choose(WorkerChoice::Selected selected, std::string endpoint) {
  ticket_ = std::move(selected.ticket);
  pass_ = std::move(selected.pass);
  endpoint_ = std::move(endpoint);
  info_.worker = ticket_.shared_worker();
  info_.decision = ticket_.decision();
  info_.policy = ticket_.policy().name();
  info_.prefill_tokens = ticket_.prefill_tokens();
  info_.attempts = 1;
  thread_.telemetry.Decided(info_.worker, *info_.decision);
  const int64_t timeout_ms =
      settings_.first_byte_timeout_ms != 0 ? settings_.first_byte_timeout_ms : settings_.request_timeout_ms;
  if (pass_) timer_.Arm(thread_.loop.timers(), timeout_ms, &PickedWorker::OnTimeout, this);
}

// A data plane need not report responses, so nothing is known of the worker; another request may probe it.
void PickedWorker::OnTimeout(void* worker) { static_cast<PickedWorker*>(worker)->pass_.reset(); }

bool PickedWorker::Respond(const Response& response, WorkerSearch& search) {
  if (!has_load()) return false;
  timer_.Disarm();
  const bool is_elsewhere = !response.served.empty() && response.served != endpoint_;
  if (is_elsewhere) pass_.reset();
  const bool is_known = !is_elsewhere || Follow(response.served, search);
  const int status = response.status;
  if (is_known && (status == 429 || status == 503))
    BeginBackoff(ParseRetryAfter(response.retry_after).value_or(0));
  Settle(status, !response.retry_after.empty());
  return is_elsewhere;
}

// What the worker's circuit breaker learns. The data plane may have attempted others, so a 5xx counts as the last word.
void PickedWorker::Settle(int status, bool has_retry_after) {
  if (!pass_) return;
  const std::shared_ptr<Worker>& worker = info_.worker;
  const BreakerResult result = VerdictOf(status, has_retry_after);
  if (result == BreakerResult::kServerError) {
    server_errors_.Hold(worker, *std::move(pass_));
    pass_.reset();
    server_errors_.Ended();
    return;
  }
  thread_.telemetry.RecordResult(worker, result);
  const BreakerOptions& options = settings_.breaker;
  const int64_t now = thread_.clock.NowNanos();
  if (result == BreakerResult::kSuccess) worker->responses.CountSuccess(options.window_ms * kNanosPerMs, now);
  if (const std::optional<BreakerChange> change = pass_->Settle(options, result, now))
    OnBreakerStateChange(thread_, worker, *change, {});
}

// Other workers are preferred for a while.
void PickedWorker::BeginBackoff(int64_t retry_after_ms) {
  const int64_t now = thread_.clock.NowNanos();
  if (retry_after_ms <= 0 || !info_.worker->backoff.Begin(now, retry_after_ms * kNanosPerMs)) return;
  thread_.router->RefreshFleet();
}

// False: a worker that is not of this fleet has no load here, so the chosen one keeps it.
bool PickedWorker::Follow(std::string_view served, WorkerSearch& search) {
  std::optional<Ticket> other = search.TicketAt(served);
  if (!other || !ticket_.MoveTo(*std::move(other))) return false;
  info_.worker = ticket_.shared_worker();
  info_.decision = ticket_.decision();
  return true;
}

void PickedWorker::TakeBody(std::string_view data) {
  if (!has_load() || data.empty()) return;
  if (tail_ == nullptr) {
    tail_ = std::make_unique<StreamTail>();
    info_.first_body_ns = thread_.clock.NowNanos();
    if (info_.stream) ticket_.FirstToken();
  }
  tail_->Add(data);
  info_.bytes_out += data.size();
}

void PickedWorker::Finish(Outcome::End end) {
  timer_.Disarm();
  pass_.reset();
  if (!has_load()) return;
  Outcome outcome{.end = end, .status = info_.status};
  if (tail_ != nullptr) {
    const StreamSummary summary = tail_->Summarize();
    tail_.reset();
    outcome.prompt_tokens = info_.prompt_tokens = summary.prompt_tokens;
    outcome.cached_tokens = info_.cached_tokens = summary.cached_tokens;
    outcome.output_tokens = info_.completion_tokens = summary.completion_tokens;
    outcome.first_token_ms =
        static_cast<double>(info_.first_body_ns - info_.head_ns) / static_cast<double>(kNanosPerMs);
  }
  ticket_.Finish(outcome);
}

}  // namespace vllm_router
