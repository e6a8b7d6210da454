#include "disaggregation/pd_machine.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "worker/circuit_breaker.h"

namespace vllm_router {
namespace {

constexpr std::string_view kEventNames[] = {
    "planned",       "no_other_pair", "no_retry",      "p_ok_whole",    "p_ok_without", "p_too_large",
    "p_over_budget", "p_rejected",    "p_busy",        "p_error",       "p_unreached",  "p_lost",
    "p_timeout",     "d_sent",        "d_head",        "d_first_byte",  "d_done",       "d_rejected",
    "d_busy",        "d_error",       "d_error_event", "d_engine_dead", "d_unreached",  "d_ineligible",
    "d_lost",        "d_timeout",     "client_gone",   "handoff_late",  "grace_over",   "keep_over"};
static_assert(std::size(kEventNames) == kPdEventCount);

constexpr std::string_view kActionNames[] = {
    "p_failed",     "p_succeeded",    "d_failed",     "d_succeeded", "close_d",        "keep_d",
    "close_p",      "keep_p",         "release_p",    "release_d",   "make_claim",     "redeem_claim",
    "reject_claim", "expire_claim",   "orphan_claim", "reuse_claim", "learn_identity", "open_p",
    "open_d_with",  "open_d_without", "commit",       "respond_p",   "respond_d",      "respond_502",
    "respond_503",  "respond_504",    "retry"};
static_assert(std::size(kActionNames) == kPdActionCount);

}  // namespace

std::string_view PdEventName(PdEventType type) { return kEventNames[static_cast<size_t>(type)]; }
std::string_view PdActionName(PdAction action) { return kActionNames[static_cast<size_t>(action)]; }

PdResponseClass PdResponseClassOf(int status, bool has_retry_after) {
  if (status / 100 == 2) return PdResponseClass::kOk;
  if (status == 501 || status == 505) return PdResponseClass::kRejected;
  switch (VerdictOf(status, has_retry_after)) {
    case BreakerResult::kNeutral:
      return PdResponseClass::kBusy;
    case BreakerResult::kSuccess:
      return PdResponseClass::kRejected;
    default:
      return PdResponseClass::kError;
  }
}

PdActions PdMachine::Step(const PdEvent& event) {
  if (over()) return {};
  const PdEventType type = event.type;
  if (type >= PdEventType::kPOkWhole && type <= PdEventType::kPTimeout) {
    if (IsLive(p_)) OnP(event);
  } else if (type >= PdEventType::kDSent && type <= PdEventType::kDTimeout) {
    if (IsLive(d_)) OnD(event);
  } else {
    OnOther(event);
  }
  return std::exchange(actions_, {});
}

void PdMachine::OnOther(const PdEvent& event) {
  switch (event.type) {
    case PdEventType::kPlanned:
      return OnPlanned(event.plan);
    case PdEventType::kNoOtherPair:
      if (choosing_ && event.p_unreached && p_ == PdLeg::kFailed) transfer_failed_ = true;  // it never began
      return OnNoOtherPair();
    case PdEventType::kNoRetry:
      if (choosing_) Conclude();
      return;
    case PdEventType::kHandoffLate:
      return OnHandoffLate();
    case PdEventType::kGraceOver:
      return OnGraceOver();
    case PdEventType::kKeepOver:
      return OnKeepOver();
    default:
      if (!responded_) OnClientGone(event.p_readable);
  }
}

// ---- choosing

void PdMachine::OnPlanned(const PdAttempt& plan) {
  ROUTER_CHECK(choosing_, "a plan comes when the machine is choosing");
  ROUTER_CHECK(plan.kind != PdAttemptKind::kDecodeOnly || claim_, "decode alone needs a claim or is local");
  ROUTER_CHECK(plan.kind == PdAttemptKind::kLocal || !is_local(), "a request that is local stays local");
  choosing_ = false;
  attempt_ = plan;
  if (!plan.decode_can_prefill) alone_ = Alone::kNever;
  p_ = d_ = PdLeg::kIdle;
  parameters_ = d_sent_ = false;
  d_ticket_ = true;
  if (plan.kind == PdAttemptKind::kDecodeOnly) {
    Do(PdAction::kReuseClaim);
    return OpenD(/*with_parameters=*/true);
  }
  EndClaim(PdAction::kOrphanClaim);
  if (plan.kind == PdAttemptKind::kLocal || plan.kind == PdAttemptKind::kBypass) {
    ROUTER_CHECK(may_be_alone(), "this decode worker cannot prefill by itself");
    if (plan.kind == PdAttemptKind::kLocal) alone_ = Alone::kMust;
    return OpenD(/*with_parameters=*/false);
  }
  p_ticket_ = true;
  p_ = PdLeg::kOpen;
  Do(PdAction::kOpenP);
  if (attempt_.order != PdOrder::kSerial) OpenD(/*with_parameters=*/true);
}

// D can compute the prompt itself, and a transfer that failed says little about either worker.
void PdMachine::OnNoOtherPair() {
  if (!choosing_) return;
  if (!transfer_failed_ || is_local() || !may_be_alone()) return Conclude();
  alone_ = Alone::kMust;
  retry_ = {.next = PdAttemptKind::kLocal};
  Do(PdAction::kRetry);
}

// ---- P

void PdMachine::OnP(const PdEvent& event) {
  switch (event.type) {
    case PdEventType::kPOkWhole:
    case PdEventType::kPOkWithout:
    case PdEventType::kPTooLarge:
      return OnPSuccess(event.type);
    case PdEventType::kPOverBudget:
      return OnPOverBudget();
    case PdEventType::kPRejected:
    case PdEventType::kPBusy:
    case PdEventType::kPError:
      return OnPStatus(event.type);
    case PdEventType::kPTimeout:
      return OnPTimeout();
    default:
      return OnPLost(event);
  }
}

void PdMachine::OnPSuccess(PdEventType type) {
  const bool kept = p_ == PdLeg::kKept;
  const bool too_large = type == PdEventType::kPTooLarge;
  if (!kept && !too_large) Do(PdAction::kPSucceeded);
  EndP(PdLeg::kOk);
  const bool whole = type == PdEventType::kPOkWhole;
  if (whole && attempt_.order != PdOrder::kSglang) Do(PdAction::kLearnIdentity);
  // If D has its parameters already, a response over the limit is read on, and dropped.
  if (attempt_.order != PdOrder::kSerial) return;
  if (too_large) {
    Do(PdAction::kCloseP);
    p_ = PdLeg::kClosed;
  }
  if (whole) {
    claim_ = true;
    Do(PdAction::kMakeClaim);
  }
  if (waits()) return OpenD(/*with_parameters=*/claim_);
  EndClaim(PdAction::kOrphanClaim);
}

void PdMachine::OnPOverBudget() {
  if (!waits()) return OnPSuccess(PdEventType::kPTooLarge);
  StopP(d_sent_);
  CloseD();
  Do(PdAction::kRespond503);
  responded_ = true;
}

void PdMachine::OnPStatus(PdEventType type) {
  if (p_ == PdLeg::kOpen && type == PdEventType::kPRejected) Do(PdAction::kPSucceeded);
  if (p_ == PdLeg::kOpen && type == PdEventType::kPError) Do(PdAction::kPFailed);
  EndP(PdLeg::kFailed);
  CloseD();  // no blocks come, or wrong ones
  if (!waits()) {
    responded_ = true;
    return;
  }
  SetLast(Last::kP);
  if (type == PdEventType::kPRejected) return Conclude();
  EndAttempt({.next = Next(), .exclude_p = true});
}

void PdMachine::OnPLost(const PdEvent& event) {
  if (p_ == PdLeg::kOpen) Do(PdAction::kPFailed);
  EndP(PdLeg::kFailed);
  if (!waits()) return;  // D has its blocks, or waits for its grace
  CloseD();
  SetLast(event.timed_out ? Last::kTimeout : Last::kBadGateway);
  EndAttempt({.next = Next(), .exclude_p = true});
}

void PdMachine::OnPTimeout() {
  if (p_ == PdLeg::kKept) return;  // kept legs have a limit of their own
  Do(PdAction::kPFailed);
  StopP(/*d_waited=*/waits() && d_sent_);
  if (!waits()) return;
  CloseD();
  SetLast(Last::kTimeout);
  EndAttempt({.next = Next(), .exclude_p = true});
}

// ---- D

void PdMachine::OnD(const PdEvent& event) {
  const PdEventType type = event.type;
  // A response that flows is relayed, with the errors that it contains.
  const bool of_response = type >= PdEventType::kDHead && type <= PdEventType::kDEngineDead;
  if (flows() && of_response && type != PdEventType::kDDone) return;
  switch (type) {
    case PdEventType::kDSent:
      d_sent_ = true;
      return;
    case PdEventType::kDHead:
      return OnDHead();
    case PdEventType::kDFirstByte:
      return OnDFirstByte();
    case PdEventType::kDDone:
      return OnDDone(event.server_error);
    case PdEventType::kDRejected:
      return OnDRejected();
    case PdEventType::kDBusy:
      return OnDBusy();
    case PdEventType::kDError:
    case PdEventType::kDErrorEvent:
      return OnDError();
    case PdEventType::kDEngineDead:
      return OnDLost(Last::kD);
    case PdEventType::kDIneligible:
      if (d_sent_) return;
      [[fallthrough]];
    case PdEventType::kDUnreached:
      return OnDUnreached(event);
    case PdEventType::kDTimeout:
      return OnDTimeout();
    default:
      return OnDLost(Last::kBadGateway);
  }
}

void PdMachine::OnDHead() {
  if (d_ != PdLeg::kOpen) return;
  d_sent_ = true;
  d_ = PdLeg::kHead;
}

void PdMachine::OnDFirstByte() {
  d_sent_ = true;
  EndClaim(PdAction::kRedeemClaim);
  if (waits()) return Commit();
  CloseD();  // its blocks have arrived, and no client waits for tokens
}

void PdMachine::OnDDone(bool server_error) {
  EndClaim(PdAction::kRedeemClaim);
  const bool kept = d_ == PdLeg::kKept;
  EndD(PdLeg::kDone);
  if (kept) return;
  Do(server_error ? PdAction::kDFailed : PdAction::kDSucceeded);
  if (waits()) Commit();  // without a body
  responded_ = true;
  if (p_ == PdLeg::kOpen) KeepP();
}

void PdMachine::OnDRejected() {
  EndClaim(PdAction::kRejectClaim);
  const bool kept = d_ == PdLeg::kKept;
  EndD(PdLeg::kFailed);
  if (kept) return;
  Do(PdAction::kDSucceeded);
  StopP(/*d_waited=*/false);
  SetLast(Last::kD);
  Conclude();
}

void PdMachine::OnDBusy() {
  EndClaim(PdAction::kExpireClaim);
  const bool kept = d_ == PdLeg::kKept;
  EndD(PdLeg::kFailed);
  if (kept) return;
  StopP(/*d_waited=*/false);
  SetLast(Last::kD);
  EndAttempt({.next = Next(), .exclude_d = true, .prefer_p = true});
}

// With parameters it is taken for a failed transfer: those of P, D and the way between look alike.
void PdMachine::OnDError() {
  EndClaim(PdAction::kExpireClaim);
  const bool kept = d_ == PdLeg::kKept;
  EndD(PdLeg::kFailed);
  if (kept) return;
  if (!parameters_) Do(PdAction::kDFailed);
  StopP(/*d_waited=*/false);
  SetLast(Last::kD);
  transfer_failed_ |= parameters_;
  EndAttempt({.next = Next(), .exclude_p = parameters_, .exclude_d = true, .prefer_p = !parameters_});
}

// If a byte had left on an earlier connection, this D may have died of the request.
void PdMachine::OnDUnreached(const PdEvent& event) {
  if (d_sent_) return OnDLost(event.timed_out ? Last::kTimeout : Last::kBadGateway);
  const bool counted = event.type != PdEventType::kDIneligible;
  if (counted) {
    Do(PdAction::kDFailed);
    SetLast(event.timed_out ? Last::kTimeout : Last::kBadGateway);
  }
  EndD(PdLeg::kFailed);
  StopP(/*d_waited=*/false);
  if (claim_ && attempt_.rebindable) {
    return EndAttempt({.next = PdAttemptKind::kDecodeOnly, .exclude_d = true, .counted = counted});
  }
  EndClaim(PdAction::kOrphanClaim);
  EndAttempt({.next = Next(), .exclude_d = true, .prefer_p = true, .counted = counted});
}

// The request may have ended its engine. It gets one more, without parameters.
void PdMachine::OnDLost(Last last) {
  EndClaim(PdAction::kExpireClaim);
  const bool kept = d_ == PdLeg::kKept;
  EndD(PdLeg::kFailed);
  if (kept) return;
  Do(PdAction::kDFailed);
  StopP(/*d_waited=*/false);
  if (flows()) {
    responded_ = true;
    return;
  }
  SetLast(last);
  const bool repeatable = !d_lost_ && may_be_alone();
  d_lost_ = true;
  if (!repeatable) return Conclude();
  alone_ = Alone::kMust;
  EndAttempt({.next = PdAttemptKind::kLocal, .exclude_p = true, .exclude_d = true});
}

void PdMachine::OnDTimeout() {
  if (d_ == PdLeg::kKept) return;
  if (!d_sent_) {
    Do(PdAction::kCloseD);
    return OnDUnreached({.type = PdEventType::kDUnreached, .timed_out = true});
  }
  // Nothing at D ends its wait for a P that has stopped.
  const bool transfer = waits() && parameters_;
  if (!transfer) Do(PdAction::kDFailed);
  EndClaim(PdAction::kExpireClaim);
  StopP(/*d_waited=*/waits());
  CloseD();
  if (flows()) {
    responded_ = true;
    return;
  }
  SetLast(Last::kTimeout);
  transfer_failed_ |= parameters_;
  EndAttempt({.next = Next(), .exclude_p = parameters_, .exclude_d = true, .prefer_p = !parameters_});
}

// ---- the client, times

void PdMachine::OnClientGone(bool p_readable) {
  const bool transfer_waits = waits() && d_sent_ && parameters_ && attempt_.order != PdOrder::kSglang;
  client_ = PdClient::kGone;
  responded_ = true;
  choosing_ = false;
  if (attempt_.order == PdOrder::kSerial && p_ == PdLeg::kOpen && p_readable) {
    KeepP();
  } else {
    StopP(d_sent_);
  }
  if (transfer_waits && IsLive(d_)) {
    d_ = PdLeg::kKept;
    Do(PdAction::kKeepD);
  } else {
    CloseD();
    EndClaim(PdAction::kOrphanClaim);
  }
}

void PdMachine::OnHandoffLate() {
  if (!claim_ || d_sent_ || responded_) return;
  EndClaim(PdAction::kExpireClaim);
  if (choosing_) {
    retry_.next = Next();
    return;
  }
  CloseD();  // so long it did not take its request
  EndAttempt({.next = Next(), .exclude_d = true, .prefer_p = true});
}

void PdMachine::OnGraceOver() {
  if (d_ != PdLeg::kKept) return;
  CloseD();
  EndClaim(PdAction::kExpireClaim);
}

void PdMachine::OnKeepOver() {
  if (p_ == PdLeg::kKept) {
    Do(PdAction::kCloseP);
    EndP(PdLeg::kClosed);
  }
  OnGraceOver();
}

// ---- what the above is made of

void PdMachine::OpenD(bool with_parameters) {
  d_ = PdLeg::kOpen;
  parameters_ = with_parameters;
  Do(with_parameters ? PdAction::kOpenDWith : PdAction::kOpenDWithout);
}

// The leg is over, or was never opened; its ticket goes back.
void PdMachine::EndD(PdLeg how) {
  if (IsLive(d_)) d_ = how;
  if (d_ticket_) Do(PdAction::kReleaseD);
  d_ticket_ = false;
}

void PdMachine::CloseD() {
  if (IsLive(d_)) Do(PdAction::kCloseD);
  EndD(PdLeg::kClosed);
}

void PdMachine::EndP(PdLeg how) {
  if (IsLive(p_)) p_ = how;
  if (p_ticket_) Do(PdAction::kReleaseP);
  p_ticket_ = false;
}

// P's prefill is of no use any more. `d_waited`: a D that has the request is closed beside it, not by
// its own choice; vLLM's blocks at D may stay held if both are closed.
void PdMachine::StopP(bool d_waited) {
  if (p_ != PdLeg::kOpen) return;
  const bool needed =
      attempt_.order == PdOrder::kConcurrent && d_waited && cancel_prefill_ == PdCancelPrefill::kAuto;
  if (needed || cancel_prefill_ == PdCancelPrefill::kNever) return KeepP();
  Do(PdAction::kCloseP);
  EndP(PdLeg::kClosed);
}

void PdMachine::KeepP() {
  p_ = PdLeg::kKept;
  Do(PdAction::kKeepP);
}

void PdMachine::EndClaim(PdAction how) {
  if (claim_) Do(how);
  claim_ = false;
}

void PdMachine::Commit() {
  client_ = PdClient::kBegun;
  Do(PdAction::kCommit);
  if (d_ == PdLeg::kOpen) d_ = PdLeg::kHead;
}

// A worker's response is better than the router's own, even if it is of an earlier attempt.
void PdMachine::SetLast(Last last) {
  const bool own = last == Last::kBadGateway || last == Last::kTimeout;
  if (own && (last_ == Last::kP || last_ == Last::kD)) return;
  last_ = last;
}

void PdMachine::EndAttempt(const PdRetry& retry) {
  if (p_ == PdLeg::kKept) return Conclude();  // its ticket is still out
  retry_ = retry;
  choosing_ = true;
  Do(PdAction::kRetry);
}

void PdMachine::Conclude() {
  constexpr PdAction kResponses[] = {
      PdAction::kRespond503, PdAction::kRespondP, PdAction::kRespondD, PdAction::kRespond502,
      PdAction::kRespond504};
  EndClaim(PdAction::kOrphanClaim);
  Do(kResponses[static_cast<size_t>(last_)]);
  choosing_ = false;
  responded_ = true;
}

}  // namespace vllm_router
