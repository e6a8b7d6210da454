#include "proxy/continuation/continued_stream.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/continuation/rerun_attempts.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// What aborts a stream as its worker ends is known for leaving within this time: three failed checks, a second apart.
constexpr int64_t kLongestDoubtNs = 3 * kNanosPerSecond;
constexpr int64_t kLookNs = 50 * kNanosPerMs;
// Behind an event that says that the response is over, for the end of its body.
constexpr int64_t kRestMs = 1'000;
// An engine that ends refuses connections while it finishes its streams, which it feeds many times a second.
constexpr int64_t kDeadSilenceMs = 3'000;

ResponseEnd EndOf(StreamCut cut) {
  return cut == StreamCut::kServerError ? ResponseEnd::kServerError
         : cut == StreamCut::kAborted   ? ResponseEnd::kAborted
                                        : ResponseEnd::kBrokeOff;
}

}  // namespace

// How the end of a worker's stream counts among the failures of attempts, and its code in the record of attempts.
struct ContinuedStream::Failure {
  FailedAttempt attempt;
  std::string_view error;
  std::optional<ResponseEnd> end = {};  // nullopt: nobody is to blame
  bool may_again = false;               // the next attempt may be at the same worker

  static Failure Of(StreamCut cut) {
    switch (cut) {
      case StreamCut::kServerError:
        return {{.how = AttemptFailure::kStatus, .status = 500}, "worker_error_event", EndOf(cut)};
      case StreamCut::kDead:
        return {{.how = AttemptFailure::kLost}, "worker_dead", EndOf(cut)};
      case StreamCut::kDrained:
        return {{.how = AttemptFailure::kDrained}, "worker_drained"};
      case StreamCut::kAborted:
        return {{.how = AttemptFailure::kDrained}, "worker_aborted", EndOf(cut)};
      case StreamCut::kStalled:
        return {{.how = AttemptFailure::kMoved}, "moved"};
      case StreamCut::kIdle:
        return {{.how = AttemptFailure::kMoved}, CodeOfCut(CancelReason::kIdleTimeout), EndOf(cut)};
      default:
        return {{.how = AttemptFailure::kLost}, "worker_closed", EndOf(cut)};
    }
  }
  // What came was no continuation, by this method.
  static Failure Of(ContinueEventType failure) {
    const bool is_unfit = failure == ContinueEventType::kNewUnfit;
    return {{.how = AttemptFailure::kDrained}, is_unfit ? "continue_unfit" : "continue_diverged", {}, true};
  }
};

ContinuedStream::ContinuedStream(
    Request& request, ThreadContinuation& thread, const ContinueLimits& limits, uint64_t memory_bytes,
    const TokenRequest* asked)
    : ResumableResponse(request),
      thread_(thread),
      machine_(limits),
      memory_bytes_(memory_bytes),
      wait_(request),
      hand_over_(request, thread, machine_, wait_) {
  if (asked != nullptr) rest_.emplace(request, thread.memory, *asked, /*keeps=*/memory_bytes != 0);
}

ContinuedStream::~ContinuedStream() {
  if (memory_bytes_ != 0) thread_.memory.Return(memory_bytes_);
}

BodySink& ContinuedStream::Begin(BodySink& client) {
  sink_.emplace(
      client,
      ContinuationSink::Hooks{
          .first_event = &ContinuedStream::OnFirstEvent,
          .caught_up = &ContinuedStream::OnCaughtUp,
          .ending = &ContinuedStream::OnEnding,
          .context = this},
      rest_ ? &rest_->tokens() : nullptr);
  const ContinueSettings& settings = request_.settings.continuation;
  if (settings.drain_ms == 0 && settings.stall_ms == 0) return *sink_;
  return hand_over_.BeginRelays(*sink_);
}

bool ContinuedStream::MayResume() const {
  if (memory_bytes_ == 0 || !sink_ || !sink_->may_continue() || machine_.over()) return false;
  if (hand_over_.under_way()) return true;
  const auto fleet = FleetFor(request_.thread, request_.workers.model.get(), request_.workers.first_stage());
  return std::ranges::any_of(fleet->eligible(), [this, &fleet](uint32_t position) {
    return fleet->worker(position).id != request_.info.worker->id;
  });
}

std::optional<StreamCut> ContinuedStream::CutOf(Relay::End end) const {
  switch (end) {
    case Relay::End::kDone:
      if (sink_->ending() == EventGate::Ending::kServerError) return StreamCut::kServerError;
      if (sink_->ending() == EventGate::Ending::kAborted) return StreamCut::kAborted;
      return std::nullopt;
    case Relay::End::kWorkerGone:
    case Relay::End::kBadFraming:
      return StreamCut::kLost;
    case Relay::End::kClosed:
      if (sink_->ending() == EventGate::Ending::kServerError) return StreamCut::kServerError;
      if (sink_->ending() == EventGate::Ending::kAborted) return StreamCut::kAborted;
      if (left_worker_ == CancelReason::kWorkerDead) return StreamCut::kDead;
      if (left_worker_ == CancelReason::kDrained) return StreamCut::kDrained;
      if (left_worker_ == CancelReason::kIdleTimeout) return StreamCut::kIdle;
      return std::nullopt;
    case Relay::End::kClientGone:
      return std::nullopt;
  }
  return std::nullopt;
}

Task<ContinuedStream::Resumed> ContinuedStream::Resume(Relay::End end) {
  const std::optional<StreamCut> cut = CutOf(end);
  const bool is_done = end == Relay::End::kDone && sink_->ending() == EventGate::Ending::kNone;
  if (hand_over_.took_over()) co_return co_await TakeOver(cut.value_or(hand_over_.why()));
  if (hand_over_.under_way() && is_done) {
    co_await hand_over_.FirstEnded(ContinueEventType::kOldEnded);
    co_return Resumed::kEnds;
  }
  const bool is_verifying = !hand_over_.under_way() && (machine_.state() == ContinueState::kOpening ||
                                                        machine_.state() == ContinueState::kVerifying);
  const bool differs = sink_->problem() != RerunProblem::kNone;
  if (sink_->unfit()) co_return co_await GoOnOtherwise(ContinueEventType::kNewUnfit);
  if (differs || (is_verifying && is_done)) {
    Post(ContinueEventType::kNewReceipt);
    co_return co_await GoOnOtherwise(differs ? ContinueEventType::kNewDiffers : ContinueEventType::kNewShort);
  }
  if (!cut) co_return Resumed::kEnds;
  resuming_ = true;
  rest_due_.Disarm();
  silence_due_.Disarm();
  const Resumed resumed = co_await GoOn(*cut);
  resuming_ = false;
  const CancelReason left = std::exchange(left_worker_, CancelReason::kNone);
  const bool goes_on = resumed == Resumed::kResumed || resumed == Resumed::kWritten;
  if (goes_on || request_.is_cancelled()) co_return resumed;
  co_await Release(end == Relay::End::kDone);
  if (left != CancelReason::kNone) request_.Cancel(left);
  co_return resumed;
}

Task<ContinuedStream::Resumed> ContinuedStream::GoOn(StreamCut cut) {
  if (memory_bytes_ == 0 || !sink_->may_continue()) co_return Resumed::kEnds;
  if (cut == StreamCut::kAborted) {
    const bool leaves = co_await WorkerLeaves();
    if (!leaves) co_return Resumed::kEnds;
  }
  BeginWait(cut);
  const bool is_loss = EventOf(cut) == ContinueEventType::kOldLost;
  const bool was_beside = hand_over_.under_way() || hand_over_.took_over();
  if (was_beside) {
    const bool took_over = co_await hand_over_.FirstEnded(EventOf(cut));
    if (request_.is_cancelled()) co_return Resumed::kEnds;
    if (took_over) co_return co_await TakeOver(cut);
  } else if (machine_.state() == ContinueState::kLive) {
    const ContinueMethods methods = co_await MethodsNow();
    if (request_.is_cancelled()) co_return Resumed::kEnds;
    const bool is_complete = methods.Has(ContinueMethod::kTokens) && rest_->lacks_end_only();
    machine_.Step({.type = EventOf(cut), .complete = is_complete, .methods = methods});
    if (machine_.why() == ContinueCut::kNotEligible && rest_) record_.cut_why = "settle";
  } else {
    Post(
        is_loss                      ? ContinueEventType::kNewLost
        : cut == StreamCut::kAborted ? ContinueEventType::kNewFailed
                                     : ContinueEventType::kNewTimeout);
  }
  if (machine_.state() != ContinueState::kSeeking) {
    if (attempts_ != nullptr && is_loss) attempts_->ReportLoss();
    if (attempts_ == nullptr && is_loss && was_beside) {
      RerunAttempts(request_, thread_).ReportLossOf(*request_.info.worker, request_.info.sent_ns);
    }
    if (machine_.state() == ContinueState::kWhole) co_return co_await WriteEnd();
    co_return Resumed::kEnds;
  }
  const bool runs = co_await RunAgain(Failure::Of(cut));
  co_return runs ? Resumed::kResumed : Resumed::kEnds;
}

// By which the stream can go on where it is now.
Task<ContinueMethods> ContinuedStream::MethodsNow() {
  ContinueMethods methods = RerunAlone();
  if (!rest_) co_return methods;
  co_await request_.attempts->Finished();  // whose request may be an earlier rest
  const bool is_settled = co_await rest_->Settle(sink_->delivered());
  if (is_settled) methods.Add(ContinueMethod::kTokens);
  if (is_settled && rest_->is_long()) methods.PreferTokens();
  co_return methods;
}

// The second run is no continuation: by another method, if there is one, at any worker.
Task<ContinuedStream::Resumed> ContinuedStream::GoOnOtherwise(ContinueEventType failure) {
  Post(failure);
  if (!machine_.over() && machine_.state() != ContinueState::kSeeking) {
    record_.cut_why = ContinueCutName(ContinueCut::kDiverged);  // behind what the client had
  }
  if (machine_.state() != ContinueState::kSeeking || !sink_->may_continue()) co_return Resumed::kDiffers;
  resuming_ = true;
  rest_due_.Disarm();
  silence_due_.Disarm();
  const bool runs = co_await RunAgain(Failure::Of(failure));
  resuming_ = false;
  left_worker_ = CancelReason::kNone;
  co_return runs ? Resumed::kResumed : Resumed::kDiffers;
}

// The client lacks nothing but the end.
Task<ContinuedStream::Resumed> ContinuedStream::WriteEnd() {
  record_.method = ContinueMethod::kTokens;
  ++record_.times;
  wait_.End();
  BodySink::Took took = sink_->WriteEnd(rest_->End(sink_->delivered()));
  if (took == BodySink::Took::kNotYet) took = co_await sink_->Flush();
  if (took == BodySink::Took::kGone) request_.Cancel(CancelReason::kClientGone);
  co_return Resumed::kWritten;
}

void ContinuedStream::BeginWait(StreamCut cut) {
  record_.Begin(cut, request_.info.worker);
  wait_.Begin(*sink_);
}

// An engine that ends aborts what it generates, and so does one that was told to. Its health says which.
Task<bool> ContinuedStream::WorkerLeaves() {
  IoThread& thread = request_.thread;
  const std::shared_ptr<Worker> worker = request_.info.worker;
  const int64_t until_ns = thread.clock.NowNanos() + kLongestDoubtNs;
  thread.health.suspect(worker);
  for (;;) {
    if (IsLeaving(thread, *worker)) co_return true;
    const bool is_known = !worker->suspected.load(std::memory_order_relaxed);
    if (is_known || thread.clock.NowNanos() >= until_ns) co_return false;
    const bool go_on = co_await request_.scope.Pause(thread.loop, kLookNs);
    if (!go_on) co_return false;
  }
}

// False: no worker runs it. The times of the record stay those of the first run, which the client has seen.
Task<bool> ContinuedStream::RunAgain(const Failure& failure) {
  RequestInfo& info = request_.info;
  const std::shared_ptr<Worker> worker = info.worker;
  const FailedAttempt failed = failure.attempt;
  const std::shared_ptr<Worker> to_leave = failure.may_again ? nullptr : worker;
  const int64_t sent_ns = co_await EndAttempt(failure);
  if (attempts_ == nullptr && !request_.is_cancelled()) {
    auto made = std::make_unique<RerunAttempts>(request_, thread_);
    attempts_ = made.get();
    request_.UseAttempts(std::move(made));
  }
  bool runs = false;
  if (!request_.is_cancelled()) {
    const auto times = std::tuple(info.chosen_ns, info.connected_ns, info.sent_ns, info.responded_ns);
    const std::optional<Decision> decision = info.decision;
    const std::string_view policy = info.policy;
    const size_t made = info.attempts_made.size();
    const bool by_tokens = machine_.method() == ContinueMethod::kTokens;
    const SplicedBody* const copy = by_tokens ? rest_->Body() : request_.edits.copy();
    runs = co_await attempts_->RunAgain(failed, to_leave, sent_ns, copy);
    std::tie(info.chosen_ns, info.connected_ns, info.sent_ns, info.responded_ns) = times;
    if (!runs) {  // the client has this worker's response, whoever rejected the request since
      attempts_->SettleServerErrors();
      info.worker = worker;
      info.decision = decision;
      info.policy = policy;
      const auto cut_one = info.attempts_made.begin() + static_cast<ptrdiff_t>(made) - 1;
      std::rotate(cut_one, cut_one + 1, info.attempts_made.end());
    }
  }
  if (request_.is_cancelled()) {
    Post(ContinueEventType::kClientGone);
    co_return false;
  }
  if (runs) {
    Post(ContinueEventType::kAdmitted);
    record_.method = machine_.method();
    record_.tokens = rest_ ? rest_->tokens().output().count() : 0;
    if (record_.method == ContinueMethod::kTokens) {
      record_.tokens = rest_->ids();
      sink_->Rest(rest_->ids(), rest_->repeated());
    } else {
      sink_->Rerun();
    }
    hand_over_.FollowNext();
    co_return true;
  }
  if (attempts_->why_not() == RerunAttempts::WhyNot::kSuspected) Post(ContinueEventType::kSuspected);
  if (attempts_->why_not() == RerunAttempts::WhyNot::kRetries) record_.cut_why = "retries";
  if (attempts_->why_not() == RerunAttempts::WhyNot::kWait) record_.cut_why = "wait";
  Post(ContinueEventType::kNoTarget);
  co_return false;
}

// The second run, which says what the client has, is relayed from its beginning.
Task<ContinuedStream::Resumed> ContinuedStream::TakeOver(StreamCut cut) {
  resuming_ = true;
  rest_due_.Disarm();
  silence_due_.Disarm();
  BeginWait(cut);
  co_await hand_over_.FirstEnded(EventOf(cut));
  const std::shared_ptr<Worker> worker = request_.info.worker;
  const int64_t sent_ns = co_await EndAttempt(Failure::Of(cut));
  resuming_ = false;
  if (request_.is_cancelled()) co_return Resumed::kEnds;
  left_worker_ = CancelReason::kNone;
  std::unique_ptr<RerunAttempts> second = hand_over_.TakeAttempts();
  attempts_ = second.get();
  request_.UseAttempts(std::move(second));
  attempts_->AddToRequest(RerunAttempts::After::kTakesPlace);
  if (EventOf(cut) == ContinueEventType::kOldLost) attempts_->ReportLossOf(*worker, sent_ns);
  record_.method = ContinueMethod::kRerun;
  sink_->Rerun();
  hand_over_.FollowNext();
  co_return Resumed::kResumed;
}

// Of the worker whose stream was cut. When it got the request.
Task<int64_t> ContinuedStream::EndAttempt(const Failure& failure) {
  RequestInfo& info = request_.info;
  Attempts& attempts = *request_.attempts;
  const bool is_blamed = failure.end.has_value();
  if (is_blamed) attempts.ResponseEnded(*failure.end);
  co_await attempts.Finished();
  ArrivingResponse& response = attempts.response();
  info.error = failure.error;
  response.AddAttemptTo(&info);
  info.error = {};
  response.ticket()->Finish(
      {.end = is_blamed ? Outcome::End::kWorkerFailed : Outcome::End::kClientGone, .status = info.status});
  response.ReleaseConnection(/*reusable=*/false);
  co_return info.attempts_made.back().sent_ns;
}

// What was held goes to the client, as the stream does not go on.
Task<void> ContinuedStream::Release(bool last) {
  BodySink::Took took = sink_->Release(last);
  if (took == BodySink::Took::kNotYet) took = co_await sink_->Flush();
  if (took == BodySink::Took::kGone) request_.Cancel(CancelReason::kClientGone);
}

void ContinuedStream::Post(ContinueEventType type) { machine_.Step({.type = type}); }

uint64_t ContinuedStream::Progress() const { return sink_->bytes() + sink_->dropped_bytes(); }

void ContinuedStream::WorkerDied() {
  spoken_ = Progress();
  silence_due_.Arm(request_.thread.loop.timers(), kDeadSilenceMs, &ContinuedStream::OnSilent, this);
}

void ContinuedStream::OnSilent(void* self) {
  auto& stream = *static_cast<ContinuedStream*>(self);
  if (stream.Progress() != stream.spoken_) return stream.WorkerDied();
  stream.LeaveWorker(CancelReason::kWorkerDead);  // if another may finish it; else its grace goes on
}

void ContinuedStream::WorkerDrains() {
  if (request_.settings.continuation.drain_ms != 0) hand_over_.Begin(StreamCut::kDrained);
}

Task<void> ContinuedStream::Ended() {
  silence_due_.Disarm();
  wait_.Stop();
  rest_due_.Disarm();
  co_await hand_over_.End();
}

void ContinuedStream::OnFirstEvent(void* self) {
  static_cast<ContinuedStream*>(self)->Post(ContinueEventType::kNewReceipt);
}

void ContinuedStream::OnCaughtUp(void* self) {
  auto& stream = *static_cast<ContinuedStream*>(self);
  stream.Post(ContinueEventType::kNewMatched);
  StreamRecord& record = stream.record_;
  ++record.times;
  if (record.method == ContinueMethod::kTokens) stream.thread_.recomputed.Add(record.tokens);
  stream.wait_.End();
}

void ContinuedStream::OnEnding(void* self) {
  auto& stream = *static_cast<ContinuedStream*>(self);
  stream.rest_due_.Arm(stream.request_.thread.loop.timers(), kRestMs, &ContinuedStream::OnRestDue, self);
}

void ContinuedStream::OnRestDue(void* self) {
  auto& stream = *static_cast<ContinuedStream*>(self);
  if (stream.request_.relaying) stream.request_.attempts->response().socket().Close();
}

// Of the rest of a stream a worker says that all before was in its prompt.
void ContinuedStream::Correct(StreamSummary* summary) const {
  if (!rest_) return;
  const TokensBefore& before = rest_->tokens().before();
  if (before.prompt == 0) return;
  if (summary->prompt_tokens) summary->prompt_tokens = before.prompt;
  if (summary->completion_tokens) *summary->completion_tokens += before.output;
  if (summary->cached_tokens) summary->cached_tokens = std::min(*summary->cached_tokens, before.prompt);
}

void ContinuedStream::Record() {
  request_.info.keepalives += wait_.comments();
  record_.AddTo(&request_.info, machine_, wait_.longest_ns(), &thread_);
}

}  // namespace vllm_router
