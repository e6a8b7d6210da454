#include "proxy/exchange/retry_loop.h"

#include <utility>

#include "http/head.h"
#include "net/event_loop.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/worker_gate.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"
#include "routing/model_member.h"

namespace vllm_router {
namespace {

// Whether two workers may execute it as well as one, whatever its body is. Most inference stores nothing; for other
// requests the method decides.
bool MayBeRepeated(const RequestHead& head, const RouteInfo& route) {
  return route.repeatable || head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS";
}

}  // namespace

RetryLoop::RetryLoop(
    IoThread& thread, const Settings& settings, RequestInfo& info, const UpstreamRequest::Hooks& hooks)
    : Attempts(thread),
      thread_(thread),
      settings_(settings),
      info_(info),
      hooks_(hooks),
      retries_(thread, settings, info),
      choice_(thread, settings),
      server_errors_(thread, settings.breaker) {}

Task<RetryLoop::End> RetryLoop::Run(const Call& call) {
  request_ = call;
  choice_.Begin(request_.choice);
  const RouteInfo& route = RouteOf(info_.route);
  const bool body_decides = !request_.message.stream_body && !request_.choice.pinned;
  retries_.Begin(
      {.message = &request_.message,
       .id = request_.id->id,
       .repeatable = MayBeRepeated(*request_.message.head, route),
       .leaves_nothing = body_decides ? route.leaves_nothing : nullptr,
       .client_restricted = request_.client_restricted});
  choice_.set_probe(
      !route.computes || !thread_.fleet.Get()->any_in_doubt() ? WorkerChoice::Probe::kNever
      : MayMove()                                             ? WorkerChoice::Probe::kEarly
                                                              : WorkerChoice::Probe::kLate);
  while (std::optional<WorkerChoice::Selected> selected = Select()) {
    KeepResponse();
    info_.worker = selected->ticket.shared_worker();
    info_.decision = selected->ticket.decision();
    info_.policy = selected->ticket.policy().name();
    info_.prefill_tokens = selected->ticket.prefill_tokens();
    info_.prefills_alone = info_.worker->load.queued_prefill() <= int64_t{info_.prefill_tokens} &&
                           info_.worker->load.polled_waiting() == 0;
    thread_.telemetry.Decided(info_.worker, *info_.decision);
    attempt_.emplace(
        thread_, settings_, info_, server_errors_, request_.message, hooks_, std::move(selected->ticket),
        std::move(selected->pass));
    response_.Begin(*attempt_);
    if (lost_once_) endangers_.Begin(info_.worker);
    attempting_ = true;
    const UpstreamRequest::End end = co_await attempt_->Run(/*fresh_connection=*/lost_once_);
    attempting_ = false;
    endangers_.End();
    if (cancelled_) co_return End::kCancelled;
    const bool responded = end == UpstreamRequest::End::kResponded;
    if (std::exchange(evicted_, false) && !responded) {
      LeaveEvicted();
      co_return End::kEvicted;
    }
    attempt_->outcome().RecordAttempt();
    if (responded && !IsRetryableStatus(response_.head().status)) co_return End::kResponded;
    if (!responded) Fail(attempt_->outcome().error());

    const FailedAttempt failed = Failure();
    retries_.Failed(failed, *attempt_);
    lost_once_ = lost_once_ || retries_.WasLost();
    choice_.SetAttempted(info_.worker->id);
    const bool is_bad = info_.retries == 0 && failed.status == 500 && HasBadBody();
    if (is_bad) server_errors_.RequestIsBad();
    std::optional<int64_t> pause;
    if (request_.message.replayable() && !is_bad) {
      pause = retries_.Next(!choice_.pinned() && choice_.AnyUntried());
    }
    if (!pause) co_return responded || UseKeptResponse() ? End::kResponded : End::kFailed;

    attempt_->record().AddTo(&info_, thread_.clock.NowNanos());
    attempt_->ticket().Finish(
        {.end = retries_.IsBlamed() ? Outcome::End::kWorkerFailed : Outcome::End::kClientGone,
         .status = failed.status});
    const bool go_on = co_await WaitForNextAttempt(*pause);
    if (!go_on) co_return End::kCancelled;
    request_.message.body->Rewind();
  }
  // No worker may be chosen. The last worker's response is better than the router's own, if it is still
  // available.
  const bool at_hand = HasConnection() || UseKeptResponse();
  co_return at_hand ? End::kResponded : choice_.all_full() ? End::kFull : End::kFailed;
}

// Engines that do not check it respond 500 to a body that is not one JSON object, each of them.
bool RetryLoop::HasBadBody() const {
  const UpstreamRequest::Message& message = request_.message;
  const bool is_whole = message.copy == nullptr && !message.stream_body && message.body->complete();
  if (!is_whole || !RouteOf(info_.route).inference || message.head->method != "POST") return false;
  const std::string_view type = FindHeader(message.head->fields, "content-type").value_or("");
  if (IsForm(type) || FindHeader(message.head->fields, "content-encoding")) return false;
  return BodyMap::Read(message.body->held()).problem() == BodyMap::Problem::kNotAnObject;
}

// The failure of the attempt that has just ended.
FailedAttempt RetryLoop::Failure() const {
  if (!HasConnection()) return {.how = attempt_->outcome().failure()};
  const ResponseHead& head = response_.head();
  return {
      .how = AttemptFailure::kStatus,
      .status = head.status,
      .retry_after_ms = ParseRetryAfter(FindHeader(head.fields, "retry-after").value_or(""))};
}

// The response stays available meanwhile, in case no other worker may be chosen afterwards.
Task<bool> RetryLoop::WaitForNextAttempt(int64_t pause_ns) {
  if (!attempt_->sender().sent()) {
    co_await attempt_->sender().Stop();
    if (HasConnection())
      Fail(HttpError::kWorkerClosed);  // its response is dropped, since the request is unfinished
    attempt_->connection().Release(/*reusable=*/false);
  }
  if (cancelled_) co_return false;
  Delay delay(thread_.loop);
  pause_ = &delay;
  co_await delay.For(pause_ns);
  pause_ = nullptr;
  co_return !cancelled_;
}

// Keeps the response of the failed attempt while the next one runs.
void RetryLoop::KeepResponse() {
  if (!attempt_) return;
  std::optional<std::string> bytes = attempt_->response().TakeWhole();
  if (!bytes) return;
  kept_.emplace(*std::move(bytes), attempt_->worker(), attempt_->ticket().decision());
}

// A worker's response is better than the router's own.
bool RetryLoop::UseKeptResponse() {
  if (!kept_ || kept_->used()) return false;
  Ticket& ticket = attempt_->ticket();
  attempt_->record().AddTo(&info_, thread_.clock.NowNanos());
  if (!ticket.finished()) ticket.Finish({.end = Outcome::End::kWorkerFailed});
  response_.Use(*kept_, request_.message.head->method == "HEAD");
  info_.worker = kept_->worker();
  info_.decision = kept_->decision();
  return true;
}

void RetryLoop::Cancel() {
  cancelled_ = true;
  if (pause_ != nullptr) pause_->Cancel();
  if (attempt_) attempt_->Cancel();
}

void RetryLoop::WorkerDied(const Worker& /*worker*/) {
  if (attempt_ && pause_ == nullptr) attempt_->WorkerDied();
}

// Between two attempts it has no part in the request.
bool RetryLoop::WorkerDrained(const Worker& /*worker*/) {
  if (attempting_) attempt_->WorkerDrained();
  return attempting_ || pause_ != nullptr || !(HasConnection() || response_.is_kept());
}

void RetryLoop::AddWaits(const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  if (WaitsAt(worker)) AddWait(*attempt_, info_.route, reads_bodies, waits);
}

bool RetryLoop::MayMove() const { return !choice_.pinned() && retries_.MayMove(); }

// Only if another worker has room for it: else it is better off where it is, since the worker may go on.
bool RetryLoop::MoveFrom(const Worker& worker, const HangDetector::Doubt& doubt, size_t* reads_bodies) {
  if (cancelled_ || !WaitsAt(worker) || !RouteOf(info_.route).computes) return false;
  if (!choice_.AnyUntried(/*with_room=*/true)) return false;
  const int64_t now = thread_.clock.NowNanos();
  const HangDetector::Wait wait = attempt_->progress().DescribeWait(reads_bodies);
  if (!HangDetector::IsOverdue(wait, doubt.limits, doubt.silent_since_ns, now)) return false;
  if (!MayMove() || !retries_.TakeMove(now)) return false;
  attempt_->MoveAway();
  return true;
}

// One that failed at a worker is in the hands of the retries' rules.
bool RetryLoop::Evict() {
  const bool waits = !cancelled_ && !evicted_ && attempting_ && attempt_->AwaitsFirstByte();
  if (!waits || choice_.pinned() || choice_.any_attempted() || !retries_.MayRepeat()) return false;
  evicted_ = true;
  attempt_->MoveAway();
  return true;
}

// It is as if no worker had had the request: the attempt is none of those that were made, and its time is one of waiting.
void RetryLoop::LeaveEvicted() {
  attempt_->record().AddTo(&info_, thread_.clock.NowNanos());
  info_.attempts_made.pop_back();
  attempt_->ticket().Finish({.end = Outcome::End::kClientGone});
  attempt_->outcome().ReleasePass();
  info_.queue_ns += thread_.clock.NowNanos() - info_.chosen_ns;
  info_.worker = nullptr;
  info_.decision.reset();
  info_.policy = {};
  info_.chosen_ns = info_.connected_ns = info_.sent_ns = info_.responded_ns = 0;
  request_.message.body->Rewind();
}

std::optional<WorkerChoice::Selected> RetryLoop::Select() {
  if (attempt_) attempt_->outcome().ReleasePass();
  std::optional<WorkerChoice::Selected> selected = choice_.Select({.after_loss = lost_once_});
  info_.chosen_ns = thread_.clock.NowNanos();
  if (request_.choice.gate != nullptr) request_.choice.gate->Chosen(selected ? &selected->ticket : nullptr);
  // After an attempt, that attempt's failure is more informative.
  if (!selected && (choice_.pinned() || !choice_.any_attempted())) Fail(choice_.error(), choice_.message());
  return selected;
}

// ---- afterwards

void RetryLoop::RecordTimeout() {
  if (attempt_) attempt_->outcome().RecordTimeout();
}

void RetryLoop::ResponseEnded(ResponseEnd end) {
  const bool served = info_.status / 100 == 2 || info_.status == 101;
  if (end == ResponseEnd::kWhole && served) retries_.ReportServed(*info_.worker);
  if (attempt_) attempt_->outcome().RecordResponseEnd(end);
}

void RetryLoop::ForgetRequest() {
  retries_.KeepDigest();
  if (attempt_) attempt_->sender().Forget();
  if (!response_.is_kept()) kept_.reset();
}

Task<void> RetryLoop::Finished() {
  if (attempt_) co_await attempt_->sender().Stop();
}

}  // namespace vllm_router
