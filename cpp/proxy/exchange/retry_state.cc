#include "proxy/exchange/retry_state.h"

#include <utility>

#include "proxy/api/settings.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

RetryState::RetryState(IoThread& thread, const Settings& settings, RequestInfo& info)
    : thread_(thread), settings_(settings), info_(info), losses_(thread, settings) {}

void RetryState::Begin(const Request& request) {
  request_ = request;
  if (plan_) return;
  thread_.retry_budget.CountRequest(info_.body_ns);
  plan_.emplace(settings_.retry, !request.client_restricted);
}

void RetryState::Failed(const FailedAttempt& failure, const UpstreamRequest& attempt) {
  const int64_t before = failure_.first_sent_ns;
  failure_ = failure;
  failure_.first_sent_ns = before != 0 ? before : attempt.record().first_sent_ns();
  blamed_ = attempt.outcome().drained() || attempt.outcome().moved() ? nullptr : attempt.worker();
  if (WasLost())
    losses_.Report(*request_.message, *attempt.worker(), attempt.record().first_sent_ns(), request_.id);
}

void RetryState::Failed(AttemptFailure how, int status, std::shared_ptr<Worker> worker) {
  failure_.how = how;
  failure_.status = status;
  blamed_ = std::move(worker);
}

std::optional<int64_t> RetryState::Next(bool untried_left) {
  failure_.untried_left = untried_left;
  failure_.repeatable = failure_.how == AttemptFailure::kConnect || IsRepeatable();
  const int64_t now = thread_.clock.NowNanos();
  const std::optional<int64_t> pause = plan_->Next(failure_, now, thread_.ids);
  info_.retries_exhausted = plan_->exhausted();
  if (!pause || losses_.IsSuspected()) return std::nullopt;  // it may have caused two workers to fail already
  // A request that reached no worker causes no load when it is sent again, so the budget does not apply. One that was
  // moved has been paid for.
  const bool makes_load = failure_.how != AttemptFailure::kConnect && failure_.how != AttemptFailure::kMoved;
  if (makes_load && !thread_.retry_budget.Take(now)) return std::nullopt;
  ++info_.retries;
  moved_ = moved_ || failure_.how == AttemptFailure::kMoved;
  thread_.telemetry.Retried(blamed_, plan_->failures(), *pause);
  return pause;
}

bool RetryState::MayMove() const {
  return !moved_ && !request_.client_restricted && request_.message->replayable() && plan_->MayMove() &&
         IsRepeatable();
}

bool RetryState::IsRepeatable() const {
  if (request_.repeatable || request_.leaves_nothing == nullptr) return request_.repeatable;
  return request_.leaves_nothing(request_.message->body->held());
}

bool RetryState::TakeMove(int64_t now_ns) { return thread_.retry_budget.Take(now_ns); }

}  // namespace vllm_router
