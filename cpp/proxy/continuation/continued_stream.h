// ContinuedStream: one stream that may go on at another worker; the host of its ContinueMachine. In Request::state.
//
//   upstream ─▶ relay ──────────────── ContinuationSink ── ClientSink ─▶ client
//      ▲          │ the relay ended        ▲ whole events, transcript
//      │          ▼                        │
//      │     GoOn(cause) ── machine ── slot ── attempt ── verified ── the relay goes on behind the same sink
//      └───────────────────────────────────┘
//
// From a response's head to its end:
//
//   1. `filter` (a hook that Step gets): the response is a plain event stream of a request with a method, and its body is
//      whole and fits in the memory for continuing. Begin() makes the sink, which the relay writes into.
//   2. `keeps_request` (another one): the request is not forgotten while the stream may go on; its BodyClaim stays.
//   3. The relay ends, or the sink has an ending(): the relay step calls `go_on` in place of Downstream::Cut(). GoOn() steps
//      the machine by the cause and carries out its actions until the stream goes on (true) or has its end (false).
//   4. kSeek   choose a worker as RetryLoop does, with those that lost the stream left out and only workers of its model,
//              adapter and kv_group; wait for a slot at it, at most `continue_wait_secs`: a Permit of the limiter
//              that each worker has for continuations.
//      kOpen   Attempts::Run() again, for one attempt and with the bytes of the first one; a head that is no plain event
//              stream is kNewFailed, and its connection is closed. Then the sink's Rerun().
//      kPromote, kReleaseSlot   by the sink's hooks, within a Write().
//      kCut    the sink's Release(), then what the relay step does today.
//   5. `on_end`: continue_end and the others in the record of the request; slots and memory go back.
//
// What else has to change, each by itself and before this:
//
//   Exchange::WorkerDied, WorkerDrained and the relay's idle timeout cancel the request. For a stream that may go on they
//   end the relay instead, with a cause: Attempts::EndResponse(StreamCut).
//   RelayResponse makes its sinks once and its Relay in a loop. A response that is framed by a length gets chunks, so that
//   another one may follow; `Content-Encoding` and HTTP/1.0 forbid it.
//   Relay::client_has_all() looks at the worker's bytes; with a filter in between it has to look at the client's.
//   RetryState::Failed() is called for a loss after the first byte, too; its RetryPlan is not, as the machine has the limits.
//   The response cache drops what it captured of a continued stream (`cache_reason` is "continued").
//
// Options (python/vllm_router/settings/table.py), with their defaults:
//
//   continue_streams      off | verified     `verified`: by rerun alone
//   continue_max          2                  continuations of a stream
//   continue_per_worker   4                  opened at one worker at the same time
//   continue_wait_secs    30                 for a slot, and from there to the first event
//   continue_memory_mb    256                transcripts and bodies of all streams
//   retry_lost_requests   as it is           losses after which a stream goes on
//
// Metrics, all of requests: continued_streams_total{why,method}, cut_streams_total{why}, continue_gap_seconds,
// continue_dropped_bytes_total, continue_memory_bytes, continue_waiting.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "continuation/continue_machine.h"
#include "continuation/eligibility.h"
#include "net/task.h"
#include "proxy/continuation/continuation_sink.h"
#include "proxy/thread/permit.h"
#include "worker/worker.h"

namespace vllm_router {

struct Request;

// Why a stream that has begun does not go on by itself.
enum class StreamCut : uint8_t {
  kLost,         // the connection ended, or its framing is broken
  kServerError,  // its last event says so
  kAborted,      // the engine has ended the generation; a loss only if its worker dies
  kDead,         // its worker was found dead
  kIdle,         // --stream-idle-timeout-secs
  kDrained,      // the drain's time is over
};
ContinueEventType EventOf(StreamCut cut);

class ContinuedStream {
 public:
  // `limits`: as the settings and the losses before the first byte say. `choices`: of the request.
  ContinuedStream(Request& request, const ContinueLimits& limits, size_t choices);
  ~ContinuedStream();
  ContinuedStream(const ContinuedStream&) = delete;
  ContinuedStream& operator=(const ContinuedStream&) = delete;

  // The sink in front of `next`; once.
  BodySink& Begin(BodySink& next);

  // True: Request::attempts has another stream, which the relay reads into the same sink. False: the client has its end,
  // or the request was cancelled. Ends soon after Request::scope is cancelled.
  Task<bool> GoOn(StreamCut cut);

  // For the record of the request.
  ContinueState state() const { return machine_.state(); }
  ContinueCut why() const { return machine_.why(); }
  uint8_t continuations() const { return machine_.continuations(); }
  int64_t gap_ns() const {
    return gap_ns_;
  }  // the longest time that the client had nothing new for want of a stream
  const std::shared_ptr<Worker>& first_worker() const { return first_worker_; }

 private:
  // Carries out what can be done at once. The rest is what GoOn() has to await.
  ContinueActions Step(const ContinueEvent& event);
  Task<ContinueEvent> Seek();  // admitted, no_target or wait_over
  Task<ContinueEvent>
  Open();  // nothing more than the head: new_failed, new_lost or new_timeout; else the relay reads on
  ContinueMethods MethodsNow() const;
  void ReportLoss();

  static void OnFirstEvent(void* self);
  static void OnCaughtUp(void* self);

  Request& request_;
  ContinueMachine machine_;
  std::optional<ContinuationSink> sink_;
  const size_t choices_;
  std::shared_ptr<Worker> first_worker_;
  std::shared_ptr<Worker> target_;
  std::optional<Permit> slot_;  // at the target
  int64_t cut_ns_ = 0;
  int64_t gap_ns_ = 0;
};

}  // namespace vllm_router
