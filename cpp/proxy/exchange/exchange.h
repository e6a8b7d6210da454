// Exchange: one request and its response, from the first byte of the head to the last byte relayed.
// Run() is the table of contents; its numbered steps are those of docs/explanation/life_of_a_request.md.
//
//   1 HEAD  2 VALIDATE  3 BODY  4 FIELDS  5 ADMIT  6 SELECT  7 LEASE  8 SEND  9 AWAIT  10 RELAY  11 FINISH
//                                                  |         `-- upstream_request --´
//                                                  `-- retry_loop: once for each attempt
//
// Every exchange reaches FINISH: the Ticket returns the load, the Lease returns the connection to the
// worker, and one record is written. An event that ends it early (the client leaves, a deadline passes,
// the server stops) calls Cancel(), which closes what the exchange waits for; the coroutine resumes,
// sees the reason, and unwinds. One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "http/head_parser.h"
#include "net/frame_pool.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/write_all.h"
#include "proxy/api/error_response.h"
#include "proxy/api/request_id.h"
#include "proxy/exchange/cached_request.h"
#include "proxy/exchange/pd_exchange.h"
#include "proxy/exchange/pd_request.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/exchange/retry_loop.h"
#include "proxy/exchange/sse_keepalive.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/security/key_validator.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/permit.h"
#include "routing/model_alias.h"
#include "routing/request_view.h"

namespace vllm_router {

class Connection;
struct AdminReply;
class CancelScope;
class Delay;
class Relay;
struct IoThread;
struct Settings;

enum class CancelReason : uint8_t {
  kNone,
  kClientGone,
  kSlowClient,
  kBodyFailed,  // the request body broke off while it was being streamed
  kIdleTimeout,
  kTotalTimeout,
  kSlowWorker,  // took nothing that a WebSocket client sent
  kShutdown,
  kDrained,     // its worker is draining, and the drain timeout passed
  kWorkerDead,  // its worker was found dead, and the grace for running requests has passed
};

class Exchange {
 public:
  explicit Exchange(Connection& connection);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  static void* operator new(size_t size) { return FramePool::Acquire(size); }
  static void operator delete(void* exchange, size_t size) noexcept { FramePool::Release(exchange, size); }

  // Afterwards connection.keep says whether another request may follow.
  Task<void> Run();

  // The first reason counts. Any time on the thread.
  void Cancel(CancelReason reason);

  // A long operation of our own, or a wait for a worker of a model, which may take minutes; a stopping server does not
  // wait for it.
  bool IsLongRunning() const;
  bool IsAt(const Worker& worker) const { return attempts_->IsAt(worker); }
  // A worker of the exchange was found dead: a response that has begun gets a grace, any other attempt ends
  // now.
  void WorkerDied(const Worker& worker);
  // It writes this page, of which other responses may be parts, too.
  bool IsWriting(const AdminReply& page) const { return page_ == &page; }
  // A worker of the exchange drains, and its time is over: a response that has begun is cut, any other attempt
  // ends now, and another worker gets the request.
  void WorkerDrained(const Worker& worker);
  // As those of Attempts.
  void AddWaits(const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
    if (attempts_->IsAt(worker)) attempts_->AddWaits(worker, reads_bodies, waits);
  }
  bool MoveFrom(const Worker& worker, const HangDetector::Doubt& doubt, size_t* reads_bodies) {
    return attempts_->IsAt(worker) && attempts_->MoveFrom(worker, doubt, reads_bodies);
  }

 private:
  struct Rewritten {
    std::string path;    // without dot segments
    std::string target;  // without an alias of a model in its query
  };

  // Where a step leads: to the next one, or to FINISH because the exchange is over (responded or cut).
  enum class Next : uint8_t { kOn, kFinish };

  Task<Next> ReadHead();
  Task<Next> ValidateRequest();
  Task<bool> RejectRoutingLoop();
  Task<bool> Authorize();
  Task<std::optional<HttpError>> ValidateKey(KeyValidator& validator);
  Task<bool> RejectOverride();
  Task<bool> RejectOverload();
  // That it takes, by the settings.
  Access AccessOfRoute() const;
  bool CountsInRateLimit() const;
  bool HasAdminKey() const;
  Task<void> Reject(HttpError error, int64_t retry_after_ns = 0);
  uint64_t MostOwnBytes() const;
  Task<void> RespondLocally();
  Task<AdminReply> FanOutToAll(CancelScope& scope);
  Task<Next> ReadBody();
  Task<Next> UseCache();
  Task<void> ReplayStored();
  void OutdateCache();
  void InvalidateCache();
  std::vector<HeaderField> ExtraFields() const;
  // Its workers depend on its model, which is in the body.
  bool ReadsModel() const;
  // The model that this request for an alias is for.
  std::string TargetOf(const ModelAliases::Alias& alias);
  Task<Next> FindModel();
  Task<Next> FindModelInQuery();
  Rewritten& Rewrite() {
    if (rewritten_ == nullptr) rewritten_ = std::make_unique<Rewritten>();
    return *rewritten_;
  }
  // `must_exist`: else a name that is not known is left to the worker.
  Task<Next> FindModelOf(std::string name, bool must_exist);
  Task<RequestedModel::Result> WaitForModel(const std::string& name, ModelDemand& demand);
  Task<Next> FillForModel();
  std::shared_ptr<const FleetView> Fleet() const;
  void MakeKey();
  Task<Next> CheckQuarantine();
  bool MayNameResponse() const;
  Task<Next> FindResponse();
  ClientSide Client() const;
  bool IsRecorded() const;
  bool NeedsBody() const;
  void KeepPrompt(const RequestView& request);
  Task<Next> Admit();
  Task<Next> WaitForWorker();
  Task<Next> AfterWait(Permit::End end);
  void WatchQueued();
  static void OnClientEnded(void* context);
  static Permit::Worth MayHaveCapacity(IoThread& thread, const void* exchange);
  // The ids of a prefix are known, and the rest would match no KV events: or none at all.
  bool MayWaitForTokens() const;
  Task<Next> FindTokens();
  void FindTokensLater();
  bool MayShareHolders() const {
    return thread_.shared_prefixes != nullptr && key_.prefix_digest.has_value();
  }
  Task<Next> FindSharedHolders();
  bool MayQueryPool() const;
  Task<Next> QueryPool();
  // What the request is for a fleet with stages.
  PdRoute PathInStages() const;
  Task<void> RejectPath();
  Task<Next> TakeShortBody();
  Task<Next> PlanStages();
  Task<Next> StripBody();
  // Requests to Anthropic's API get a marker, or lose a block, if the operator wants that.
  bool MayEditMessage() const;
  void EditMessage();
  void CountRemoved(const StrippedMembers& removed);
  // Of the worker that gets it first, where a fleet has stages.
  Stage FirstStage() const;
  Task<Next> Ask();  // SELECT, LEASE, SEND, AWAIT
  Task<Attempts::End> RunAttempts();
  // Comments until the response begins, to a client that wants a stream.
  void BeginKeepalive();
  // The client has the head of a stream, and may have nothing of a response yet.
  bool SentHead() const { return keepalive_ != nullptr && keepalive_->sent_head(); }
  Task<void> EndStream(std::string_view events);
  Task<void> RelayAsEvents();
  Task<void> RelayResponse();
  Task<void> RelayWebSocket();
  std::string HeadForClient(const ResponseHead& response, BodyFraming framing, bool explains = true);
  static std::string KeepaliveHead(void* context);
  void ForgetRequest();
  void CutClient();
  void SendCutEvent();
  void Finish();

  // The router's own responses.
  Task<void> Reply(
      int status, std::string_view body, std::string_view content_type = "application/json",
      std::span<const HeaderField> extra = {});
  // Before each response of the router's own.
  void BeginReply(int status);
  // The response's bytes, with the body or without.
  std::string WriteReply(
      int status, std::string_view body, std::string_view content_type, std::span<const HeaderField> extra,
      bool with_body);
  Task<void> ReplyPage(AdminReply reply);
  Task<void> ReplyError(
      HttpError error, std::string message = {}, std::span<const HeaderField> extra = {}, int status = 0);
  Task<void> ReplyBodyFailed(RequestBody::End end);
  Task<void> ReplyCancelled();
  Task<void> ReplyNothing();
  WriteStall ClientStall(Timer& timer);
  Task<bool> WriteToClient(std::string_view bytes);

  void WatchClient();
  void ArmDeadline(int64_t ms, Timer::Callback callback);
  bool RequestFullyRead() const { return body_.has_value() && body_->complete(); }

  // Callbacks of sockets and timers, with the exchange as context.
  static void OnClientReadable(void* context);
  static void OnClientLeft(void* context);
  static void OnRestLate(void* context);
  static void OnClientTooSlow(void* context);
  static void OnClientStalled(void* context);
  static void OnKeepaliveLost(void* context, bool slow);
  static void OnBodyFailed(void* context, RequestBody::End end);
  static void OnBodySent(void* context);
  static void OnFirstBodyByte(void* context);
  ResponseProgress* ProgressOfResponse() const;
  static void OnWorkerIdle(void* context);
  static void OnWorkerStalled(void* context);
  static void OnTotalDeadline(void* context);
  static void OnDeadWorkerGrace(void* context);

  Connection& connection_;
  IoThread& thread_;
  const Settings& settings_;  // the connection's
  std::unique_ptr<RequestHeadParser> head_parser_;
  std::unique_ptr<Rewritten> rewritten_;  // null: the request's are as they came
  const RequestHead* head_ = nullptr;     // null before HEAD, and in RELAY once not needed
  std::optional<RequestBody> body_;
  bool stream_body_ = false;  // the body plan
  RequestId request_id_;
  struct Browser {
    std::string origin;               // of the requesting page; may be empty
    std::vector<HeaderField> fields;  // for CORS, of the response
  };
  std::unique_ptr<Browser> browser_;    // null: it sends no Origin, and CORS is off
  std::unique_ptr<std::string> ahead_;  // pipelined bytes that arrived meanwhile; null: none
  bool client_too_slow_ = false;
  bool proxied_ = false;  // counted in in_flight

  std::unique_ptr<CachedRequest> cache_;   // null: off, or no inference
  std::unique_ptr<std::string> outdates_;  // the model whose weights this request changes; empty: any
  Permit permit_;                          // from ADMIT to FINISH
  RoutingKey key_;
  std::unique_ptr<RequestedModel> model_;        // null: any worker will do
  std::unique_ptr<CostOverride> cost_override_;  // the client's; null: none

  std::shared_ptr<KeyValidator::Waiter> validation_;  // being waited for
  CancelScope* scope_ = nullptr;                      // of an own request that is being waited for
  const AdminReply* page_ = nullptr;                  // that is being written
  Delay* model_wait_ = nullptr;                       // for a worker of the request's model
  int64_t model_wait_ns_ = 0;                         // how long that took

  RequestBody::End body_end_ = RequestBody::End::kOk;
  CancelReason cancelled_ = CancelReason::kNone;
  bool lease_reusable_ = false;
  bool client_has_bytes_ = false;      // of a response: no other response is possible any more
  bool ends_with_connection_ = false;  // the response, at the client: its framing has no end of its own
  bool worker_failed_ = false;
  bool relaying_ = false;
  uint64_t tunnelled_in_ = 0;                  // bytes that the client sent after the switch of protocols
  std::optional<WorkerId> holder_;             // of the response that the request names
  std::optional<uint64_t> restricted_client_;  // whose only request this is
  Relay* relay_ = nullptr;                     // of an event stream, while it runs
  std::unique_ptr<SseKeepalive> keepalive_;    // null: off, or the client wants no stream

  Timer deadline_;        // of the step
  Timer total_deadline_;  // of the response
  RequestInfo record_;
  std::unique_ptr<PdRequest> pd_request_;  // null: the fleet has no stages
  std::unique_ptr<PdRequest> stripped_;    // of a fleet without; null: the body stays as it is
  struct EditedMessage;
  std::unique_ptr<EditedMessage> edited_message_;  // null: its body stays as it is
  RetryLoop retry_loop_;
  std::unique_ptr<PdExchange> pd_;  // instead, for two stages
  Attempts* attempts_ = &retry_loop_;
};

}  // namespace vllm_router
