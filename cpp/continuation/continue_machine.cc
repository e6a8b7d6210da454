#include "continuation/continue_machine.h"

#include <iterator>

namespace vllm_router {
namespace {

constexpr std::string_view kEventNames[] = {
    "old_spoke",   "old_ended",   "old_lost",    "old_aborted", "old_timeout", "drain",      "stall",
    "admitted",    "no_target",   "wait_over",   "new_receipt", "new_unfit",   "new_failed", "new_lost",
    "new_timeout", "new_matched", "new_differs", "new_short",   "suspected",   "client_gone"};
static_assert(std::size(kEventNames) == kContinueEventCount);

constexpr std::string_view kActionNames[] = {
    "report_loss", "cancel_seek", "close_new", "release_slot", "close_old", "pause_old", "resume_old",
    "promote",     "seek",        "open",      "finish",       "write_end", "cut"};
static_assert(std::size(kActionNames) == kContinueActionCount);

constexpr std::string_view kCutNames[] = {"none",      "not_eligible", "max",     "lost_again", "suspected",
                                          "no_worker", "wait",         "receipt", "diverged"};
static_assert(std::size(kCutNames) == kContinueCutCount);

}  // namespace

std::string_view ContinueEventName(ContinueEventType type) { return kEventNames[static_cast<size_t>(type)]; }
std::string_view ContinueActionName(ContinueAction action) {
  return kActionNames[static_cast<size_t>(action)];
}
std::string_view ContinueCutName(ContinueCut why) { return kCutNames[static_cast<size_t>(why)]; }

ContinueActions ContinueMachine::Step(const ContinueEvent& event) {
  if (over()) return {};
  switch (event.type) {
    case ContinueEventType::kOldSpoke:
    case ContinueEventType::kOldEnded:
    case ContinueEventType::kOldLost:
    case ContinueEventType::kOldAborted:
    case ContinueEventType::kOldTimeout:
      OnOld(event);
      break;
    case ContinueEventType::kDrain:
      OnHandover(ContinueLeg::kRead, event.methods);
      break;
    case ContinueEventType::kStall:
      OnHandover(ContinueLeg::kSilent, event.methods);
      break;
    case ContinueEventType::kAdmitted:
    case ContinueEventType::kNoTarget:
    case ContinueEventType::kWaitOver:
      OnSeek(event.type);
      break;
    case ContinueEventType::kNewReceipt:
    case ContinueEventType::kNewUnfit:
    case ContinueEventType::kNewFailed:
    case ContinueEventType::kNewLost:
    case ContinueEventType::kNewTimeout:
    case ContinueEventType::kNewMatched:
    case ContinueEventType::kNewDiffers:
    case ContinueEventType::kNewShort:
      OnNew(event.type);
      break;
    case ContinueEventType::kSuspected:
      OnSuspected();
      break;
    case ContinueEventType::kClientGone:
      OnClientGone();
      break;
  }
  const ContinueActions actions = actions_;
  actions_ = {};
  return actions;
}

// ---- the old stream

void ContinueMachine::OnOld(const ContinueEvent& event) {
  if (old_ == ContinueLeg::kNone) return;
  if (state_ == ContinueState::kLive) now_ = event.methods;
  switch (event.type) {
    case ContinueEventType::kOldSpoke:
      if (!is_handover() || old_ != ContinueLeg::kSilent) return;
      StopNew();
      return KeepOld();
    case ContinueEventType::kOldEnded:
      if (old_ == ContinueLeg::kPaused) return;  // it is not read
      StopNew();
      old_ = ContinueLeg::kNone;
      state_ = ContinueState::kWhole;
      return Do(ContinueAction::kFinish);
    case ContinueEventType::kOldLost:
      CountLoss();
      return LeaveOld(event.complete);
    case ContinueEventType::kOldTimeout:
      Do(ContinueAction::kCloseOld);
      return LeaveOld(event.complete);
    default:
      return LeaveOld(event.complete);
  }
}

void ContinueMachine::LeaveOld(bool complete) {
  old_ = ContinueLeg::kNone;
  if (complete) {
    StopNew();
    state_ = ContinueState::kWhole;
    return Do(ContinueAction::kWriteEnd);
  }
  // A hand-over goes on as a continuation: it began without a loss, so one more is permitted.
  if (has_new()) ++continuations_;
  if (state_ == ContinueState::kLive) ContinueOrCut();
}

void ContinueMachine::OnHandover(ContinueLeg old, ContinueMethods methods) {
  if (state_ != ContinueState::kLive) return;
  now_ = methods;
  // Two workers have the request meanwhile, and both may be lost with it.
  const bool may_lose_both = losses_ == 0 && max_losses_ > 0;
  if (!may_lose_both || WhyNot() != ContinueCut::kNone) return;
  old_ = old;
  state_ = ContinueState::kSeeking;
  Do(ContinueAction::kSeek);
}

// ---- the new one

void ContinueMachine::OnSeek(ContinueEventType type) {
  if (state_ != ContinueState::kSeeking) return;
  if (type == ContinueEventType::kAdmitted) {
    state_ = ContinueState::kOpening;
    if (old_ == ContinueLeg::kNone) ++continuations_;
    return Do(ContinueAction::kOpen);
  }
  if (old_ != ContinueLeg::kNone) return KeepOld();
  Cut(type == ContinueEventType::kNoTarget ? ContinueCut::kNoWorker : ContinueCut::kWait);
}

void ContinueMachine::OnNew(ContinueEventType type) {
  if (!has_new()) return;
  const bool is_verifying = state_ == ContinueState::kVerifying;
  switch (type) {
    case ContinueEventType::kNewReceipt:
      if (is_verifying) return;
      Do(ContinueAction::kReleaseSlot);
      state_ = ContinueState::kVerifying;
      return;
    case ContinueEventType::kNewUnfit:
      Do(ContinueAction::kCloseNew);
      DropMethod(ContinueCut::kReceipt);
      break;
    case ContinueEventType::kNewFailed:
      break;
    case ContinueEventType::kNewLost:
      CountLoss();
      break;
    case ContinueEventType::kNewTimeout:
      Do(ContinueAction::kCloseNew);
      break;
    case ContinueEventType::kNewMatched:
      if (is_verifying) OnMatched();
      return;
    case ContinueEventType::kNewDiffers:
      if (!is_verifying) return;
      Do(ContinueAction::kCloseNew);
      DropMethod(ContinueCut::kDiverged);
      break;
    case ContinueEventType::kNewShort:
      if (!is_verifying) return;
      DropMethod(ContinueCut::kDiverged);
      break;
    default:
      return;
  }
  EndNew();
  AfterAttempt();
}

void ContinueMachine::OnMatched() {
  if (old_ == ContinueLeg::kRead) {  // which may have said more meanwhile
    old_ = ContinueLeg::kPaused;
    return Do(ContinueAction::kPauseOld);
  }
  if (old_ != ContinueLeg::kNone) {
    ++continuations_;
    Do(ContinueAction::kCloseOld);
  }
  old_ = ContinueLeg::kRead;
  state_ = ContinueState::kLive;
  Do(ContinueAction::kPromote);
}

// ---- the request

void ContinueMachine::OnSuspected() {
  left_ = {};
  none_left_ = ContinueCut::kSuspected;
  if (state_ == ContinueState::kLive) return;
  StopNew();
  AfterAttempt();
}

void ContinueMachine::OnClientGone() {
  StopNew();
  if (old_ != ContinueLeg::kNone) Do(ContinueAction::kCloseOld);
  old_ = ContinueLeg::kNone;
  state_ = ContinueState::kGone;
}

// ---- what the above is made of

void ContinueMachine::CountLoss() {
  ++losses_;
  Do(ContinueAction::kReportLoss);
}

void ContinueMachine::DropMethod(ContinueCut why) {
  left_.Remove(method());
  none_left_ = why;
}

// Its connection is over.
void ContinueMachine::EndNew() {
  if (holds_slot()) Do(ContinueAction::kReleaseSlot);
}

void ContinueMachine::StopNew() {
  if (state_ == ContinueState::kSeeking) Do(ContinueAction::kCancelSeek);
  if (has_new()) Do(ContinueAction::kCloseNew);
  EndNew();
}

void ContinueMachine::KeepOld() {
  if (old_ == ContinueLeg::kPaused) Do(ContinueAction::kResumeOld);
  old_ = ContinueLeg::kRead;
  state_ = ContinueState::kLive;
}

void ContinueMachine::AfterAttempt() {
  if (old_ != ContinueLeg::kNone) return KeepOld();
  ContinueOrCut();
}

void ContinueMachine::ContinueOrCut() {
  const ContinueCut why = WhyNot();
  if (why != ContinueCut::kNone) return Cut(why);
  state_ = ContinueState::kSeeking;
  Do(ContinueAction::kSeek);
}

ContinueCut ContinueMachine::WhyNot() const {
  if (left_.empty()) return none_left_;
  if (losses_ > max_losses_) return ContinueCut::kLostAgain;
  if (methods().empty()) return ContinueCut::kNotEligible;
  return continuations_ < max_continuations_ ? ContinueCut::kNone : ContinueCut::kMax;
}

void ContinueMachine::Cut(ContinueCut why) {
  why_ = why;
  state_ = ContinueState::kCut;
  Do(ContinueAction::kCut);
}

}  // namespace vllm_router
