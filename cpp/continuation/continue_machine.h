// ContinueMachine: the life cycle of one stream that may go on at another worker after its own is lost, stalls or drains.
// What happened goes in as an event, what has to be done comes out as actions:
//
//   ContinueMachine machine({.methods = …, .max_continuations = 2, .max_losses = 1, .losses = 0});
//   for (const ContinueAction action : machine.Step({.type = ContinueEventType::kOldLost})) {
//     switch (action) { … }                                   // in this order, which is the enum's
//   }
//
//   live ──lost, aborted, timeout──▶ seeking ──admitted──▶ opening ──receipt──▶ verifying ──matched──▶ live
//    │ ╲                               ▲  │ no target           │ failed, lost      │ differs, lost
//    │  ╲─drain, stall: the old        │  └─▶ cut               └──────┬────────────┘
//    │     stream stays open ──────────┘                               └─▶ seeking again, live again, or cut
//    └─ended─▶ whole                                 any ─client gone─▶ gone
//
// There are at most two connections: the old stream, which the client has been getting, and the new one. A hand-over
// (drain, stall) keeps the old stream until the new one has matched, which makes the new one the old:
//
//   drain   old read ──matched──▶ old paused ──matched──▶ live     what the client has grows until the pause
//   stall   old silent ──matched──▶ live                           if the old one speaks, the new one is closed
//
// Whatever fails meanwhile, the old stream goes on. So a drain or a false alarm costs no stream.
//
// A slot is the permission to open one continuation at a target, of which a target has few; it is held until the
// receipt, the first event of the new stream.
//
// Limits. At most max_continuations are opened; a hand-over counts once the old stream is over, since one that comes to
// nothing is no reason to cut a stream. At most 1 + max_losses workers are lost with the stream, for the request
// may be what ends them: losses before the first byte count, and there is no hand-over after a loss, nor where max_losses
// is 0, since two workers have the request then.
//
// Invariants. tests/stress/continue_machine.cc checks them in every order of events:
//   - A client gets one end, whole or cut, and nothing once it has gone.
//   - Each connection is closed once, and none is open when it is over(); of slots and of what is sought the same is true.
//   - Only a stream that matched takes the place of the old one, and it does so once, while the old one says nothing.
//   - A stream is not cut while its old connection could go on, and not while a continuation is permitted.
//   - Not more workers are lost, not more continuations are opened than the limits say; each loss is reported once.
//   - A method that failed by its nature (unfit, differs) is not used again.
//
// The host guarantees that no event is of a connection that is over, except that such events are ignored. Pure: no clock,
// socket, lock or allocation. 12 bytes without padding, so equal machines have equal bytes. One thread.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "continuation/eligibility.h"

namespace vllm_router {

enum class ContinueEventType : uint8_t {
  // The old stream: it says something (posted while a new one is beside it); it ended as it should; its connection or
  // its worker is lost, or its last event is an error of the server; its engine has aborted it; it was silent for too
  // long, or its drain is over.
  kOldSpoke,
  kOldEnded,
  kOldLost,
  kOldAborted,
  kOldTimeout,
  // It should go elsewhere, and may stay if it cannot: its worker drains; it has been silent for a while.
  kDrain,
  kStall,
  // Seeking: a target was chosen and has a slot; there is none, or the wait for one is over.
  kAdmitted,
  kNoTarget,
  kWaitOver,
  // The new stream: its first event is as expected; it shows that the engine cannot continue so; the worker is not
  // reached, rejects the request, or has aborted it; it is lost with it; it is silent for too long.
  kNewReceipt,
  kNewUnfit,
  kNewFailed,
  kNewLost,
  kNewTimeout,
  // It is compared: what the client has came to its end, and is equal; it is not; it ended before that place.
  kNewMatched,
  kNewDiffers,
  kNewShort,
  // The request is suspected to end workers, since a loss was reported.
  kSuspected,
  // The client left, or the exchange was cancelled for another reason.
  kClientGone,
};
inline constexpr int kContinueEventCount = static_cast<int>(ContinueEventType::kClientGone) + 1;

// A set of methods, which are used in the order of the enum, unless tokens are preferred.
class ContinueMethods {
 public:
  void Add(ContinueMethod method) { bits_ = static_cast<uint8_t>(bits_ | Bit(method)); }
  void Remove(ContinueMethod method) { bits_ = static_cast<uint8_t>(bits_ & ~Bit(method)); }
  bool Has(ContinueMethod method) const { return (bits_ & Bit(method)) != 0; }
  // Tokens come before a rerun, if both sets of And() say so.
  void PreferTokens() { bits_ = static_cast<uint8_t>(bits_ | kTokensFirst); }
  bool empty() const { return (bits_ & ~kTokensFirst) == 0; }
  ContinueMethods And(ContinueMethods other) const {
    other.bits_ = static_cast<uint8_t>(other.bits_ & bits_);
    return other;
  }
  // REQUIRES: not empty().
  ContinueMethod First() const {
    const bool are_tokens = (bits_ & kTokensFirst) != 0 && Has(ContinueMethod::kTokens);
    return are_tokens ? ContinueMethod::kTokens : static_cast<ContinueMethod>(std::countr_zero(bits_));
  }
  bool operator==(const ContinueMethods&) const = default;

 private:
  static constexpr uint8_t kTokensFirst = 0x80;
  static uint8_t Bit(ContinueMethod method) { return static_cast<uint8_t>(1u << static_cast<int>(method)); }

  uint8_t bits_ = 0;
};

struct ContinueEvent {
  ContinueEventType type;
  bool complete = false;         // with kOldLost, kOldAborted, kOldTimeout: the client has each choice's end
  ContinueMethods methods = {};  // with these, kDrain and kStall: what the place in the text permits
};

// What to do, in the order in which it is done.
enum class ContinueAction : uint8_t {
  kReportLoss,  // of the worker of this event, with the original request, to the quarantine
  kCancelSeek,
  kCloseNew,
  kReleaseSlot,
  kCloseOld,
  kPauseOld,  // at the end of an event
  kResumeOld,
  kPromote,   // the new stream is the old one from now on; its bytes go to the client
  kSeek,      // choose a target for method(), and wait for a slot
  kOpen,      // at the target
  kFinish,    // the client has the end
  kWriteEnd,  // it lacks only what follows the last choice's end, which the router writes
  kCut,       // why()
};
inline constexpr int kContinueActionCount = static_cast<int>(ContinueAction::kCut) + 1;

std::string_view ContinueEventName(ContinueEventType type);  // old_spoke, old_ended …
std::string_view ContinueActionName(ContinueAction action);  // report_loss, close_old …

// A set of actions; iterates in the order of the enum.
class ContinueActions {
 public:
  class Iterator {
   public:
    explicit Iterator(uint16_t bits) : bits_(bits) {}
    ContinueAction operator*() const { return static_cast<ContinueAction>(std::countr_zero(bits_)); }
    Iterator& operator++() {
      bits_ = static_cast<uint16_t>(bits_ & (bits_ - 1));
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    uint16_t bits_;
  };

  void Add(ContinueAction action) { bits_ = static_cast<uint16_t>(bits_ | Bit(action)); }
  void Remove(ContinueAction action) { bits_ = static_cast<uint16_t>(bits_ & ~Bit(action)); }
  bool Has(ContinueAction action) const { return (bits_ & Bit(action)) != 0; }
  bool empty() const { return bits_ == 0; }
  Iterator begin() const { return Iterator(bits_); }
  Iterator end() const { return Iterator(0); }
  bool operator==(const ContinueActions&) const = default;

 private:
  static constexpr uint16_t Bit(ContinueAction action) {
    return static_cast<uint16_t>(1u << static_cast<int>(action));
  }

  uint16_t bits_ = 0;
};

enum class ContinueState : uint8_t {
  kLive,       // the client gets the old stream
  kSeeking,    // a target is sought
  kOpening,    // a request is under way there
  kVerifying,  // what comes is compared with what the client has
  kWhole,
  kCut,
  kGone,
};

// kSilent: it stalls, and is read.
enum class ContinueLeg : uint8_t { kNone, kRead, kSilent, kPaused };

// Why a stream was cut; values of `continue_end` in the access log.
enum class ContinueCut : uint8_t {
  kNone,
  kNotEligible,  // no method for this request, or at this place
  kMax,          // max_continuations
  kLostAgain,    // max_losses
  kSuspected,
  kNoWorker,
  kWait,      // for a slot
  kReceipt,   // no method is left, the last one for its receipt
  kDiverged,  // no method is left, the last one for its text
};
inline constexpr int kContinueCutCount = static_cast<int>(ContinueCut::kDiverged) + 1;
std::string_view ContinueCutName(ContinueCut why);

struct ContinueLimits {
  ContinueMethods methods = {};
  uint8_t max_continuations = 2;
  uint8_t max_losses = 1;  // 0 for clients that are restricted
  uint8_t losses = 0;      // before the first byte
};

class ContinueMachine {
 public:
  // At the first byte of a stream.
  explicit ContinueMachine(const ContinueLimits& limits)
      : left_(limits.methods),
        max_continuations_(limits.max_continuations),
        max_losses_(limits.max_losses),
        losses_(limits.losses) {}

  ContinueActions Step(const ContinueEvent& event);

  ContinueState state() const { return state_; }
  ContinueLeg old_leg() const { return old_; }
  bool over() const { return state_ >= ContinueState::kWhole; }
  bool is_handover() const { return old_ != ContinueLeg::kNone && state_ != ContinueState::kLive && !over(); }
  bool holds_slot() const { return state_ == ContinueState::kOpening; }
  ContinueMethods methods() const { return left_.And(now_); }
  // REQUIRES: seeking, opening or verifying.
  ContinueMethod method() const { return methods().First(); }
  uint8_t continuations() const { return continuations_; }
  uint8_t losses() const { return losses_; }
  ContinueCut why() const { return why_; }

 private:
  void OnOld(const ContinueEvent& event);
  void OnHandover(ContinueLeg old, ContinueMethods methods);
  void OnSeek(ContinueEventType type);
  void OnNew(ContinueEventType type);
  void OnMatched();
  void OnSuspected();
  void OnClientGone();

  bool has_new() const { return state_ == ContinueState::kOpening || state_ == ContinueState::kVerifying; }
  void CountLoss();
  void LeaveOld(bool complete);
  void DropMethod(ContinueCut why);
  void EndNew();
  void StopNew();
  void KeepOld();
  void AfterAttempt();
  void ContinueOrCut();
  ContinueCut WhyNot() const;
  void Cut(ContinueCut why);
  void Do(ContinueAction action) { actions_.Add(action); }

  ContinueActions actions_;  // of the step under way; empty between steps
  ContinueMethods left_;     // that have not failed
  ContinueMethods now_;      // that the place in the text permits
  ContinueState state_ = ContinueState::kLive;
  ContinueLeg old_ = ContinueLeg::kRead;
  ContinueCut why_ = ContinueCut::kNone;
  ContinueCut none_left_ = ContinueCut::kNotEligible;  // why, once none is left
  uint8_t max_continuations_;
  uint8_t max_losses_;
  uint8_t continuations_ = 0;
  uint8_t losses_;
};

}  // namespace vllm_router
