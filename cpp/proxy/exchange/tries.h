// Tries: steps 6 to 9 of an exchange, SELECT, LEASE, SEND and AWAIT: a worker is chosen and asked, and its answer's
// head read. Each round of them is a try; when one fails, routing/retry_plan.h says whether there is another.
//
//   SELECT -> LEASE -> SEND -> AWAIT -> answered                    the workers tried already are left out, while there
//     ^                          |                                  are others
//     `------- pause <-----------+---> no retry: the last failure is what the client gets
//
// What comes of it all is an answer to be relayed, or what to tell the client instead:
//
//   Tries::Request request{…};
//   const Tries::End end = co_await tries.Run(request);
//   kAnswered -> answer(), in(), worker() hold the head, what came behind it, and the rest to come (which is none where
//                an earlier try's answer is the best there is)
//   kFailed   -> error(), message()
//   kFull        nobody was asked, since all workers that may be chosen have --max-worker-requests; try again later
//   kCancelled   Cancel() came first, and whoever called it knows why
//
// A request that the worker's socket does not take at once, and a streamed one, are sent by a second coroutine beside
// AWAIT and RELAY, since a worker may answer before it has read everything. Belongs to one exchange.
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
#include "proxy/api/error_response.h"
#include "proxy/api/request_id.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/server_errors.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/telemetry/request_info.h"
#include "routing/request_quarantine.h"
#include "routing/retry_plan.h"
#include "routing/ticket.h"

namespace vllm_router {

class Delay;
struct Lane;

// How a response ended whose head was a success.
enum class ResponseEnd : uint8_t {
  kWhole,
  kBrokeOff,
  kServerError,  // a whole event stream, whose last event says that the worker failed
};

class Tries {
 public:
  // What is asked. All of it must stay as it is until sent().
  struct Request {
    const RequestHead* head;
    RequestBody* body;
    bool stream_body;  // piece by piece, while it arrives
    const RoutingKey* key;
    const RequestId* id;
    ClientSide client;
    bool client_restricted;  // by the quarantine: not given to a second worker after a loss
    // The only worker that will do, whatever its state, and whether --max-worker-requests holds for it.
    std::optional<WorkerId> pinned;
    bool pinned_work;
  };

  // Called with `context` while a body is streamed.
  struct Hooks {
    void (*body_failed)(void* context, RequestBody::End end);  // the client's part of it broke off
    void (*body_sent)(void* context);
    void* context;
  };

  enum class End : uint8_t { kAnswered, kFailed, kFull, kCancelled };

  // Both must outlive it. `record` learns what happens.
  Tries(Lane& lane, ExchangeRecord& record, const Hooks& hooks);
  ~Tries();
  Tries(const Tries&) = delete;
  Tries& operator=(const Tries&) = delete;

  Task<End> Run(const Request& request);

  // Closes what it waits for, or the answer that is being relayed.
  void Cancel();
  // The worker was found dead: an attempt that waits for its response ends as lost.
  void WorkerDied();

  // After kFailed.
  HttpError error() const { return error_; }
  const std::string& message() const { return message_; }  // empty: the error's own
  bool timed_out() const;                                  // while a worker had the request

  // After kAnswered.
  const ResponseHead& answer() const { return answer_parser_->head(); }
  Buffer& in() { return *answer_in_; }
  Socket& worker() { return lease_ != nullptr ? lease_->socket : no_connection_; }
  bool sent() const { return request_sent_; }  // the request, to its last byte
  // Frees what only the head was needed for; what only the request was needed for. REQUIRES for the latter: sent().
  void ForgetAnswerHead();
  void ForgetRequest();

  // The load of the last try, until finished.
  Ticket& ticket() { return ticket_; }

  // What the worker's circuit breaker is to hear of an answer's end; and of a worker that never said anything.
  void AnswerEnded(ResponseEnd end);
  void BlameWorker();
  // No further attempt follows what Run() ended with, so 5xx that earlier ones met can be put down to somebody.
  void SettleServerErrors() { server_errors_.Ended(); }

  // To be awaited before the end, since the sender works on the request.
  Task<void> StopSending();
  // The connection to the worker, back to the pool if it may be used again.
  void GiveBack(bool reusable);

 private:
  enum class Awaited : uint8_t { kHead, kEnded, kBad };

  // The last answer of a failed try, as it came: for the client, if no other worker answers.
  struct KeptAnswer {
    std::string bytes;
    std::shared_ptr<Worker> worker;
    std::optional<Decision> decision;
  };

  // Who is passed over while there are others: nobody, those that have asked for a rest, and of these and the rest those that
  // have a request that another worker was lost with.
  enum class PassOver : uint8_t { kNobody, kResting, kRestingAndEndangered };

  // Counts a request that another worker was lost with at the one that it is given to.
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

  bool Select();
  bool SelectInPanic();
  bool MayHavePath(const Worker& worker) const;
  StatusOr<Ticket> Choose();
  FleetView Eligible();
  FleetView Without(std::span<const WorkerId> tried, PassOver who) const;
  void LetRest(int64_t retry_after_ms);
  void Judge(BreakerVerdict verdict);
  void JudgeFailure(bool reached, std::string_view why);
  void JudgeTry(bool answered);
  bool AnyUntried() const;
  Task<bool> AskOnce();  // LEASE, SEND, AWAIT; true: there is an answer
  std::optional<FailedTry> Failure(bool answered) const;
  Task<bool> WaitForNextTry(int64_t pause_ns);
  void PutAnswerAside(KeptAnswer kept);
  bool FallBackOnAnswer();
  Task<bool> Connect();
  void FindDigest();
  void ReportLoss();
  bool IsSuspected();
  void WriteHead();
  void Send();
  Task<void> SendRest(size_t written);
  Task<bool> SendPieces(std::span<iovec> pieces);
  Task<Awaited> AwaitHead();
  bool HoldsHead(const ResponseHead& head) const;
  void Fail(HttpError error, std::string message = {});

  static void OnConnectTimeout(void* context);
  static void OnFirstByteTimeout(void* context);
  static void OnSendStalled(void* context);
  void GiveUp(HttpError why);

  Lane& lane_;
  ExchangeRecord& record_;
  const Hooks hooks_;
  Request request_{};
  bool replayable_ = true;  // the body can be sent once more
  bool cancelled_ = false;
  bool answered_ = false;

  HttpError error_{};
  std::string message_;
  std::optional<HttpError> given_up_;  // a deadline of this try passed, and closed its connection

  std::optional<RetryPlan> plan_;
  std::shared_ptr<const FleetView> fleet_;
  bool all_full_ = false;  // why nobody could be chosen
  absl::InlinedVector<WorkerId, 4> tried_;
  int64_t first_sent_ns_ = 0;
  Delay* pause_ = nullptr;                    // before the next try
  absl::InlinedVector<WorkerId, 4> refused_;  // by their breakers, after they had been chosen
  Ticket ticket_;
  std::optional<BreakerPass> pass_;  // points into the ticket's worker
  bool judged_ = false;              // the pass is settled
  bool sound_ = false;               // the head of the answer was a success
  ServerErrors server_errors_;
  UpstreamPool::Lease lease_;
  std::optional<KeptAnswer> kept_;
  Socket no_connection_;                    // of a kept answer
  std::shared_ptr<Resolver::Waiter> name_;  // of the worker's host, while it is looked up
  Connector* connector_ = nullptr;          // a connect in progress
  bool connect_timed_out_ = false;

  std::string head_for_worker_;
  bool request_sent_ = false;
  bool sending_ = false;
  Signal sender_done_;

  std::unique_ptr<ResponseHeadParser> answer_parser_;
  std::optional<Buffer> answer_in_;
  bool worker_spoke_ = false;  // a byte of an answer came, informational or not
  bool had_request_ = false;   // a worker had the whole request when the connection ended
  bool lost_once_ = false;     // in this or an earlier attempt, so only fresh connections are used
  Endangers endangers_;        // the worker of this attempt, if there was a loss before
  std::optional<RequestDigest> digest_;

  Timer deadline_;       // of the step
  Timer send_deadline_;  // of the sender, which runs beside the steps
};

}  // namespace vllm_router
