// ContinuedStream: one stream that may go on at another worker; the host of its ContinueMachine. In Request::state.
//
//   worker ─▶ relay ─▶ ContinuationSink ─▶ client
//     ▲         │ ends early  ▲ whole events; of a second run those that are new, once the others were found equal
//     │         ▼             │
//     │      Resume() ── ContinueMachine ── RerunAttempts
//     └───────────────────────┘
//
//   lost           the worker's connection ended, or its framing broke      a loss for the quarantine
//   dead           the worker was found dead, and says nothing for three    a loss
//                  seconds, or --dead-worker-grace-secs are over
//   server_error   the last event says that the server failed               counts as a response of status 500
//   idle           it sent nothing for --stream-idle-timeout-secs           counts as a response that broke off
//   drained        the worker's drain is over, or the stream was handed     nobody's fault
//                  over before (hand_over.h)
//   stalled        it was handed over since its worker was silent           nobody's fault
//   aborted        the engine ended the generation, and its worker drains   nobody's fault
//                  or is found down
//
// The request runs again at a worker that it was not sent to, by the rules of any retry (retry_state.h), or another one goes
// on with its token ids (rest_of_stream.h). The client's stream waits meanwhile, with a comment at times. If the second run
// says something else, or no worker has it, the stream is cut as it is without all this. What an engine aborts that stays is not continued: somebody may have asked for that.
//
// The memory that it claims is returned by its destructor. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "continuation/continue_machine.h"
#include "net/timer_wheel.h"
#include "proxy/continuation/client_wait.h"
#include "proxy/continuation/continuation_sink.h"
#include "proxy/continuation/hand_over.h"
#include "proxy/continuation/rest_of_stream.h"
#include "proxy/continuation/stream_cut.h"
#include "proxy/continuation/stream_record.h"
#include "proxy/exchange/resumable_response.h"

namespace vllm_router {

class RerunAttempts;
struct ThreadContinuation;
struct TokenRequest;

class ContinuedStream final : public ResumableResponse {
 public:
  // `memory_bytes`, which were taken from the thread's memory, are returned at the end; 0: the stream does not go on, and
  // its ids alone are taken out. `asked`: its worker was asked for ids; null: it was not. All references outlive it.
  ContinuedStream(
      Request& request, ThreadContinuation& thread, const ContinueLimits& limits, uint64_t memory_bytes,
      const TokenRequest* asked);
  ~ContinuedStream() override;

  BodySink& Begin(BodySink& client) override;
  bool MayResume() const override;
  Task<Resumed> Resume(Relay::End end) override;
  void WorkerDied() override;
  void WorkerDrains() override;
  Attempts* beside() override { return hand_over_.attempts(); }
  Task<void> Ended() override;
  uint64_t bytes() const override { return sink_->bytes(); }
  bool resumed() const override { return record_.times != 0; }
  bool rewrites() const override { return rest_ && rest_->tokens().hides(); }
  void Correct(StreamSummary* summary) const override;

  // The exchange is over. Counts what became of a stream whose worker did not finish it, and adds it to the request's
  // record; once.
  void Record();

 private:
  void Left() override { hand_over_.LetFirstEnd(); }
  std::optional<StreamCut> CutOf(Relay::End end) const;
  Task<bool> WorkerLeaves();
  void BeginWait(StreamCut cut);
  Task<Resumed> GoOn(StreamCut cut);
  Task<ContinueMethods> MethodsNow();
  Task<Resumed> GoOnOtherwise(ContinueEventType failure);
  struct Failure;
  Task<bool> RunAgain(const Failure& failure);
  Task<Resumed> TakeOver(StreamCut cut);
  Task<Resumed> WriteEnd();
  Task<void> Release(bool last);
  Task<int64_t> EndAttempt(const Failure& failure);
  void Post(ContinueEventType type);

  static void OnFirstEvent(void* self);
  static void OnCaughtUp(void* self);
  static void OnEnding(void* self);
  static void OnRestDue(void* self);
  static void OnSilent(void* self);
  uint64_t Progress() const;

  ThreadContinuation& thread_;
  ContinueMachine machine_;
  RerunAttempts* attempts_ = nullptr;  // the request's, once its stream was cut
  std::optional<ContinuationSink> sink_;
  const uint64_t memory_bytes_;
  std::optional<RestOfStream> rest_;  // nullopt: its worker was not asked for ids
  StreamRecord record_;
  Timer rest_due_;     // the worker ends its response, which is over
  Timer silence_due_;  // of a worker that was found dead
  uint64_t spoken_ = 0;
  ClientWait wait_;
  HandOver hand_over_;
};

}  // namespace vllm_router
