// UpstreamRequest: one attempt of a request at one worker: LEASE, SEND and AWAIT.
//
//   LEASE a connection -> SEND head and body -> AWAIT the response's head
//
// It runs these in their order, ends them early, and owns all that belongs to the attempt. The destructor returns it,
// however the attempt ends. A RetryLoop runs several in a row.
//
//   UpstreamRequest attempt(
//       thread, settings, info, server_errors, message, hooks, std::move(ticket), std::move(pass));
//   const UpstreamRequest::End end = co_await attempt.Run(/*fresh_connection=*/false);
//   kResponded -> response(): the head, what came behind it; the rest comes from connection()
//   kFailed    -> outcome(): error(), failure()
//   kCancelled    Cancel() came first, and its caller has the reason
//
//   ticket()      the load of the worker                              routing/ticket.h
//   record()      what the record of the request says of it           attempt_record.h
//   outcome()     what circuit breaker and health check learn of it   upstream_outcome.h
//   connection()  the lease of the connection                         attempt_connection.h
//   sender()      the request, which may be sent beside its response  upstream_sender.h
//   progress()    what is known of a worker that may hang             attempt_progress.h
//   response()    the head, and what is read behind it                upstream_response.h
//
// sender().Stop() is awaited before the destructor. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "net/task.h"
#include "proxy/exchange/attempt_connection.h"
#include "proxy/exchange/attempt_progress.h"
#include "proxy/exchange/attempt_record.h"
#include "proxy/exchange/server_errors.h"
#include "proxy/exchange/upstream_message.h"
#include "proxy/exchange/upstream_outcome.h"
#include "proxy/exchange/upstream_response.h"
#include "proxy/exchange/upstream_sender.h"
#include "proxy/telemetry/request_info.h"
#include "routing/ticket.h"
#include "worker/hang_detector.h"

namespace vllm_router {

struct IoThread;
struct Settings;

class UpstreamRequest {
 public:
  using Message = UpstreamMessage;
  using Hooks = UpstreamSender::Hooks;
  enum class End : uint8_t { kResponded, kFailed, kCancelled };

  // The references must outlive it. `info` records what happens; `server_errors` holds the 5xx of the
  // request's attempts.
  UpstreamRequest(
      IoThread& thread, const Settings& settings, RequestInfo& info, ServerErrors& server_errors,
      const Message& message, const Hooks& hooks, Ticket ticket, std::optional<BreakerPass> pass);
  UpstreamRequest(const UpstreamRequest&) = delete;
  UpstreamRequest& operator=(const UpstreamRequest&) = delete;

  // Uses an idle connection of the pool, unless it must be a fresh one. If such a connection turns out
  // closed, the request is sent once more on a fresh one.
  Task<End> Run(bool fresh_connection);

  // Closes what it waits for, or the response that is being relayed.
  void Cancel();
  // The worker was found dead: an attempt that waits for its response ends as lost.
  void WorkerDied();
  // The worker is taken out of the fleet: what it has not responded to yet ends, and nothing is recorded of it.
  void WorkerDrained();
  // This attempt, which AwaitsFirstByte(), ends: another worker is to get the request, since this one is in doubt
  // (worker/hang_detector.h), or is to compute the prompt of a higher class first. Nothing is recorded of it.
  void MoveAway();
  // The worker has all of the request, and nothing of its response is here.
  bool AwaitsFirstByte() const;

  const std::shared_ptr<Worker>& worker() const { return ticket_.shared_worker(); }
  Ticket& ticket() { return ticket_; }
  AttemptRecord& record() { return record_; }
  const AttemptRecord& record() const { return record_; }
  UpstreamOutcome& outcome() { return outcome_; }
  const UpstreamOutcome& outcome() const { return outcome_; }
  AttemptConnection& connection() { return connection_; }
  const AttemptConnection& connection() const { return connection_; }
  UpstreamSender& sender() { return sender_; }
  const UpstreamSender& sender() const { return sender_; }
  AttemptProgress& progress() { return progress_; }
  UpstreamResponse& response() { return response_; }
  const UpstreamResponse& response() const { return response_; }

 private:
  void OnResponse();
  HttpError WhyEnded(UpstreamResponse::Awaited awaited) const;
  End Fail(HttpError error);

  // Each refers to those above it, and is destroyed before them.
  IoThread& thread_;
  const Settings& settings_;
  const Message& message_;
  Ticket ticket_;
  AttemptRecord record_;
  UpstreamOutcome outcome_;
  AttemptConnection connection_;
  UpstreamSender sender_;
  AttemptProgress progress_;
  UpstreamResponse response_;
  bool cancelled_ = false;
};

// Adds the wait of an attempt for its first byte, if its route has the engine compute. Attempts::AddWaits.
void AddWait(
    UpstreamRequest& attempt, Route route, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits);

}  // namespace vllm_router
