// RetryLoop: step 6 of an exchange, SELECT, and the attempts that follow it (upstream_request.h). After
// a failed one, routing/retry_plan.h decides whether there is another.
//
//   SELECT -> UpstreamRequest -> responded         workers that were attempted are left out, while there
//     ^             |                              are others
//     `-- pause <---+---> no retry: the client gets the last failure
//
// The result is a response to relay, or an error for the client:
//
//   RetryLoop::Request request{…};
//   const RetryLoop::End end = co_await retry_loop.Run(request);
//   kResponded -> response(), in(), worker() hold the head, what came behind it, and the rest to come
//                 (which is none if an earlier attempt's response is the best available)
//   kFailed    -> error(), message()
//   kFull      -> no attempt was made: all eligible workers have --max-worker-requests; run again later
//   kCancelled -> Cancel() came first, and its caller has the reason
//
// Belongs to one exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <absl/container/inlined_vector.h>

#include "proxy/api/request_id.h"
#include "proxy/exchange/upstream_request.h"
#include "routing/request_quarantine.h"
#include "routing/retry_plan.h"

namespace vllm_router {

class Delay;
class RequestedModel;

class RetryLoop {
 public:
  struct Request {
    UpstreamRequest::Message message;
    const RoutingKey* key;
    const RequestId* id;
    bool client_restricted;  // by the quarantine: not given to a second worker after a loss
    // The only worker that will do, whatever its state, and whether --max-worker-requests holds for it.
    std::optional<WorkerId> pinned;
    bool pinned_work;
    const RequestedModel* model;  // null: any worker will do
  };

  enum class End : uint8_t { kResponded, kFailed, kFull, kCancelled };

  // All must outlive it. `info` records what happens.
  RetryLoop(
      IoThread& thread, const Settings& settings, RequestInfo& info, const UpstreamRequest::Hooks& hooks);
  ~RetryLoop();
  RetryLoop(const RetryLoop&) = delete;
  RetryLoop& operator=(const RetryLoop&) = delete;

  Task<End> Run(const Request& request);

  // Closes what it waits for, or the response that is being relayed.
  void Cancel();
  // The worker was found dead: an attempt that waits for its response ends as lost.
  void WorkerDied();

  // After kFailed.
  HttpError error() const { return error_; }
  const std::string& message() const { return message_; }  // empty: the error's default
  bool timed_out() const;                                  // while a worker had the request

  // After kResponded.
  const ResponseHead& response() const { return kept_in_ ? kept_parser_->head() : attempt_->response(); }
  Buffer& in() { return kept_in_ ? *kept_in_ : attempt_->in(); }
  Socket& worker() { return HasConnection() ? attempt_->socket() : no_connection_; }
  bool sent() const { return attempt_ && attempt_->sent(); }  // the request, to its last byte
  // Frees what only the head needed; what only the request needed. REQUIRES for the latter: sent().
  void ForgetResponseHead();
  void ForgetRequest();

  // The load of the last attempt, until finished.
  Ticket& ticket() { return attempt_ ? attempt_->ticket() : no_ticket_; }

  // Reports to the worker's circuit breaker and the quarantine how a response ended; or that the worker
  // did not respond within the deadline of the whole request.
  void ResponseEnded(ResponseEnd end);
  void RecordTimeout();
  // No attempt follows the result of Run(), so the 5xx of earlier attempts can be attributed.
  void SettleServerErrors() { server_errors_.Ended(); }

  // Await this before the end, since the sender uses the request.
  Task<void> StopSending();
  // Returns the connection to the worker to the pool, if it is reusable.
  void ReleaseConnection(bool reusable);

 private:
  // The last response of a failed attempt, as it came: for the client, if no other worker responds.
  struct KeptResponse {
    std::string bytes;
    std::shared_ptr<Worker> worker;
    Decision decision;
  };

  // A worker with reserved load, admitted by its circuit breaker.
  struct Selected {
    Ticket ticket;
    std::optional<BreakerPass> pass;
  };

  // Which workers are passed over while there are others: none, those in back-off (Retry-After), or also
  // those with a request that was in flight at a lost worker.
  enum class PassOver : uint8_t { kNone, kBackoff, kBackoffAndEndangered };

  // Counts a request that was in flight at a lost worker at the worker that gets it next.
  class Endangers {
   public:
    Endangers() = default;
    ~Endangers() { End(); }
    Endangers(const Endangers&) = delete;
    Endangers& operator=(const Endangers&) = delete;
    void Begin(const std::shared_ptr<Worker>& worker) {
      End();
      worker->lost_elsewhere.fetch_add(1, std::memory_order_relaxed);
      worker_ = worker;
    }
    void End() {
      if (worker_ != nullptr) worker_->lost_elsewhere.fetch_sub(1, std::memory_order_relaxed);
      worker_ = nullptr;
    }

   private:
    std::shared_ptr<Worker> worker_;
  };

  bool HasConnection() const { return attempt_ && attempt_->has_connection(); }
  std::optional<Selected> Select();
  std::optional<Selected> SelectPinned(Ticket ticket);
  std::optional<Selected> SelectInPanic();
  bool MayHavePath(const Worker& worker) const;
  StatusOr<Ticket> Choose();
  std::shared_ptr<const FleetView> Fleet() const;
  FleetView Eligible();
  FleetView Without(std::span<const WorkerId> attempted, PassOver which) const;
  bool AnyUntried() const;
  FailedAttempt Failure() const;
  Task<bool> WaitForNextAttempt(int64_t pause_ns);
  void KeepResponse();
  bool UseKeptResponse();
  void FindDigest();
  void ReportLoss();
  bool IsSuspected();
  void Fail(HttpError error, std::string message = {});

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  const UpstreamRequest::Hooks hooks_;
  Request request_{};
  bool cancelled_ = false;

  HttpError error_{};
  std::string message_;

  std::optional<RetryPlan> plan_;
  std::shared_ptr<const FleetView> fleet_;
  bool all_full_ = false;  // why no worker could be chosen
  absl::InlinedVector<WorkerId, 4> attempted_;
  absl::InlinedVector<WorkerId, 4> refused_;  // by their breakers, after they had been chosen
  int64_t first_sent_ns_ = 0;
  Delay* pause_ = nullptr;  // before the next attempt
  bool lost_once_ = false;  // in this or an earlier attempt, so only fresh connections are used
  Endangers endangers_;     // the worker of this attempt, if there was a loss before
  std::optional<RequestDigest> digest_;
  ServerErrors server_errors_;
  std::optional<UpstreamRequest> attempt_;  // the last one

  std::optional<KeptResponse> kept_;
  std::unique_ptr<ResponseHeadParser> kept_parser_;  // once it is what the client gets
  std::optional<Buffer> kept_in_;
  Socket no_connection_;
  Ticket no_ticket_;
};

}  // namespace vllm_router
