// Attempts: what gets an admitted request its response, and what the exchange needs of it while it relays that.
//
//   RetryLoop    one worker after the other (retry_loop.h)
//   PdExchange   a prefill worker and a decode worker (proxy/disaggregation/pd_exchange.h)
//
// The result of Run():
//
//   kResponded -> response(): it arrives, or is an earlier attempt's if that is the best available
//   kFailed    -> error(), message()
//   kFull      -> no attempt was made: all eligible workers have --max-worker-requests; run again later
//   kEvicted   -> Evict() came first: run again when the request has its turn, as if it had not been run
//   kCancelled -> Cancel() came first, and its caller has the reason
//
// Belongs to one exchange. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/task.h"
#include "proxy/api/error_response.h"
#include "proxy/api/request_id.h"
#include "proxy/exchange/arriving_response.h"
#include "proxy/exchange/upstream_request.h"
#include "proxy/exchange/worker_choice.h"
#include "routing/body_patch.h"
#include "worker/hang_detector.h"

namespace vllm_router {

class Attempts {
 public:
  enum class End : uint8_t { kResponded, kFailed, kFull, kEvicted, kCancelled };

  // What is to be served. Everything outlives the attempts.
  struct Call {
    UpstreamRequest::Message message;
    WorkerChoice::Request choice;
    const RequestId* id;
    bool client_restricted;  // by the quarantine: not given to a second worker after a loss
    std::span<const BodyInsertion> insertions;  // for attempts that make their own copies of the body
  };

  explicit Attempts(IoThread& thread) : response_(thread) {}
  virtual ~Attempts() = default;
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  // Until one responds, or none follows. Again after kFull.
  virtual Task<End> Run(const Call& call) = 0;
  // Closes what it waits for, or the response that is being relayed.
  virtual void Cancel() = 0;
  // After Cancel(): what is kept open for the workers' sake ends now, too.
  virtual void CancelKept() {}
  // Whether this worker has the request.
  virtual bool IsAt(const Worker& worker) const = 0;
  // The worker was found dead: an attempt that waits for its response ends as lost.
  virtual void WorkerDied(const Worker& worker) = 0;
  // The worker drains, and its time is over: an attempt that waits for its response ends, without blame, and
  // another may follow. False: it is too late for that, since there is a response.
  virtual bool WorkerDrained(const Worker& worker) = 0;

  // Adds a request that waits at a worker for its first token, if there is one. `reads_bodies`: how many may still be
  // parsed.
  virtual void AddWaits(
      const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) = 0;
  // The worker is in doubt: a request that is overdue there goes to another worker, if it may. True: it does.
  virtual bool MoveFrom(const Worker& worker, const HangDetector::Doubt& doubt, size_t* reads_bodies) = 0;

  // Another request needs the worker more. An attempt that waits there for its first byte ends, without blame. False: it
  // does not, since there is none, it cannot be repeated, or another one failed before.
  virtual bool Evict() { return false; }

  // After kFailed.
  HttpError error() const { return error_; }
  const std::string& message() const { return message_; }  // empty: the error's default
  bool timed_out() const {                                 // while a worker had the request
    return error_ == HttpError::kFirstByteTimeout || error_ == HttpError::kWorkerWriteTimeout;
  }

  // After kResponded; its ticket and its connection at any time: they are those of the last attempt then.
  ArrivingResponse& response() { return response_; }
  const ArrivingResponse& response() const { return response_; }

  virtual bool sent() const = 0;  // the request, to its last byte
  // Frees what only the request needed. REQUIRES: sent().
  virtual void ForgetRequest() = 0;

  // Prefill's usage, as UsageOf(), which the stream that decode sends gets; empty as long as it is not known. Null:
  // decode's stays as it is.
  virtual const std::string* prefill_usage() const { return nullptr; }

  // Reports to the worker's circuit breaker and the quarantine how a response ended; or that the worker
  // did not respond within the deadline of the whole request.
  virtual void ResponseEnded(ResponseEnd end) = 0;
  virtual void RecordTimeout() = 0;
  // No attempt follows the result of Run(), so the 5xx of earlier attempts can be attributed.
  virtual void SettleServerErrors() = 0;

  // Await this before the end: senders use the request, and what is kept open uses all of it.
  virtual Task<void> Finished() = 0;

 protected:
  void Fail(HttpError error, std::string message = {}) {
    error_ = error;
    message_ = std::move(message);
  }

  ArrivingResponse response_;

 private:
  HttpError error_{};
  std::string message_;
};

}  // namespace vllm_router
