// UpstreamOutcome: how an attempt ended, and what its worker's circuit breaker, back-off and health check learn of it.
//
//   outcome.Responded(head), Failed(error)    UpstreamRequest says which
//   outcome.error(), failure()                after a failure: for the client, and for the plan of retries
//   outcome.RecordAttempt()                   tells them, once
//   outcome.RecordResponseEnd(end)            likewise, later, of a response that had begun well
//
// Only the worker's behaviour counts: not that of a client that leaves, nor of a fleet that takes the worker out. It holds
// the breaker's pass, which is returned with it. Belongs to one attempt. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "http/head_parser.h"
#include "proxy/api/error_response.h"
#include "proxy/exchange/attempt_record.h"
#include "proxy/exchange/server_errors.h"
#include "routing/retry_plan.h"
#include "routing/ticket.h"

namespace vllm_router {

struct IoThread;
struct Settings;

// How a response ended whose head was a success.
enum class ResponseEnd : uint8_t {
  kWhole,
  kBrokeOff,
  kServerError,  // a whole event stream whose last event reports a worker error
  kAborted,      // whole, but the worker aborted the generation
};

class UpstreamOutcome {
 public:
  // All must outlive it. `server_errors` holds the 5xx of the request's attempts.
  UpstreamOutcome(
      IoThread& thread, const Settings& settings, ServerErrors& server_errors, const Ticket& ticket,
      AttemptRecord& record, std::optional<BreakerPass> pass);
  UpstreamOutcome(const UpstreamOutcome&) = delete;
  UpstreamOutcome& operator=(const UpstreamOutcome&) = delete;

  void Responded(const ResponseHead& head);
  void Failed(HttpError error);
  // Whether the connection ended when the worker had the request, or had begun to respond.
  void SetLost(bool lost) { lost_ = lost; }
  // The worker was taken out of the fleet, or is in doubt and another one is to get the request: nothing is recorded.
  void Drain() { drained_ = true; }
  void Move() { moved_ = true; }

  bool responded() const { return record_.status() != 0; }
  bool drained() const { return drained_; }
  bool moved() const { return moved_; }
  // After Failed().
  HttpError error() const { return drained_ ? HttpError::kWorkerDrained : error_; }
  AttemptFailure failure() const;

  // The attempt, once it has responded or failed; a worker that ran into the deadline of the whole request; the
  // response's end.
  void RecordAttempt();
  void RecordTimeout();
  void RecordResponseEnd(ResponseEnd end);
  // Nothing more is recorded: another attempt is about to be made.
  void ReleasePass() { pass_.reset(); }

 private:
  const std::shared_ptr<Worker>& worker() const { return ticket_.shared_worker(); }
  bool unreached() const {
    return error_ == HttpError::kConnectFailed || error_ == HttpError::kConnectTimeout;
  }
  void BeginBackoff(int64_t retry_after_ms);
  void RecordStatus();
  void RecordFailure(bool reached, std::string_view why);

  IoThread& thread_;
  const Settings& settings_;
  ServerErrors& server_errors_;
  const Ticket& ticket_;
  AttemptRecord& record_;
  std::optional<BreakerPass> pass_;  // points into the worker
  int64_t retry_after_ms_ = 0;       // of the response; 0: it does not say so
  HttpError error_{};
  bool has_retry_after_ = false;  // whether or not it can be read
  bool lost_ = false;
  bool drained_ = false;
  bool moved_ = false;
  bool recorded_ = false;   // the pass has been settled
  bool succeeded_ = false;  // the head of the response was a success
};

}  // namespace vllm_router
