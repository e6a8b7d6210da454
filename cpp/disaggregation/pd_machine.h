// PdMachine: the life cycle of one request that two workers serve (prefill/decode disaggregation). The
// prefill worker P computes the prompt's KV blocks, the decode worker D fetches them and generates. What
// happened goes in as an event, what has to be done comes out as actions:
//
//   PdMachine machine(PdCancelPrefill::kAuto);
//   for (const PdAction action : machine.Step({.type = PdEventType::kPOkWhole})) {
//     switch (action) { … }                                   // in this order, which is the enum's
//   }
//
//   serial       planned ─▶ P open ─▶ P ok, claim ─▶ D open ─▶ D head ─▶ begun ─▶ D done ─▶ end
//   concurrent   planned ─▶ P open ∥ D open ─▶ (P ok at any time) D head ─▶ begun ─▶ D done ─▶ end
//   any failure before `begun`: kRetry ─▶ the host chooses, and steps kPlanned, kNoOtherPair or kNoRetry
//
// A request is served in attempts; each has a pair of workers, or one decode worker alone ("local").
// Between attempts the machine is choosing(): retry() says what the next attempt must be and which workers
// are excluded. How often, after what pause and within which budget is RetryPlan's matter.
//
// Which breaker counts: a D that cannot fetch the blocks fails for no fault of its own, so a 5xx of a D with
// parameters counts against no worker. A request
// may have killed a D whose connection is lost, so it never reaches a second D with parameters: its one
// retry is local.
//
// A kept leg runs on when the client needs it no more, because the engines do not bear its end there (blocks
// would stay held). The host goes on stepping its events until over(). A response that flows and is cut has no action of
// its own: D's leg is closed or has ended, which its relay notices.
//
// Invariants. tests/stress/pd_machine.cc checks them in every order of events:
//   - A client gets one response, and nothing once it has gone.
//   - At kRetry no leg and no ticket is open. There is no retry after a body byte or the client's departure.
//   - When it is over() no leg is live, both tickets are back, and the claim has ended. A claim ends exactly once.
//   - P is not closed while a vLLM D waits for its blocks, and they are not closed together
//     (except kKeepOver and PdCancelPrefill::kAlways).
//   - D gets parameters of the same attempt's prefill, or of a claim that no D has seen.
//   - After a D was lost, no D gets parameters. A request that was local once stays local.
//   - A D that cannot prefill by itself is never alone.
//   - A response that flows is not cut because P's connection is lost.
//
// The host guarantees that no event is of an earlier attempt's leg: it joins the leg's task at kCloseP and
// kCloseD. Events of legs that are over are ignored. Each event is posted and each action has an effect there
// (tests/repo/test_pair_machine.py). Where P's response is merged into D's, the host holds
// back kDFirstByte until it has both. It finishes the loop over a step's actions before the next step.
//
// Pure: no clock, socket, lock or allocation; times arrive as events. 32 bytes without padding, so equal
// machines have equal bytes. A step costs 7 ns (benchmarks/micro/pd_machine.cc). One thread.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace vllm_router {

enum class PdOrder : uint8_t {
  kSerial,      // P, then D: NIXL pull, MoRI-IO READ, P2P-NCCL, shared stores
  kConcurrent,  // both at once, vLLM: NIXL push, Mooncake, MoRI-IO WRITE
  kSglang,      // both at once; either waits for the other, and both are closed together
};

// Whether a prefill that is of no use any more is cancelled.
enum class PdCancelPrefill : uint8_t {
  kAuto,    // where the engines bear it
  kAlways,  // also where blocks at D may stay held
  kNever,   // it runs to its end; a failure of D beside it is then not retried
};

enum class PdAttemptKind : uint8_t {
  kPair,        // prefill at P, then or meanwhile decode at D
  kDecodeOnly,  // decode at another D, with the claim that the last attempt left
  kLocal,       // decode alone, without parameters: D computes the prompt itself
  kBypass,  // the same by choice (routing/pd_bypass.h): if that fails, the next attempt is a pair, unless D was lost
};

struct PdAttempt {
  PdAttemptKind kind = PdAttemptKind::kPair;
  PdOrder order = PdOrder::kSerial;
  bool rebindable = false;  // another D may redeem the claim, as the parameters do not name D
  bool decode_can_prefill =
      true;  // else D is never alone: no attempt is local, and none follows a D that was lost
};

enum class PdEventType : uint8_t {
  // Choosing. Workers were chosen and their tickets made. No worker that retry() permits is eligible. No
  // more attempts, or no eligible worker at all.
  kPlanned,
  kNoOtherPair,
  kNoRetry,
  // P. A response that was read whole: 2xx with complete parameters; 2xx without them, also if it is not
  // JSON or an event stream, or if the connector uses none; 2xx over the limit on its length; one that
  // does not fit in the body budget; the other classes of PdResponseClassOf.
  kPOkWhole,
  kPOkWithout,
  kPTooLarge,
  kPOverBudget,
  kPRejected,
  kPBusy,
  kPError,
  // P, without a response: not reached (connect, TLS); lost before the response was whole; silent for too long.
  kPUnreached,
  kPLost,
  kPTimeout,
  // D. The first byte of the request leaves: stepped before it is written, so that no claim passes for
  // unseen; a 2xx head; its first body byte; its end.
  kDSent,
  kDHead,
  kDFirstByte,
  kDDone,
  // D, before its first body byte: the other classes; a 200 stream whose first bytes are an error event of
  // type 5xx; the message that the engine has died ("EngineCore encountered an issue"), for which the
  // start of a 5xx body is read before the step: the status alone does not tell it from kDError.
  kDRejected,
  kDBusy,
  kDError,
  kDErrorEvent,
  kDEngineDead,
  // D, without a response: not one byte of the request left; not eligible any more at the hand-over; lost, at
  // any time; silent for too long: before the head, before the first byte, or within the response.
  kDUnreached,
  kDIneligible,
  kDLost,
  kDTimeout,
  // The client left, or the exchange was cancelled for another reason.
  kClientGone,
  // Times.
  kHandoffLate,  // the claim is too old to be sent to a D now
  kGraceOver,    // of a kept D
  kKeepOver,     // of kept legs: a second behind a complete response, else --pd-drain-ms, or a shutdown
};
inline constexpr int kPdEventCount = static_cast<int>(PdEventType::kKeepOver) + 1;

struct PdEvent {
  PdEventType type;
  PdAttempt plan{};           // with kPlanned
  bool p_readable = false;    // with kClientGone: bytes of P's response have arrived
  bool p_unreached = false;   // with kNoOtherPair: no P was reached, and D may serve alone
  bool timed_out = false;     // with kPUnreached, kDUnreached: by a timeout, so it is 504 at the end
  bool server_error = false;  // with kDDone: the stream's last event reports an error of the engine
};

// What to do, in the order in which it is done.
enum class PdAction : uint8_t {
  // Verdicts for the circuit breakers; a leg without one is neutral.
  kPFailed,
  kPSucceeded,
  kDFailed,
  kDSucceeded,
  // Legs. A closed connection does not return to the pool. A kept leg has a limit from now on.
  kCloseD,
  kKeepD,
  kCloseP,
  kKeepP,
  // Tickets go back: P's load, D's load or reservation.
  kReleaseP,
  kReleaseD,
  // The claim (kv_claim.h): blocks held at P for this request.
  kMakeClaim,
  kRedeemClaim,    // D has fetched them
  kRejectClaim,    // D rejected the request: it told P to free them, or the host has P told
  kExpireClaim,    // a D may have seen it, or it is too old: never fetched again, the lease ends it
  kOrphanClaim,    // no D has seen it
  kReuseClaim,     // and a new one takes its place
  kLearnIdentity,  // P's response names its identity, if the connector needs one (NIXL push)
  // Legs again, to workers of this attempt.
  kOpenP,
  kOpenDWith,     // with parameters
  kOpenDWithout,  // without
  // The client.
  kCommit,    // it gets D's response
  kRespondP,  // the last response of a P; of a D. If the host could not keep it: 502
  kRespondD,
  kRespond502,
  kRespond503,
  kRespond504,
  kRetry,  // choose as retry() says
};
inline constexpr int kPdActionCount = static_cast<int>(PdAction::kRetry) + 1;

std::string_view PdEventName(PdEventType type);  // planned, p_ok_whole …
std::string_view PdActionName(PdAction action);  // close_p, open_d_with …

// A set of actions; iterates in the order of the enum.
class PdActions {
 public:
  class Iterator {
   public:
    explicit Iterator(uint64_t bits) : bits_(bits) {}
    PdAction operator*() const { return static_cast<PdAction>(std::countr_zero(bits_)); }
    Iterator& operator++() {
      bits_ &= bits_ - 1;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    uint64_t bits_;
  };

  void Add(PdAction action) { bits_ |= Bit(action); }
  void Remove(PdAction action) { bits_ &= ~Bit(action); }
  bool Has(PdAction action) const { return (bits_ & Bit(action)) != 0; }
  bool empty() const { return bits_ == 0; }
  Iterator begin() const { return Iterator(bits_); }
  Iterator end() const { return Iterator(0); }
  bool operator==(const PdActions&) const = default;

 private:
  static constexpr uint64_t Bit(PdAction action) { return uint64_t{1} << static_cast<int>(action); }

  uint64_t bits_ = 0;
};

// What the next attempt must be.
struct PdRetry {
  PdAttemptKind next = PdAttemptKind::kPair;
  bool exclude_p = false;  // not at the P, the D of this attempt
  bool exclude_d = false;
  bool prefer_p = false;  // the same P: it holds the prompt's prefix
  bool counted = true;    // false: it is no attempt in the sense of RetryPlan
  bool operator==(const PdRetry&) const = default;
};

enum class PdLeg : uint8_t {
  kIdle,
  kOpen,
  kOk,      // P has responded with 2xx
  kHead,    // from D's accepted head to its end
  kDone,    // D has responded completely
  kFailed,  // it ended by itself, otherwise
  kClosed,  // by us
  kKept,
};

enum class PdClient : uint8_t { kWait, kBegun, kGone };

// The class of a status, for P and D alike; it follows VerdictOf of worker/circuit_breaker.h.
enum class PdResponseClass : uint8_t {
  kOk,        // 2xx
  kBusy,      // 408, 429, 503 with Retry-After
  kError,     // other 5xx, but 501 and 505
  kRejected,  // all others: the client's response
};
PdResponseClass PdResponseClassOf(int status, bool has_retry_after);

class PdMachine {
 public:
  explicit PdMachine(PdCancelPrefill cancel_prefill = PdCancelPrefill::kAuto)
      : cancel_prefill_(cancel_prefill) {}

  // REQUIRES of kPlanned: choosing(), and a plan that retry() permits: kDecodeOnly only if it is the next;
  // kPair and kBypass not if kLocal is the next. kLocal is possible at any time. None but kPair in front of SGLang.
  PdActions Step(const PdEvent& event);

  bool choosing() const { return choosing_; }
  const PdRetry& retry() const { return retry_; }
  // Nothing is left to do: steps have no effect.
  bool over() const { return responded_ && !choosing_ && !IsLive(p_) && !IsLive(d_); }
  PdLeg p() const { return p_; }
  PdLeg d() const { return d_; }
  PdClient client() const { return client_; }
  bool responded() const { return responded_; }  // nothing more is sent to the client
  bool holds_claim() const { return claim_; }

 private:
  enum class Last : uint8_t { kNone, kP, kD, kBadGateway, kTimeout };
  // D alone: it may be, a request that was local once stays so, or this D cannot prefill by itself.
  enum class Alone : uint8_t { kMay, kMust, kNever };

  void OnP(const PdEvent& event);
  void OnD(const PdEvent& event);
  void OnOther(const PdEvent& event);
  void OnPlanned(const PdAttempt& plan);
  void OnNoOtherPair();
  void OnPSuccess(PdEventType type);
  void OnPOverBudget();
  void OnPStatus(PdEventType type);
  void OnPLost(const PdEvent& event);
  void OnPTimeout();
  void OnDHead();
  void OnDFirstByte();
  void OnDDone(bool server_error);
  void OnDRejected();
  void OnDBusy();
  void OnDError();
  void OnDUnreached(const PdEvent& event);
  void OnDLost(Last last);
  void OnDTimeout();
  void OnClientGone(bool p_readable);
  void OnHandoffLate();
  void OnGraceOver();
  void OnKeepOver();

  static bool IsLive(PdLeg leg) { return leg == PdLeg::kOpen || leg == PdLeg::kHead || leg == PdLeg::kKept; }
  bool waits() const { return client_ == PdClient::kWait && !responded_; }
  bool flows() const { return client_ == PdClient::kBegun && !responded_; }
  bool is_local() const { return alone_ == Alone::kMust; }
  bool may_be_alone() const { return alone_ != Alone::kNever && attempt_.order != PdOrder::kSglang; }
  PdAttemptKind Next() const { return is_local() ? PdAttemptKind::kLocal : PdAttemptKind::kPair; }

  void Do(PdAction action) { actions_.Add(action); }
  void OpenD(bool with_parameters);
  void EndD(PdLeg how);
  void CloseD();
  void EndP(PdLeg how);
  void StopP(bool d_waited);
  void KeepP();
  void EndClaim(PdAction how);
  void Commit();
  void SetLast(Last last);
  void EndAttempt(const PdRetry& retry);
  void Conclude();

  PdActions actions_;  // of the step under way; empty between steps
  PdRetry retry_;
  PdAttempt attempt_;  // under way, or the last one
  PdCancelPrefill cancel_prefill_;
  PdLeg p_ = PdLeg::kIdle;
  PdLeg d_ = PdLeg::kIdle;
  PdClient client_ = PdClient::kWait;
  Last last_ = Last::kNone;  // the best response so far that can be given when no attempt is left
  bool choosing_ = true;
  bool responded_ = false;
  bool p_ticket_ = false;
  bool d_ticket_ = false;
  bool claim_ = false;
  bool parameters_ = false;  // this attempt's D has them
  bool d_sent_ = false;      // a byte of D's request has left
  bool d_lost_ = false;      // of the request, as are those below
  bool transfer_failed_ = false;
  Alone alone_ = Alone::kMay;
};

}  // namespace vllm_router
