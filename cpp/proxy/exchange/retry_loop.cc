#include "proxy/exchange/retry_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "http/dot_segments.h"
#include "net/event_loop.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"

namespace vllm_router {
namespace {

// Whether two workers may execute it as well as one. Inference stores nothing; for other requests the
// method decides.
bool MayBeRepeated(const RequestHead& head, Route route) {
  return RouteOf(route).repeatable || head.method == "GET" || head.method == "HEAD" ||
         head.method == "OPTIONS";
}

}  // namespace

RetryLoop::RetryLoop(
    IoThread& thread, const Settings& settings, RequestInfo& info, const UpstreamRequest::Hooks& hooks)
    : thread_(thread),
      settings_(settings),
      info_(info),
      hooks_(hooks),
      server_errors_(thread, settings.breaker) {}

RetryLoop::~RetryLoop() { thread_.response_parsers.Release(std::move(kept_parser_)); }

Task<RetryLoop::End> RetryLoop::Run(const Request& request) {
  request_ = request;
  if (!plan_) {  // kFull may have ended an earlier run
    thread_.retry_budget.CountRequest(info_.body_ns);
    plan_.emplace(
        settings_.retry, MayBeRepeated(*request_.message.head, info_.route), !request.client_restricted);
  }
  while (std::optional<Selected> selected = Select()) {
    KeepResponse();
    info_.worker = selected->ticket.shared_worker();
    info_.decision = selected->ticket.decision();
    info_.prefill_tokens = selected->ticket.prefill_tokens();
    info_.prefills_alone = info_.worker->load.queued_prefill() <= int64_t{info_.prefill_tokens} &&
                           info_.worker->load.polled_waiting() == 0;
    thread_.telemetry.Decided(info_.worker, *info_.decision);
    attempt_.emplace(
        thread_, settings_, info_, server_errors_, request_.message, hooks_, std::move(selected->ticket),
        std::move(selected->pass));
    if (lost_once_) endangers_.Begin(info_.worker);
    const UpstreamRequest::End end = co_await attempt_->Run(/*fresh_connection=*/lost_once_);
    endangers_.End();
    if (cancelled_) co_return End::kCancelled;
    attempt_->RecordAttempt();
    if (first_sent_ns_ == 0) first_sent_ns_ = attempt_->first_sent_ns();
    const bool responded = end == UpstreamRequest::End::kResponded;
    if (responded && !IsRetryableStatus(response().status)) co_return End::kResponded;
    if (!responded) Fail(attempt_->error());

    FailedAttempt failed = Failure();
    attempted_.push_back(info_.worker->id);
    failed.untried_left = !request_.pinned && AnyUntried();
    const int64_t now = thread_.clock.NowNanos();
    std::optional<int64_t> pause;
    if (request_.message.replayable()) pause = plan_->Next(failed, now, thread_.ids);
    if (failed.how == AttemptFailure::kLost || failed.how == AttemptFailure::kBroken) {
      lost_once_ = true;
      ReportLoss();
      if (pause && IsSuspected()) pause.reset();  // it may have caused two workers to fail already
    }
    // A request that reached no worker causes no load when it is sent again, so the budget does not
    // apply.
    const bool makes_load = failed.how != AttemptFailure::kConnect;
    if (pause && makes_load && !thread_.retry_budget.Take(now)) pause.reset();
    info_.retries_exhausted = plan_->exhausted();
    if (!pause) co_return responded || UseKeptResponse() ? End::kResponded : End::kFailed;

    ++info_.retries;
    thread_.telemetry.Retried(info_.worker, plan_->failures(), *pause);
    attempt_->ticket().Finish({.end = Outcome::End::kWorkerFailed, .status = failed.status});
    const bool go_on = co_await WaitForNextAttempt(*pause);
    if (!go_on) co_return End::kCancelled;
    request_.message.body->Rewind();
  }
  // No worker may be chosen. The last worker's response is better than the router's own, if it is still
  // available.
  const bool at_hand = HasConnection() || UseKeptResponse();
  co_return at_hand ? End::kResponded : all_full_ ? End::kFull : End::kFailed;
}

// The failure of the attempt that has just ended.
FailedAttempt RetryLoop::Failure() const {
  FailedAttempt failed{.first_sent_ns = first_sent_ns_};
  if (HasConnection()) {
    failed.how = AttemptFailure::kStatus;
    failed.status = response().status;
    failed.retry_after_ms = ParseRetryAfter(FindHeader(response().fields, "retry-after").value_or(""));
    return failed;
  }
  failed.how = attempt_->was_lost()                       ? AttemptFailure::kLost
               : attempt_->unreached()                    ? AttemptFailure::kConnect
               : error_ == HttpError::kWorkerBadResponse  ? AttemptFailure::kBadResponse
               : error_ == HttpError::kWorkerWriteTimeout ? AttemptFailure::kSendTimeout
               : error_ == HttpError::kFirstByteTimeout   ? AttemptFailure::kFirstByteTimeout
                                                          : AttemptFailure::kBroken;
  return failed;
}

// The response stays available meanwhile, in case no other worker may be chosen afterwards.
Task<bool> RetryLoop::WaitForNextAttempt(int64_t pause_ns) {
  if (!attempt_->sent()) {
    co_await attempt_->StopSending();
    if (HasConnection())
      Fail(HttpError::kWorkerClosed);  // its response is dropped, since the request is unfinished
    attempt_->ReleaseConnection(/*reusable=*/false);
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
  std::optional<std::string> bytes = attempt_->TakeWholeResponse();
  if (!bytes) return;
  kept_ = KeptResponse{*std::move(bytes), attempt_->worker(), attempt_->ticket().decision()};
}

// A worker's response is better than the router's own.
bool RetryLoop::UseKeptResponse() {
  if (!kept_) return false;
  if (!ticket().finished()) ticket().Finish({.end = Outcome::End::kWorkerFailed});
  kept_parser_ = thread_.response_parsers.Acquire();
  kept_parser_->Reset(request_.message.head->method == "HEAD");
  kept_in_.emplace(thread_.buffers);
  kept_in_->Append(kept_->bytes);
  const ParseState parsed = kept_parser_->Feed(kept_in_->view());
  ROUTER_CHECK(parsed == ParseState::kDone, "a response that was parsed before can be parsed again");
  info_.worker = std::move(kept_->worker);
  info_.decision = std::move(kept_->decision);
  kept_.reset();
  return true;
}

void RetryLoop::Cancel() {
  cancelled_ = true;
  if (pause_ != nullptr) pause_->Cancel();
  if (attempt_) attempt_->Cancel();
}

void RetryLoop::WorkerDied() {
  if (attempt_ && pause_ == nullptr) attempt_->WorkerDied();
}

void RetryLoop::Fail(HttpError error, std::string message) {
  error_ = error;
  message_ = std::move(message);
}

bool RetryLoop::timed_out() const {
  return error_ == HttpError::kFirstByteTimeout || error_ == HttpError::kWorkerWriteTimeout;
}

// ---- 6 SELECT

// All workers, or those that serve the request's model.
std::shared_ptr<const FleetView> RetryLoop::Fleet() const {
  const std::shared_ptr<const FleetView>& whole = thread_.fleet.Get();
  return request_.model != nullptr ? request_.model->FleetIn(whole) : whole;
}

std::optional<RetryLoop::Selected> RetryLoop::Select() {
  fleet_ = Fleet();
  if (!fleet_->all_admitting()) {
    AdmitHalfOpen(thread_, *fleet_);
    fleet_ = Fleet();
  }
  if (attempt_) attempt_->ReleasePass();
  refused_.clear();
  for (;;) {
    StatusOr<Ticket> ticket = Choose();
    info_.chosen_ns = thread_.clock.NowNanos();
    if (request_.pinned) {
      if (ticket.ok()) return SelectPinned(*std::move(ticket));
      Fail(HttpError::kQueueFull, std::string(ticket.status().message()));
      return std::nullopt;
    }
    if (!ticket.ok()) {
      std::optional<Selected> selected = SelectInPanic();
      if (selected) return selected;
      all_full_ = thread_.router->options().max_worker_requests != 0 && fleet_->in_rotation() != 0;
      // After an attempt, that attempt's failure is more informative.
      if (attempted_.empty()) Fail(HttpError::kNoWorkers, std::string(ticket.status().message()));
      return std::nullopt;
    }
    const Worker& worker = ticket->worker();
    if (MayHavePath(worker)) {
      std::optional<BreakerPass> pass = ticket->shared_worker()->breaker.TryPass(settings_.breaker);
      if (pass) {
        if (thread_.limits.panicking.load(std::memory_order_relaxed) && !pass->probe()) {
          EndPanic(thread_, worker);
        }
        return Selected{*std::move(ticket), std::move(pass)};
      }
    }
    refused_.push_back(worker.id);  // another thread's request got the probe
  }
}

// No other worker will do, so the request goes to this one even if its circuit breaker is open.
std::optional<RetryLoop::Selected> RetryLoop::SelectPinned(Ticket ticket) {
  if (!MayHavePath(ticket.worker())) {
    Fail(HttpError::kPathOutsidePrefix);
    return std::nullopt;
  }
  CircuitBreaker& breaker = ticket.shared_worker()->breaker;
  std::optional<BreakerPass> pass = breaker.TryPass(settings_.breaker);
  if (!pass) pass.emplace(breaker.PassInPanic());
  return Selected{std::move(ticket), std::move(pass)};
}

// False for a worker with a prefix if the fleet had none when this request arrived, so that its path has
// not been checked.
bool RetryLoop::MayHavePath(const Worker& worker) const {
  return worker.url.prefix.empty() || ResolveDotSegments(request_.message.head->path) == DotSegments::kNone;
}

// Panic mode, after Envoy's. If no circuit breaker admits a request, a worker that failed a while ago is
// better than a certain error. Among those not attempted yet, chooses the one whose breaker opened
// first.
std::optional<RetryLoop::Selected> RetryLoop::SelectInPanic() {
  absl::InlinedVector<uint32_t, 16> positions;
  for (uint32_t position = 0; position < fleet_->members().size(); ++position) {
    if (!fleet_->members()[position].in_rotation()) continue;
    const Worker& worker = fleet_->worker(position);
    if (!MayHavePath(worker)) continue;
    // So it may be chosen, and is at --max-worker-requests.
    if (worker.breaker.Admits() && std::ranges::find(refused_, worker.id) == refused_.end())
      return std::nullopt;
    positions.push_back(position);
  }
  const auto order = [this](uint32_t position) {
    const Worker& worker = fleet_->worker(position);
    const auto attempted = std::ranges::find(attempted_, worker.id);
    return std::pair(
        attempted == attempted_.end() ? 0 : attempted - attempted_.begin() + 1, worker.breaker.opened_ns());
  };
  while (!positions.empty()) {
    const auto first = std::ranges::min_element(positions, {}, order);
    StatusOr<Ticket> ticket = thread_.router->Select(*request_.key, fleet_->Only(*first));
    if (ticket.ok()) {
      BeginPanic(thread_, *fleet_);
      BreakerPass pass = ticket->shared_worker()->breaker.PassInPanic();
      return Selected{*std::move(ticket), std::move(pass)};
    }
    positions.erase(first);
  }
  return std::nullopt;
}

// Usually chooses among all workers of the snapshot. Under --max-worker-requests, a worker with room
// that was attempted, or is in back-off, is better than others without room.
StatusOr<Ticket> RetryLoop::Choose() {
  if (request_.pinned) {
    if (const std::optional<uint32_t> position = fleet_->Find(*request_.pinned)) {
      return thread_.router->SelectPinned(*request_.key, *fleet_, *position, request_.pinned_work);
    }
    request_.pinned.reset();  // it has left the fleet
  }
  if (fleet_->all_admitting() && attempted_.empty() && refused_.empty())
    return thread_.router->Select(*request_.key, *fleet_);
  StatusOr<Ticket> ticket = thread_.router->Select(*request_.key, Eligible());
  if (ticket.ok() || thread_.router->options().max_worker_requests == 0) return ticket;
  return thread_.router->Select(*request_.key, Without({}, PassOver::kNone));
}

// The part of the fleet that this request may use. Attempted workers are left out while there are
// others, and of these likewise the ones in back-off. Attempted workers are identified by ID, so one
// that joined meanwhile counts as not attempted. Requests that were in flight at a lost worker may cause
// the next one to fail as well, so they are spread out as far as there are workers.
FleetView RetryLoop::Eligible() {
  FleetView rest = Without(attempted_, lost_once_ ? PassOver::kBackoffAndEndangered : PassOver::kBackoff);
  if (rest.eligible().empty() && lost_once_) rest = Without(attempted_, PassOver::kBackoff);
  if (rest.eligible().empty()) rest = Without(attempted_, PassOver::kNone);
  if (!rest.eligible().empty() || attempted_.empty()) return rest;
  // All were attempted: start over, without the one that failed last if it is not alone.
  attempted_.erase(attempted_.begin(), attempted_.end() - 1);
  rest = Without(attempted_, PassOver::kNone);
  if (rest.eligible().empty()) rest = Without({}, PassOver::kNone);
  return rest;
}

// Workers whose breakers admit no request are always left out.
FleetView RetryLoop::Without(std::span<const WorkerId> attempted, PassOver which) const {
  absl::InlinedVector<uint32_t, 16> positions;
  for (const uint32_t position : fleet_->eligible()) {
    const Worker& worker = fleet_->worker(position);
    const bool left_out = !worker.breaker.Admits() ||
                          (which >= PassOver::kBackoff && worker.backoff.active()) ||
                          (which == PassOver::kBackoffAndEndangered &&
                           worker.lost_elsewhere.load(std::memory_order_relaxed) != 0) ||
                          std::ranges::find(refused_, worker.id) != refused_.end() ||
                          std::ranges::find(attempted, worker.id) != attempted.end();
    if (left_out) positions.push_back(position);
  }
  return fleet_->Without(positions);
}

bool RetryLoop::AnyUntried() const {
  const std::shared_ptr<const FleetView> fleet = Fleet();
  return std::ranges::any_of(fleet->eligible(), [this, &fleet](uint32_t position) {
    const Worker& worker = fleet->worker(position);
    return worker.breaker.Admits() && std::ranges::find(attempted_, worker.id) == attempted_.end();
  });
}

// ---- what is reported to the quarantine and the breaker

// A body that was streamed and not kept is no longer available; it is not sent to a second worker
// either.
void RetryLoop::FindDigest() {
  const UpstreamRequest::Message& message = request_.message;
  const bool has_body = !message.stream_body || (message.body->keeps_pieces() && message.body->complete());
  if (!has_body || digest_) return;
  digest_ = DigestOf(thread_, settings_, *message.head, message.body->held(), message.client.address);
}

void RetryLoop::ReportLoss() {
  FindDigest();
  if (!digest_) return;
  const UpstreamRequest::Message& message = request_.message;
  thread_.limits.quarantine.ReportLoss(
      {.digest = *digest_,
       .bytes = message.body->bytes(),
       .host = HostNumber(info_.worker->url),
       .client = ClientNumber(thread_, settings_, *message.head, message.client.address),
       .request_id = request_.id->id},
      thread_.clock.NowNanos());
}

bool RetryLoop::IsSuspected() {
  return digest_.has_value() && thread_.limits.quarantine.IsSuspected(*digest_, thread_.clock.NowNanos());
}

void RetryLoop::RecordTimeout() {
  if (attempt_) attempt_->RecordTimeout();
}

void RetryLoop::ResponseEnded(ResponseEnd end) {
  const bool served = info_.status / 100 == 2 || info_.status == 101;
  if (end == ResponseEnd::kWhole && digest_ && served) {
    ReportServed(thread_, info_.worker->url, *digest_, request_.id->id);
  }
  if (attempt_) attempt_->RecordResponseEnd(end);
}

// ---- afterwards

void RetryLoop::ForgetResponseHead() {
  if (kept_in_) {
    thread_.response_parsers.Release(std::move(kept_parser_));
  } else {
    attempt_->ForgetResponseHead();
  }
}

void RetryLoop::ForgetRequest() {
  // If it is served to its end, the quarantine is informed.
  if (thread_.limits.quarantine.MayForget(request_.message.body->bytes())) FindDigest();
  if (attempt_) attempt_->ForgetRequest();
  kept_.reset();
}

Task<void> RetryLoop::StopSending() {
  if (attempt_) co_await attempt_->StopSending();
}

void RetryLoop::ReleaseConnection(bool reusable) {
  if (attempt_) attempt_->ReleaseConnection(reusable);
}

}  // namespace vllm_router
