// PdExchange: the attempts of one request that two workers serve (prefill/decode disaggregation). What has to happen is
// decided by a PdMachine (routing/pd_machine.h); this is what happens: workers are chosen, copies of the request are
// sent, events are reported, and actions are done.
//
//   Run()   choose P and D ─▶ kPlanned ─▶ P's leg ─▶ P's response ─▶ D's leg ─▶ first body byte ─▶ kResponded
//              ▲                                                              │
//              `── pause ◀── kRetry ◀── any failure before that byte ◀────────┘
//
//   relay   by the exchange, which reports the end with ResponseEnded()
//
//   Finished()   waits for legs that the engines do not bear to lose yet: after the client's departure, a decode worker
//                that was sent the request goes on for --pd-grace-ms or to its first byte
//
// The exchange itself keeps what is kept: it stays until Finished(), as one of the connections that --max-connections
// counts. The two requests are PdLegs; each leg's last act is an event. Post() may be called from any of them; a resumed
// waiter always runs in a later turn of the loop, so that no step is interrupted by what it causes.
//
// How often, after what pause and within which budget there is a retry is RetryPlan's matter, as in a RetryLoop.
// One thread.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/timer_wheel.h"
#include "proxy/api/request_id.h"
#include "proxy/exchange/attempts.h"
#include "proxy/exchange/kept_response.h"
#include "proxy/exchange/request_losses.h"
#include "proxy/exchange/stage_leg.h"
#include "proxy/exchange/worker_choice.h"
#include "routing/kv_claim.h"
#include "routing/pd_machine.h"
#include "routing/pd_plan.h"
#include "routing/retry_plan.h"

namespace vllm_router {

class Delay;
struct Settings;

class PdExchange final : public Attempts {
 public:
  // Everything outlives it.
  struct Request {
    UpstreamRequest::Message message;  // the client's, whose body is whole
    WorkerChoice::Request choice;      // for both stages
    const RequestId* id;
    bool client_restricted;  // by the quarantine: not given to a second worker after a loss
    PdRoute route;
    const BodyMap* body;
    const PdPlan* plan;  // kTwoStages
    const KvConnector* connector;
    std::span<const BodyInsertion> insertions;  // into each copy of the body
  };

  // All must outlive it. `info` records what happens.
  PdExchange(IoThread& thread, const Settings& settings, RequestInfo& info);
  ~PdExchange() override;

  Task<End> Run(const Request& request);

  void Cancel() override;
  void CancelKept() override { Post({.type = PdEventType::kKeepOver}); }
  bool IsAt(const Worker& worker) const override;
  void WorkerDied(const Worker& worker) override;
  bool WorkerDrained(const Worker& worker) override;
  void AddWaits(const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) override;
  bool MoveFrom(
      const Worker& /*worker*/, const HangDetector::Doubt& /*doubt*/, size_t* /*reads_bodies*/) override {
    return false;
  }
  void CountFirstByte() override;

  const ResponseHead& response() const override;
  Buffer& in() override;
  Socket& worker() override;
  bool sent() const override;
  void ForgetResponseHead() override;
  void ForgetRequest() override { losses_.Keep(request_.message); }
  const std::string* prefill_usage() const override;
  Ticket& ticket() override { return relayed_ != nullptr ? relayed_->request().ticket() : no_ticket_; }
  void ResponseEnded(ResponseEnd end) override;
  void RecordTimeout() override;
  void SettleServerErrors() override;
  Task<void> Finished() override;
  void ReleaseConnection(bool reusable) override;

  // For legs. An event, and what follows from it.
  void Post(const PdEvent& event);
  // The leg's task is over; `event` counts unless it was closed.
  void LegEnded(StageLeg& leg, const PdEvent& event);

 private:
  // A stage: who may be chosen, who was, and the leg of this attempt.
  struct StageState {
    StageState(IoThread& thread, const Settings& settings)
        : choice(thread, settings), errors(thread, settings.breaker) {}
    WorkerChoice choice;
    ServerErrors errors;
    std::optional<WorkerChoice::Selected> selected;  // not yet sent anything
    std::shared_ptr<Worker> worker;                  // of this attempt, or the last one
    StageLeg* leg = nullptr;
    bool lost = false;  // a worker was lost, so only fresh connections are used
    std::optional<KeptResponse> kept;
    std::shared_ptr<Worker> kept_worker;
  };

  void Do(PdAction action);
  void OpenPrefill();
  void OpenDecode(bool with_parameters);
  StageLeg& AddLeg(StageState& stage, RequestInfo& info, Stage which);
  StageLeg::Setup SetupFor(std::string id) const;
  void CloseLeg(StageState& stage);
  void Release(StageState& stage);
  void EndClaim(KvClaimEnd end);
  KvFreeing Freeing() const;
  void Commit();
  void UseMerged();
  void RespondWith(StageState& stage);
  void RespondWith(HttpError error, std::string message = {});
  void SetEnd(End end);
  void Wake();

  Task<void> Retry();
  bool MayRetry(const PdRetry& retry, int64_t* pause_ns);
  bool IsPrefillUnreached() const;
  bool MayServeAlone() const;
  // Chooses what an attempt of this kind needs; false: there is none.
  bool Choose(const PdRetry& retry);
  bool ChooseWorkers(const PdRetry& retry, bool last_resort);
  bool ChooseOtherGroup(const PdRetry& retry);
  void Plan(PdAttemptKind kind);
  void TakeSelected(StageState& stage);
  void TakePassAgain();
  void ChooseFirst();
  bool ChooseBypass();
  bool IsOfFleetsEngine() const;
  void NoteFailure(const StageLeg& leg, StageState& stage, const PdEvent& event);
  void SetDecodeFailure(AttemptFailure how, int status, HttpError error, std::string_view what);
  std::string_view UnderWay() const;
  bool MergesLogprobs() const;
  bool MergesUsage() const;
  bool MayStillServe(const Worker& worker) const;
  bool WaitsForBlocksOf(const Worker& worker) const;
  void NamePair();
  uint32_t RanksOfPrefill() const;
  PairAttempt PairOf() const;
  void LearnIdentity(const PrefillResponse& response);

  static void OnHandoffLate(void* exchange);
  static void OnGraceOver(void* exchange);
  static void OnKeepOver(void* exchange);

  struct Wakeup {
    PdExchange* exchange;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { exchange->waiter_ = waiter; }
    void await_resume() const noexcept {}
  };

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  PdInfo& pd_;  // of info_
  Request request_{};
  PdMachine machine_;
  std::vector<PdEvent> events_;  // to be stepped
  bool stepping_ = false;
  bool began_ = false;  // an attempt has been planned

  StageState prefill_;
  StageState decode_;
  RequestInfo prefill_info_;                     // of prefill's requests, whose times are not the client's
  std::vector<std::unique_ptr<StageLeg>> legs_;  // of all attempts
  StageLeg* source_ = nullptr;                   // prefill's, whose response has the parameters
  std::string pair_id_;
  std::shared_ptr<const std::string>
      engine_id_;  // of prefill, as it was when the pair was planned; null: not needed
  PairBits bits_;
  std::vector<uint64_t> rooms_;
  PdOrder order_ = PdOrder::kSerial;
  RequestLosses losses_;
  std::optional<RetryPlan> plan_;
  FailedAttempt failure_;  // the last one
  HttpError failure_error_ = HttpError::kWorkerClosed;
  StageState* failed_ = nullptr;
  std::string_view what_failed_;  // prefill, decode, transfer
  bool no_memory_ = false;        // for prefill's response
  bool no_other_pair_ = false;
  bool prefill_was_reached_ = false;  // by an attempt that failed at its prefill worker
  bool all_full_ = false;             // why Choose() found none
  bool decode_waits_ = false;         // its response is whole, and prefill's is not
  KvClaim claim_;

  StageLeg* relayed_ = nullptr;
  KeptResponse* kept_ = nullptr;  // which is what the client gets
  std::optional<End> end_;
  uint32_t tasks_ = 0;  // of legs, and of retries
  Delay* pause_ = nullptr;
  std::coroutine_handle<> waiter_;

  Timer handoff_;
  Timer grace_;
  Timer keep_;
  Socket no_connection_;
  Ticket no_ticket_;
};

}  // namespace vllm_router
