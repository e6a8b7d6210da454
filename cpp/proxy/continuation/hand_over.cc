#include "proxy/continuation/hand_over.h"

#include <algorithm>
#include <utility>

#include "base/time_units.h"
#include "proxy/api/error_response.h"
#include "proxy/api/settings.h"
#include "proxy/continuation/client_wait.h"
#include "proxy/continuation/continuation_sink.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// From one that came to nothing to the next.
constexpr int64_t kPauseNs = kNanosPerSecond;
// Second runs of a stream that computed its prompt for nothing; there is no further one.
constexpr uint8_t kMostFailed = 3;
// Of a second run, while the first may go on instead.
constexpr int64_t kMostSilentMs = 10'000;

// How one ended, by the last event that counted.
std::string_view EndName(ContinueEventType last) {
  switch (last) {
    case ContinueEventType::kNewMatched:
      return "moved";
    case ContinueEventType::kOldEnded:
      return "first_ended";
    case ContinueEventType::kOldSpoke:
      return "first_spoke";
    case ContinueEventType::kNoTarget:
      return "no_worker";
    case ContinueEventType::kNewDiffers:
    case ContinueEventType::kNewShort:
      return "diverged";
    case ContinueEventType::kClientGone:
      return "client_gone";
    default:
      return "failed";
  }
}

bool IsOfOver(ContinueEventType type) {
  return type == ContinueEventType::kNoTarget || type == ContinueEventType::kNewShort ||
         type == ContinueEventType::kNewFailed || type == ContinueEventType::kNewLost;
}

}  // namespace

BodySink& HandOver::BeginRelays(ContinuationSink& sink) {
  sink_ = &sink;
  ArmStall();
  return gate_.emplace(
      request_.thread.loop, request_.scope, sink,
      PausableSink::Hook{.spoke = &HandOver::OnFirstSpoke, .context = this});
}

void HandOver::Begin(StreamCut why) {
  if (!MayBegin() || !HasRoomElsewhere()) return;
  const ContinueEventType event =
      why == StreamCut::kStalled ? ContinueEventType::kStall : ContinueEventType::kDrain;
  if (!machine_.Step({.type = event, .methods = RerunAlone()}).Has(ContinueAction::kSeek)) return;
  why_ = why;
  took_over_ = dropped_ = lost_ = false;
  second_ = std::make_unique<SecondRun>(request_, thread_);
  running_ = true;
  Spawn(Run());
}

// None is under way, nor has one taken over whose relay is yet to begin. No worker was lost with the request, also before
// the first byte: it may be what ends workers, and two have it meanwhile.
bool HandOver::MayBegin() const {
  if (second_ != nullptr || failed_ >= kMostFailed || sink_->bytes() > SecondRun::kMostBytes) return false;
  const auto& made = request_.info.attempts_made;
  const bool any_lost = std::ranges::any_of(made, [](const AttemptInfo& attempt) {
    return attempt.error == ErrorOf(HttpError::kWorkerClosed).code;
  });
  return gate_.has_value() && request_.relaying && !request_.is_cancelled() && sink_->may_continue() &&
         sink_->ending() == EventGate::Ending::kNone && request_.attempts->sent() && !any_lost &&
         request_.thread.clock.NowNanos() >= not_before_ns_;
}

bool HandOver::HasRoomElsewhere() const {
  const RequestInfo& info = request_.info;
  const auto fleet = FleetFor(request_.thread, request_.workers.model.get(), request_.workers.first_stage());
  return std::ranges::any_of(fleet->eligible(), [&info, &fleet](uint32_t position) {
    const Worker& worker = fleet->worker(position);
    const bool was_attempted = std::ranges::any_of(info.attempts_made, [&worker](const AttemptInfo& attempt) {
      return attempt.worker->id == worker.id && !attempt.beside;
    });
    return worker.id != info.worker->id && !was_attempted && RerunAttempts::HasRoomBeside(worker);
  });
}

Task<void> HandOver::Run() {
  co_await RunBeside();
  if (!took_over_) {
    if (second_->begun()) ++failed_;
    co_await second_->Drop(lost_);
    second_.reset();
    not_before_ns_ = request_.thread.clock.NowNanos() + kPauseNs;
  }
  running_ = false;
  ended_.Notify();
}

Task<void> HandOver::RunBeside() {
  const OnCancel leave(request_.scope, [this] { second_->Cancel(); });
  if (why_ == StreamCut::kStalled) wait_.Begin(*sink_);
  const AttemptFailure how = why_ == StreamCut::kStalled ? AttemptFailure::kMoved : AttemptFailure::kDrained;
  const bool began = co_await second_->Begin({.how = how}, request_.info.worker, request_.info.sent_ns);
  if (request_.is_cancelled()) {
    Step(ContinueEventType::kClientGone);
    co_return;
  }
  if (dropped_) co_return;
  if (!began && machine_.old_leg() == ContinueLeg::kNone) {
    dropped_ = true;  // the search goes on, at workers without room for a second run as well
    Count(ContinueEventType::kNoTarget);
    co_return;
  }
  Step(began ? ContinueEventType::kAdmitted : ContinueEventType::kNoTarget);
  if (dropped_) co_return;
  Step(ContinueEventType::kNewReceipt);
  Compare();
  while (!dropped_ && !took_over_) {
    const bool may_go_back = machine_.old_leg() != ContinueLeg::kNone;
    const int64_t idle_ms = request_.settings.stream_idle_timeout_ms;
    const SecondRun::Got got = co_await second_->Read(may_go_back ? kMostSilentMs : idle_ms);
    if (request_.is_cancelled()) {
      if (!took_over_) Step(ContinueEventType::kClientGone);
      co_return;
    }
    if (dropped_ || took_over_) co_return;
    if (got == SecondRun::Got::kTooMuch) failed_ = kMostFailed;
    if (got == SecondRun::Got::kMore) {
      StepByState();
    } else {
      Step(got == SecondRun::Got::kLost ? ContinueEventType::kNewLost : ContinueEventType::kNewTimeout);
    }
  }
}

// With all that the client has now.
void HandOver::Compare() {
  if (!sink_->may_continue()) return Step(ContinueEventType::kNewTimeout);
  second_->Compare(sink_->delivered());
  StepByState();
}

void HandOver::StepByState() {
  switch (second_->state()) {
    case SecondRun::State::kBehind:
      return;
    case SecondRun::State::kDiffers:
      return Step(ContinueEventType::kNewDiffers);
    case SecondRun::State::kShort:
      return Step(ContinueEventType::kNewShort);
    case SecondRun::State::kFailed:
      return Step(ContinueEventType::kNewFailed);
    case SecondRun::State::kCaughtUp:
      break;
  }
  const bool leaves = machine_.old_leg() != ContinueLeg::kNone && second_->IsLeaving();
  if (leaves || !sink_->may_continue()) return Step(ContinueEventType::kNewTimeout);
  Step(ContinueEventType::kNewMatched);
  if (!took_over_ && !dropped_) Compare();  // the first stands still now
}

// Events of a second run that is over are none.
void HandOver::Step(ContinueEventType type) {
  const bool was_over = dropped_ || took_over_;
  if (IsOfOver(type)) Do(ContinueAction::kCloseNew);  // what is left of it
  for (const ContinueAction action : machine_.Step({.type = type, .methods = RerunAlone()})) {
    if (action == ContinueAction::kReportLoss) lost_ = type == ContinueEventType::kNewLost;
    Do(action);
  }
  if (was_over || !(dropped_ || took_over_)) return;
  Count(type);
  if (!took_over_ && request_.relaying) wait_.End();
}

void HandOver::Do(ContinueAction action) {
  switch (action) {
    case ContinueAction::kCancelSeek:
    case ContinueAction::kCloseNew:
      dropped_ = true;
      second_->Cancel();
      return;
    case ContinueAction::kPauseOld:
      gate_->Pause();
      wait_.Begin(*sink_);
      return;
    case ContinueAction::kResumeOld:
      gate_->Open();
      return;
    case ContinueAction::kPromote:
      return TakeOver();
    // The first one's loss and its end are its relay's, and what it ended with is the ContinuedStream's.
    case ContinueAction::kReportLoss:
    case ContinueAction::kCloseOld:
    case ContinueAction::kReleaseSlot:
    case ContinueAction::kSeek:
    case ContinueAction::kOpen:
    case ContinueAction::kFinish:
    case ContinueAction::kWriteEnd:
    case ContinueAction::kCut:
      return;
  }
}

void HandOver::TakeOver() {
  took_over_ = true;
  second_->Interrupt();
  LetFirstEnd();
  if (request_.relaying) request_.attempts->response().socket().Close();
}

void HandOver::LetFirstEnd() {
  if (gate_) gate_->Close();
}

Task<bool> HandOver::FirstEnded(ContinueEventType how) {
  if (!took_over_) Step(how);
  if (!took_over_ && !dropped_ && machine_.state() == ContinueState::kVerifying) Compare();
  while (running_) co_await ended_;
  co_return took_over_;
}

std::unique_ptr<RerunAttempts> HandOver::TakeAttempts() {
  took_over_ = false;
  std::unique_ptr<RerunAttempts> attempts = second_->TakeAttempts();
  second_.reset();
  return attempts;
}

void HandOver::FollowNext() {
  if (!gate_) return;
  gate_->Open();
  ArmStall();
}

Task<void> HandOver::End() {
  stall_due_.Disarm();
  if (running_ && !took_over_ && !dropped_) Step(ContinueEventType::kClientGone);
  while (running_) co_await ended_;
  if (second_ == nullptr) co_return;
  co_await second_->Drop(/*lost=*/false);  // it took over, and nothing follows
  second_.reset();
}

void HandOver::Count(ContinueEventType last) {
  LabeledCounters& counters = why_ == StreamCut::kStalled ? thread_.stall_handovers : thread_.drain_handovers;
  const bool lacks_retries = second_->attempts().why_not() == RerunAttempts::WhyNot::kRetries;
  counters.Add(last == ContinueEventType::kNoTarget && lacks_retries ? "retries" : EndName(last));
}

void HandOver::ArmStall() {
  stall_due_.Arm(
      request_.thread.loop.timers(), request_.settings.continuation.stall_ms, &HandOver::OnStalled, this);
}

void HandOver::OnFirstSpoke(void* self) {
  auto& hand_over = *static_cast<HandOver*>(self);
  hand_over.ArmStall();
  if (hand_over.running_ && !hand_over.took_over_ && !hand_over.dropped_) {
    hand_over.Step(ContinueEventType::kOldSpoke);
  }
}

// A client that takes nothing makes its worker wait, too.
void HandOver::OnStalled(void* self) {
  auto& hand_over = *static_cast<HandOver*>(self);
  hand_over.ArmStall();
  if (!hand_over.gate_->waits()) hand_over.Begin(StreamCut::kStalled);
}

}  // namespace vllm_router
