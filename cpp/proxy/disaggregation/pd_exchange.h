// PdExchange: the attempts of one request that two workers serve (prefill/decode disaggregation). What has to happen is
// decided by a PdMachine (disaggregation/pd_machine.h); this is what happens: events are posted, and actions are done.
//
//   Run()   SELECT P and D ─▶ kPlanned ─▶ P's leg ─▶ P's response ─▶ D's leg ─▶ first body byte ─▶ kResponded
//              ▲                                                              │
//              `── pause ◀── kRetry ◀── any failure before that byte ◀────────┘
//
//   relay   by the exchange, which reports the end with ResponseEnded()
//
//   Finished()   waits for legs that the engines do not bear to lose yet: after the client's departure, a decode worker
//                that was sent the request goes on for --pd-grace-ms or to its first byte
//
//   PairChoice     which workers                                      pair_choice.h
//   UpstreamPair   one attempt: what they are told, and both legs     upstream_pair.h
//   PairClaim      the blocks that prefill holds for decode           pair_claim.h
//   PairFailure    which worker failed, and how                       pair_failure.h
//   RetryState     whether and when there is another attempt          retry_state.h
//
// The exchange itself keeps what is kept: it stays until Finished(), as one of the connections that --max-connections
// counts. Each leg's last act is an event. Post() may be called from any of them; a resumed waiter always runs in a later
// turn of the loop, so that no step is interrupted by what it causes. One thread.
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "disaggregation/pd_machine.h"
#include "net/timer_wheel.h"
#include "proxy/disaggregation/pair_choice.h"
#include "proxy/disaggregation/pair_claim.h"
#include "proxy/disaggregation/pair_failure.h"
#include "proxy/disaggregation/pd_request.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/disaggregation/upstream_pair.h"
#include "proxy/exchange/attempts.h"
#include "proxy/exchange/kept_response.h"
#include "proxy/exchange/retry_state.h"

namespace vllm_router {

class Delay;
struct Settings;

class PdExchange final : public Attempts {
 public:
  // All must outlive it. `info` records what happens. REQUIRES: the plan is kTwoStages.
  PdExchange(IoThread& thread, const Settings& settings, const PdRequest& plan, RequestInfo& info);

  Task<End> Run(const Call& call) override;

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
  bool sent() const override;
  void ForgetRequest() override { retries_.KeepDigest(); }
  const std::string* prefill_usage() const override;
  void ResponseEnded(ResponseEnd end) override;
  void RecordTimeout() override;
  void SettleServerErrors() override;
  Task<void> Finished() override;

  // For legs. An event, and what follows from it.
  void Post(const PdEvent& event);
  // The leg's task is over; `event` counts unless it was closed.
  void LegEnded(StageLeg& leg, const PdEvent& event);

 private:
  // What is left of the attempts at one stage.
  struct Results {
    ServerErrors errors;
    std::optional<KeptResponse> kept;
  };

  void Do(PdAction action);
  void OpenDecode(bool with_parameters);
  void Release(Stage stage);
  void EndClaim(KvClaimEnd end);
  void LearnIdentity();
  void Commit();
  void UseMerged();
  void RespondWith(Stage stage);
  void RespondWith(HttpError error, std::string message = {});
  void SetEnd(End end);
  void Wake();

  void ChooseFirst();
  void Plan(PdAttemptKind kind);
  Task<void> Retry();
  std::optional<int64_t> PauseBefore(const PdRetry& retry);  // empty: there is none
  std::string_view UnderWay() const;

  StageLeg* prefill() const { return pairs_.last() != nullptr ? pairs_.last()->prefill() : nullptr; }
  StageLeg* decode() const { return pairs_.last() != nullptr ? pairs_.last()->decode() : nullptr; }
  Results& at(Stage stage) { return stage == Stage::kPrefill ? at_prefill_ : at_decode_; }

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
  PairRequest request_;
  PdMachine machine_;
  std::vector<PdEvent> events_;  // to be stepped
  bool stepping_ = false;

  PairChoice choice_;
  Results at_prefill_;
  Results at_decode_;
  UpstreamPairs pairs_;
  RetryState retries_;
  PairFailure failure_;
  bool no_memory_ = false;  // for prefill's response
  bool no_other_pair_ = false;
  bool decode_waits_ = false;  // its response is whole, and prefill's is not
  PairClaim claim_;

  StageLeg* relayed_ = nullptr;
  std::optional<End> end_;
  uint32_t tasks_ = 0;  // of legs, and of retries
  Delay* pause_ = nullptr;
  std::coroutine_handle<> waiter_;

  Timer grace_;
  Timer keep_;
};

}  // namespace vllm_router
