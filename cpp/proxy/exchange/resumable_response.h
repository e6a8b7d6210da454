// ResumableResponse: an event stream on its way to a client that another worker may finish, should its own not. A step
// makes one before the relay (MakeResumable), which finds it by ResumableOf().
//
//   worker ─▶ Relay ─▶ the sink of Begin() ─▶ client
//
//   the relay ended ─▶ Resume()   kResumed   Request::attempts has another response; its body goes to the same sink
//                                 kEnds      the client's stream ends as the relay did
//                                 kDiffers   what came is no continuation of what the client has, which gets no more
//                                 kWritten   all was there but the end, and now the client has that as well
//
// A reason to cancel an exchange for its worker's sake may end the worker's stream alone: LeaveWorkerOrCancel().
// Belongs to one Request. One thread.
#pragma once

#include <cstdint>

#include "http/stream_tail.h"
#include "net/task.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/request.h"

namespace vllm_router {

class ResumableResponse {
 public:
  enum class Resumed : uint8_t { kEnds, kResumed, kDiffers, kWritten };

  explicit ResumableResponse(Request& request) : request_(request) {}
  virtual ~ResumableResponse() = default;
  ResumableResponse(const ResumableResponse&) = delete;
  ResumableResponse& operator=(const ResumableResponse&) = delete;

  // What the relay writes to in place of `client`, which outlives it. Once.
  virtual BodySink& Begin(BodySink& client) = 0;
  // Another worker could finish it, if its own ended now.
  virtual bool MayResume() const = 0;
  // The relay has ended like this, and the client is there. Ends soon after Request::scope is cancelled.
  virtual Task<Resumed> Resume(Relay::End end) = 0;
  // The worker whose stream is relayed was found dead: it may leave that worker earlier than others are cut.
  virtual void WorkerDied() = 0;
  // The relay has ended for good: what Begin() returned is about to go.
  virtual Task<void> Ended() = 0;
  // The worker whose stream is relayed drains: the stream may leave it, if another worker goes on with it.
  virtual void WorkerDrains() = 0;
  // Of a second run beside the worker's stream; null: there is none.
  virtual Attempts* beside() = 0;
  // How much of the body went on to the client.
  virtual uint64_t bytes() const = 0;
  // More than one worker's response is part of it.
  virtual bool resumed() const = 0;
  // The client's bytes are not the worker's.
  virtual bool rewrites() const = 0;
  // What the last worker's part says, as the whole does.
  virtual void Correct(StreamSummary* summary) const = 0;

  // Ends the worker's stream, and not the exchange. False: no other worker can finish it now.
  bool LeaveWorker(CancelReason reason);
  CancelReason left_worker() const { return left_worker_; }
  // Another worker is sought: Attempts has no response.
  bool resuming() const { return resuming_; }

 protected:
  // LeaveWorker() has closed its connection. A sink that keeps the relay waiting ends that now.
  virtual void Left() = 0;

  Request& request_;
  CancelReason left_worker_ = CancelReason::kNone;  // why its stream was ended
  bool resuming_ = false;
};

// `response` outlives the request's relay.
void MakeResumable(Request& request, ResumableResponse& response);
void MakeUnresumable(Request& request);
// Null: no other worker can finish it.
ResumableResponse* ResumableOf(const Request& request);
// Ends the worker's stream if another worker may finish it, else the exchange.
void LeaveWorkerOrCancel(Request& request, CancelReason reason);

}  // namespace vllm_router
