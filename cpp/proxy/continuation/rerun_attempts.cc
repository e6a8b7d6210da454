#include "proxy/continuation/rerun_attempts.h"

#include <functional>
#include <utility>

#include "http/head.h"
#include "net/event_loop.h"
#include "proxy/api/settings.h"
#include "proxy/continuation/place_wait.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

UpstreamRequest::Message MessageOf(Request& request) {
  return {
      .head = request.head.get(),
      .body = &*request.body,
      .stream_body = false,
      .client = ClientSideOf(request),
      .copy = request.edits.copy()};
}

std::unique_ptr<RequestInfo> OwnInfo(const Request& request, RerunAttempts::Place place) {
  if (place == RerunAttempts::Place::kAlone) return nullptr;
  auto info = std::make_unique<RequestInfo>();
  info->route = request.info.route;
  return info;
}

const std::function<bool(const Worker& worker)> kHasRoomBeside = &RerunAttempts::HasRoomBeside;

// False: another thread has taken the last room since the worker was chosen.
bool TakeRoom(Worker& worker) {
  if (worker.second_runs.fetch_add(1, std::memory_order_relaxed) < RerunAttempts::kMostBeside) return true;
  worker.second_runs.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

constexpr int64_t kLongestFirstMs = 10'000;  // from the head of a second run to its first event

bool IsLoss(const FailedAttempt& failed) {
  return failed.how == AttemptFailure::kLost || failed.how == AttemptFailure::kBroken;
}

}  // namespace

RerunAttempts::RerunAttempts(Request& request, ThreadContinuation& continuation, Place place)
    : Attempts(request.thread),
      request_(request),
      continuation_(continuation),
      own_info_(OwnInfo(request, place)),
      info_(own_info_ != nullptr ? own_info_.get() : &request.info),
      message_(MessageOf(request)),
      plan_(request.settings.retry, !request.client_restricted),
      losses_(request.thread, request.settings),
      choice_(request.thread, request.settings),
      server_errors_(request.thread, request.settings.breaker) {
  BeginChoosing();
  // The one that RunAgain() is told of has been recorded, or goes on.
  const size_t made = request.info.attempts_made.size();
  CountAttemptsBefore(own_info_ == nullptr && made != 0 ? made - 1 : made);
}

bool RerunAttempts::HasRoomBeside(const Worker& worker) {
  return worker.second_runs.load(std::memory_order_relaxed) < kMostBeside;
}

void RerunAttempts::BeginChoosing() {
  const bool is_beside = info_ == own_info_.get();
  choice_.Begin(
      {.key = &request_.key,
       .path = request_.head->path,
       .stage = request_.workers.first_stage(),
       .model = request_.workers.model.get(),
       .only = is_beside ? &kHasRoomBeside : nullptr});
}

void RerunAttempts::CountAttemptsBefore(size_t attempts) {
  const auto& made = request_.info.attempts_made;
  for (size_t i = 0; i < attempts; ++i) {
    const bool was_lost = made[i].error == ErrorOf(HttpError::kWorkerClosed).code;
    if (made[i].beside && !was_lost) continue;  // the stream went on without it
    choice_.SetAttempted(made[i].worker->id);
    any_lost_ = any_lost_ || was_lost;
    const FailedAttempt failed{
        .how = made[i].status != 0 ? AttemptFailure::kStatus
               : was_lost          ? AttemptFailure::kLost
                                   : AttemptFailure::kConnect,
        .status = made[i].status,
        .untried_left = true};
    plan_.Next(failed, request_.thread.clock.NowNanos(), request_.thread.ids);
  }
}

Task<bool> RerunAttempts::RunAgain(
    const FailedAttempt& failed, std::shared_ptr<Worker> worker, int64_t sent_ns, const SplicedBody* copy) {
  message_.copy = copy;
  is_relayed_ = false;
  std::optional<int64_t> pause = PauseAfter(failed, worker, sent_ns);
  while (pause) {
    const bool go_on = co_await Pause(*pause);
    if (!go_on) co_return false;
    bool has_worker = Choose();
    if (!has_worker && info_ != own_info_.get()) {
      PlaceWait wait(request_, continuation_.waiting);
      while (!has_worker && choice_.all_full() && choice_.AnyUntried()) {
        const bool is_told = co_await wait.Next();
        if (cancelled_) co_return false;
        if (!is_told) {
          why_not_ = WhyNot::kWait;
          co_return false;
        }
        has_worker = Choose();
        if (has_worker) wait.Found(*choice_.Fleet());
      }
    }
    if (!has_worker) co_return false;
    const UpstreamRequest::End end = co_await Attempt();
    if (cancelled_) co_return false;
    attempt_->outcome().RecordAttempt();
    is_relayed_ = end == UpstreamRequest::End::kResponded && HasStream();
    if (is_relayed_) co_return true;
    const FailedAttempt failure = EndFailedAttempt(end);
    co_await attempt_->sender().Stop();
    attempt_->connection().Release(/*reusable=*/false);
    pause = PauseAfter(failure, attempt_->worker(), attempt_->record().first_sent_ns());
  }
  co_return false;
}

void RerunAttempts::ReportLoss() {
  if (attempt_) ReportLossOf(*attempt_->worker(), attempt_->record().first_sent_ns());
}

void RerunAttempts::ReportLossOf(const Worker& worker, int64_t sent_ns) {
  losses_.Report(message_, worker, sent_ns, request_.id.id);
}

void RerunAttempts::AddToRequest(After after) {
  RequestInfo& request = request_.info;
  request.retries += std::exchange(own_info_->retries, 0);
  request.attempts += std::exchange(own_info_->attempts, 0);
  for (AttemptInfo& attempt : own_info_->attempts_made) {
    attempt.beside = after == After::kDropped;
    request.attempts_made.push_back(std::move(attempt));
  }
  own_info_->attempts_made.clear();
  if (after == After::kDropped) return;
  request.worker = own_info_->worker;
  request.decision = own_info_->decision;
  request.policy = own_info_->policy;
  info_ = &request;
  BeginChoosing();
}

// The pause before the next attempt; nullopt: there is none, for why_not().
std::optional<int64_t> RerunAttempts::PauseAfter(
    FailedAttempt failed, const std::shared_ptr<Worker>& worker, int64_t sent_ns) {
  IoThread& thread = request_.thread;
  if (IsLoss(failed)) losses_.Report(message_, *worker, sent_ns, request_.id.id);
  any_lost_ = any_lost_ || IsLoss(failed);
  if (worker != nullptr) choice_.SetAttempted(worker->id);
  // Beside a stream that goes on, what finds no worker takes nothing of the budget.
  const bool is_beside = info_ == own_info_.get();
  failed.untried_left = choice_.AnyUntried(/*with_room=*/is_beside);
  const int64_t now = thread.clock.NowNanos();
  const std::optional<int64_t> pause = plan_.Next(failed, now, thread.ids);
  const bool makes_load = failed.how != AttemptFailure::kConnect;
  why_not_ = losses_.IsSuspected()                                           ? WhyNot::kSuspected
             : !failed.untried_left                                          ? WhyNot::kNoWorker
             : !pause                                                        ? WhyNot::kRetries
             : !makes_load                                                   ? WhyNot::kNone
             : thread.retry_budget.Take(now, continuation_.memory.streams()) ? WhyNot::kNone
                                                                             : WhyNot::kRetries;
  if (why_not_ != WhyNot::kNone) return std::nullopt;
  ++info_->retries;
  const bool has_failed =
      failed.how != AttemptFailure::kDrained && (failed.how != AttemptFailure::kMoved || !is_beside);
  thread.telemetry.Retried(has_failed ? worker : nullptr, plan_.failures(), *pause);
  return pause;
}

Task<bool> RerunAttempts::Pause(int64_t pause_ns) {
  Delay delay(request_.thread.loop);
  pause_ = &delay;
  co_await delay.For(pause_ns);
  pause_ = nullptr;
  co_return !cancelled_;
}

bool RerunAttempts::Choose() {
  IoThread& thread = request_.thread;
  RequestInfo& info = *info_;
  if (attempt_) attempt_->outcome().ReleasePass();
  std::optional<WorkerChoice::Selected> selected =
      choice_.Select({.after_loss = any_lost_, .untried = true, .last_resort = false});
  info.chosen_ns = thread.clock.NowNanos();
  const bool is_beside = info_ == own_info_.get();
  if (!selected || (is_beside && !TakeRoom(*selected->ticket.shared_worker()))) {
    why_not_ = WhyNot::kNoWorker;
    return false;
  }
  info.worker = selected->ticket.shared_worker();
  info.decision = selected->ticket.decision();
  info.policy = selected->ticket.policy().name();
  thread.telemetry.Decided(info.worker, *info.decision);
  attempt_.emplace(
      thread, request_.settings, info, server_errors_, message_, UpstreamRequest::Hooks{},
      std::move(selected->ticket), std::move(selected->pass));
  response_.Begin(*attempt_);
  return true;
}

// Requests of a lost worker are spread over the others, as each may be what ended it.
Task<UpstreamRequest::End> RerunAttempts::Attempt() {
  request_.body->Rewind();
  const std::shared_ptr<Worker> worker = attempt_->worker();
  if (any_lost_) worker->lost_elsewhere.fetch_add(1, std::memory_order_relaxed);
  attempting_ = true;
  const UpstreamRequest::End end = co_await attempt_->Run(/*fresh_connection=*/any_lost_);
  attempting_ = false;
  const bool is_beside = info_ == own_info_.get();
  if (is_beside && end == UpstreamRequest::End::kResponded && HasStream()) {
    // Its head says nothing of its prompt, if heads of streams are not held.
    UpstreamResponse& response = attempt_->response();
    const bool has_body = response.in().size() > response.head().size;
    if (!cancelled_ && !has_body) co_await response.ReadMore(kLongestFirstMs);
  }
  if (any_lost_) worker->lost_elsewhere.fetch_sub(1, std::memory_order_relaxed);
  if (is_beside) worker->second_runs.fetch_sub(1, std::memory_order_relaxed);
  co_return end;
}

bool RerunAttempts::HasStream() const {
  const ResponseHead& head = attempt_->response().head();
  return head.status == 200 && head.event_stream && !FindHeader(head.fields, "content-encoding");
}

// What it responded is not for the client, who has the beginning of a stream.
FailedAttempt RerunAttempts::EndFailedAttempt(UpstreamRequest::End end) {
  FailedAttempt failed{.how = attempt_->outcome().failure()};
  if (end == UpstreamRequest::End::kResponded) {
    const ResponseHead& head = attempt_->response().head();
    failed = {
        .how = AttemptFailure::kStatus,
        .status = head.status,
        .retry_after_ms = ParseRetryAfter(FindHeader(head.fields, "retry-after").value_or(""))};
  }
  attempt_->record().AddTo(info_, request_.thread.clock.NowNanos());
  attempt_->ticket().Finish(
      {.end = attempt_->outcome().drained() ? Outcome::End::kClientGone : Outcome::End::kWorkerFailed,
       .status = failed.status});
  return failed;
}

void RerunAttempts::Cancel() {
  cancelled_ = true;
  if (pause_ != nullptr) pause_->Cancel();
  if (attempt_) attempt_->Cancel();
}

bool RerunAttempts::IsAt(const Worker& worker) const { return info_->worker.get() == &worker; }

void RerunAttempts::WorkerDied(const Worker& /*worker*/) {
  if (attempting_) attempt_->WorkerDied();
}

// Without an attempt no worker has the request.
bool RerunAttempts::WorkerDrained(const Worker& /*worker*/) {
  if (attempting_) {
    attempt_->WorkerDrained();
  } else if (is_relayed_ && info_ == own_info_.get()) {
    attempt_->connection().socket().InterruptRead();  // SecondRun sees that it leaves
  }
  return true;
}

void RerunAttempts::AddWaits(
    const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  const bool waits_there = attempting_ && IsAt(worker) && attempt_->AwaitsFirstByte();
  if (waits_there) AddWait(*attempt_, request_.info.route, reads_bodies, waits);
}

void RerunAttempts::ResponseEnded(ResponseEnd end) {
  if (!is_relayed_) return;  // what ended is the stream of a worker before
  if (end == ResponseEnd::kWhole) losses_.ReportServed(*attempt_->worker(), request_.id.id);
  attempt_->outcome().RecordResponseEnd(end);
}

Task<void> RerunAttempts::Finished() {
  if (attempt_) co_await attempt_->sender().Stop();
}

}  // namespace vllm_router
