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
//   PdEventQueue   the machine, and events that its actions cause     pd_event_queue.h
//   PairChoice     which workers                                      pair_choice.h
//   UpstreamPair   one attempt: what they are told, and both legs     upstream_pair.h
//   PairClaim      the blocks that prefill holds for decode           pair_claim.h
//   PairRetry      whether and when there is another attempt          pair_retry.h
//   PairResponse   what the client gets                               pair_response.h
//   KeptLegs       how long a leg goes on without the client          kept_legs.h
//
// The exchange itself keeps what is kept: it stays until Finished(), as one of the connections that --max-connections
// counts. Each leg's last act is an event. Post() may be called from any of them; a resumed waiter always runs in a later
// turn of the loop, so that no step is interrupted by what it causes. One thread.
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proxy/disaggregation/kept_legs.h"
#include "proxy/disaggregation/pair_choice.h"
#include "proxy/disaggregation/pair_claim.h"
#include "proxy/disaggregation/pair_response.h"
#include "proxy/disaggregation/pair_retry.h"
#include "proxy/disaggregation/pd_event_queue.h"
#include "proxy/disaggregation/pd_request.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/disaggregation/upstream_pair.h"
#include "proxy/exchange/attempts.h"

namespace vllm_router {

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
  void ForgetRequest() override { retry_.KeepDigest(); }
  const std::string* prefill_usage() const override;
  void ResponseEnded(ResponseEnd end) override;
  void RecordTimeout() override;
  void SettleServerErrors() override { served_.SettleErrors(); }
  Task<void> Finished() override;

  // For legs. An event, and what follows from it.
  void Post(const PdEvent& event);
  // The leg's task is over; `event` counts unless it was closed.
  void LegEnded(StageLeg& leg, const PdEvent& event);

 private:
  void Do(PdAction action);
  void Plan(PdAttemptKind kind);
  void OpenDecode(bool with_parameters);
  void Release(Stage stage);
  void EndClaim(KvClaimEnd end);
  Task<void> Retry();
  void RespondWith(Stage stage);
  void FailWith(HttpError error, std::string message = {});
  void SetEnd(End end);
  void Wake();
  const PdMachine& machine() const { return events_.machine(); }
  static void OnHandoffLate(void* exchange);

  struct Wakeup {
    PdExchange* exchange;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { exchange->waiter_ = waiter; }
    void await_resume() const noexcept {}
  };

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  PairRequest request_;
  PdEventQueue events_;
  PairChoice choice_;
  UpstreamPairs pairs_;
  PairRetry retry_;
  PairClaim claim_;
  PairResponse served_;
  KeptLegs kept_;
  bool decode_waits_ = false;  // its response is whole, and prefill's is not

  // What Run() and Finished() wait for.
  std::optional<End> end_;
  uint32_t tasks_ = 0;  // of legs, and of retries
  std::coroutine_handle<> waiter_;
};

}  // namespace vllm_router
