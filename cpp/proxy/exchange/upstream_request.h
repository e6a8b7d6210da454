// UpstreamRequest: one attempt of a request at one worker: LEASE, SEND and AWAIT.
//
//   LEASE a connection -> SEND head and body -> AWAIT the response's head
//
// It owns all that belongs to the attempt: the ticket (the worker's load), the pass of the worker's
// circuit breaker, the lease of the connection, the response's parser and buffer, the deadlines. The
// destructor returns them, however the attempt ends. A RetryLoop runs several in a row.
//
//   UpstreamRequest attempt(
//       thread, settings, info, server_errors, message, hooks, std::move(ticket), std::move(pass));
//   const UpstreamRequest::End end = co_await attempt.Run(/*fresh_connection=*/false);
//   kResponded -> response(), in(), socket(): the head, what came behind it, and where the rest comes from
//   kFailed    -> error()
//   kCancelled    Cancel() came first, and its caller has the reason
//
// A second coroutine beside AWAIT and the relay sends streamed requests and what the worker's socket
// does not take at once, since a worker may respond before it has read everything. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <absl/container/inlined_vector.h>

#include "http/head_parser.h"
#include "net/buffer.h"
#include "net/resolver.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "net/write_all.h"
#include "proxy/api/error_response.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/server_errors.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/telemetry/request_info.h"
#include "routing/body_patch.h"
#include "routing/retry_plan.h"
#include "routing/ticket.h"
#include "worker/hang_detector.h"

namespace vllm_router {

class BodyClaim;
struct IoThread;
struct Settings;

// How a response ended whose head was a success.
enum class ResponseEnd : uint8_t {
  kWhole,
  kBrokeOff,
  kServerError,  // a whole event stream whose last event reports a worker error
  kAborted,      // whole, but the worker aborted the generation
};

class UpstreamRequest {
 public:
  // What is sent. All of it must stay unchanged until sent().
  struct Message {
    const RequestHead* head;
    RequestBody* body;
    bool stream_body;  // piece by piece, while it arrives
    ClientSide client;
    // An edited copy of the body, which is then whole; null: the body as it is.
    const SplicedBody* copy = nullptr;
    // Of one of the two requests that a prefill worker and a decode worker get (pd_exchange.h).
    struct Pair {
      bool is_prefill = false;
      bool identity = false;              // the response must not be compressed
      int64_t first_byte_timeout_ms = 0;  // 0: as the settings say
    };
    std::optional<Pair> pair = {};

    // Whether the body can be sent once more.
    bool replayable() const { return !stream_body || body->keeps_pieces(); }
  };

  // Called with `context` while a body is streamed.
  struct Hooks {
    void (*body_failed)(void* context, RequestBody::End end);  // the client's upload broke off
    void (*body_sent)(void* context);
    void* context;
    void (*sending)(void* context) = nullptr;  // its first byte is about to be written
  };

  enum class End : uint8_t { kResponded, kFailed, kCancelled };

  // The references must outlive it. `info` records what happens; `server_errors` holds the 5xx of the
  // request's attempts.
  UpstreamRequest(
      IoThread& thread, const Settings& settings, RequestInfo& info, ServerErrors& server_errors,
      const Message& message, const Hooks& hooks, Ticket ticket, std::optional<BreakerPass> pass);
  ~UpstreamRequest();
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
  bool drained() const { return drained_; }
  // The worker is in doubt (worker/hang_detector.h), and this attempt, which AwaitsFirstByte(), ends: another worker is
  // to get the request. Nothing is recorded of it.
  void MoveAway();
  bool moved() const { return moved_; }
  // The worker has all of the request, and nothing of its response is here.
  bool AwaitsFirstByte() const {
    return sent_ && !responded_ && !given_up_ && lease_ != nullptr && !lease_->socket.HasUnread();
  }
  // Then: what HangDetector has to know of it. `reads_bodies`: how many bodies may still be parsed; at 0 a request whose
  // body was not counts as one that does not stream.
  HangDetector::Wait DescribeWait(size_t* reads_bodies);
  // The first byte of the response's body came; calls after the first have no effect.
  void CountFirstByte();

  // After kFailed.
  HttpError error() const { return drained_ ? HttpError::kWorkerDrained : error_; }
  AttemptFailure failure() const;

  // After kResponded.
  const ResponseHead& response() const { return parser_->head(); }
  Buffer& in() { return *in_; }
  Socket& socket() { return lease_->socket; }
  bool has_connection() const { return lease_ != nullptr; }
  bool sent() const { return sent_; }  // the request, to its last byte
  // Frees what only the head needed; what only the request needed. REQUIRES for the latter: sent().
  void ForgetResponseHead();
  void ForgetRequest() { std::string().swap(head_for_worker_); }
  // Whether bytes of a response have come, read or not.
  bool HasArrived() const { return worker_spoke_ || (lease_ != nullptr && lease_->socket.HasUnread()); }
  // Waits for the whole response and returns the connection to the pool. response() stays; in() is as before.
  // kNoMemory: beyond kSmallBodyBytes its bytes are held by `memory`, which may be null.
  enum class Rest : uint8_t { kWhole, kTooLong, kBrokeOff, kTimeout, kNoMemory };
  struct Whole {
    std::string bytes = {};  // as they came, the head included; empty if only the body was wanted
    std::string body = {};   // without its framing
  };
  Task<Rest> ReadWhole(
      size_t most, int64_t timeout_ms, bool keep_bytes, Whole* whole, BodyClaim* memory = nullptr);
  // Waits for more behind in(). False: the connection ended, or nothing came within the time; it stays open then.
  Task<bool> ReadMore(int64_t timeout_ms);
  // Takes the whole of a response that is not for the client, head and body as they came, and returns
  // the connection to the pool. Empty if it is too long or has not come whole; the connection is then
  // closed.
  std::optional<std::string> TakeWholeResponse();

  const std::shared_ptr<Worker>& worker() const { return ticket_.shared_worker(); }
  Ticket& ticket() { return ticket_; }
  const Ticket& ticket() const { return ticket_; }
  int64_t first_sent_ns() const { return own_info_.sent_ns; }  // 0: nothing was sent

  // The attempt has ended, `error` being why if it has not failed by itself. Adds it to those of the request; calls after
  // the first have no effect.
  void AddTo(RequestInfo* request, std::string_view error = {});
  // The same for one that is relayed, at the end of its request.
  void AddRelayedTo(RequestInfo* request);

  // Reports to the worker's circuit breaker: the attempt, once Run() has returned; a worker that ran
  // into the deadline of the whole request; the response's end.
  void RecordAttempt();
  void RecordTimeout();
  void RecordResponseEnd(ResponseEnd end);
  // Nothing more is recorded: another attempt is about to be made.
  void ReleasePass() { pass_.reset(); }

  // Await this before the end, since the sender uses the request. Closes the connection if it is still
  // sending.
  Task<void> StopSending();
  bool sending() const { return sending_; }
  // Returns the connection to the worker to the pool, if it is reusable.
  void ReleaseConnection(bool reusable);

 private:
  enum class Kind : uint8_t { kNotRead, kStream, kPlain };
  enum class Awaited : uint8_t { kHead, kEnded, kBad };
  using Pieces = absl::InlinedVector<iovec, 8>;

  // The worker had the whole request when the connection ended.
  bool was_lost() const { return lost_; }
  bool unreached() const {
    return error_ == HttpError::kConnectFailed || error_ == HttpError::kConnectTimeout;
  }
  Pieces HeadAndBody() const;
  int64_t FirstByteTimeout() const;
  void FollowProgress();

  Task<bool> Connect();
  void WriteHead();
  void Send();
  Task<void> SendRest(size_t written);
  Task<Awaited> AwaitHead();
  bool HoldsHead(const ResponseHead& head) const;
  void BeginBackoff(int64_t retry_after_ms);
  void RecordResult(BreakerResult result);
  void RecordFailure(bool reached, std::string_view why);
  void GiveUp(HttpError why);
  End Fail(HttpError error);

  static void OnConnectTimeout(void* context);
  static void OnFirstByteTimeout(void* context);
  static void OnReadMoreTimeout(void* context);
  static void OnSendStalled(void* context);

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  ServerErrors& server_errors_;
  const Message message_;
  const Hooks hooks_;
  Ticket ticket_;
  std::optional<BreakerPass> pass_;  // points into the worker
  bool recorded_ = false;            // the pass has been settled
  bool succeeded_ = false;           // the head of the response was a success
  bool cancelled_ = false;
  bool drained_ = false;
  bool moved_ = false;
  bool responded_ = false;
  bool counts_ = false;         // the response shows that the engine serves, as soon as it has a byte
  Kind kind_ = Kind::kNotRead;  // as the request says, later as the response does
  uint32_t client_ = 0;         // its ClientTag

  HttpError error_{};
  bool lost_ = false;
  std::optional<HttpError> given_up_;  // a deadline passed and closed the connection

  UpstreamPool::Lease lease_;
  std::shared_ptr<Resolver::Waiter> name_;  // of the worker's host, during its lookup
  Connector* connector_ = nullptr;          // a connect in progress
  bool connect_timed_out_ = false;

  std::string head_for_worker_;
  AttemptInfo own_info_;     // but for the worker
  bool added_ = false;       // that, to the request's
  int64_t all_sent_ns_ = 0;  // 0: the request has not been sent whole
  bool sent_ = false;
  bool sending_ = false;
  Signal sender_done_;

  std::unique_ptr<ResponseHeadParser> parser_;
  std::optional<Buffer> in_;
  bool worker_spoke_ = false;  // a byte of a response came, informational or not

  Timer deadline_;       // of the step
  Timer send_deadline_;  // of the sender, which runs beside the steps
};

// Of an attempt that waits for its first byte, if its route has the engine compute. Attempts::AddWaits.
void AddWait(
    UpstreamRequest& attempt, Route route, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits);

}  // namespace vllm_router
