// AttemptRecord: what the record of a request says of one attempt: the times of its steps, the status, the error.
//
//   AttemptRecord record(info, worker, AttemptPhase::kInference);
//   record.Connected(now, reused); record.Sending(now); record.ReceivedHead(now);
//   record.AddTo(&info, now);
//
// The request's own times are those of its last attempt, so these are written to its record at once, and the attempt's
// row when it has ended. No clock. Belongs to one attempt.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "proxy/telemetry/request_info.h"
#include "tracing/trace_context.h"

namespace vllm_router {

class AttemptRecord {
 public:
  // `info` outlives it.
  AttemptRecord(RequestInfo& info, std::shared_ptr<Worker> worker, AttemptPhase phase);

  void Connected(int64_t now_ns, bool reused);
  void Sending(int64_t now_ns);  // its first byte
  void AddStalls(uint32_t waits) { info_.worker_stalls += waits; }
  void ReceivedHead(int64_t now_ns);
  void ReceivedBody(int64_t now_ns) { attempt_.first_body_ns = now_ns; }
  void Responded(int status) { attempt_.status = status; }
  // The reused connection was closed; the request is sent once more.
  void SendsAgain() { info_.stale_retry = true; }
  void Failed(int64_t now_ns, std::string_view error);

  Route route() const { return info_.route; }                 // the request's
  int64_t first_sent_ns() const { return attempt_.sent_ns; }  // 0: nothing was sent
  int64_t last_sent_ns() const { return info_.sent_ns; }
  int status() const { return attempt_.status; }  // of the response; 0: there is none
  // The span that the worker is told, the same on another connection.
  uint64_t SpanIn(RequestTrace& trace);

  // Adds the attempt to those of the request; calls after the first have no effect. If it has not failed by itself, it
  // ends at `now_ns`, because of `error`.
  void AddTo(RequestInfo* request, int64_t now_ns, std::string_view error = {});
  // The same for one that is relayed: it is cut where its request is.
  void AddRelayedTo(RequestInfo* request, int64_t now_ns);

 private:
  RequestInfo& info_;
  AttemptInfo attempt_;
  bool added_ = false;
};

}  // namespace vllm_router
