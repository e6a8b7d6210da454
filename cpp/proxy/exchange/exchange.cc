#include "proxy/exchange/exchange.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/dot_segments.h"
#include "http/head_writer.h"
#include "http/query.h"
#include "http/via.h"
#include "index/stick_table.h"
#include "policy/policy_options.h"
#include "proxy/api/error_event.h"
#include "proxy/api/fan_out_paths.h"
#include "proxy/client/http_client.h"
#include "proxy/client/mooncake_pool.h"
#include "proxy/client/redis_prefix_index.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/cost_override_header.h"
#include "proxy/exchange/decision_headers.h"
#include "proxy/exchange/fan_out.h"
#include "proxy/exchange/redirect_fields.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/response_search.h"
#include "proxy/exchange/tunnel.h"
#include "proxy/exchange/usage_sink.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/own_endpoints.h"
#include "proxy/thread/quarantine.h"
#include "proxy/thread/response_owners.h"
#include "proxy/thread/server_limits.h"
#include "routing/billing_header.h"
#include "routing/cache_control.h"
#include "routing/model_member.h"
#include "routing/response_id.h"
#include "routing/router.h"
#include "routing/truncated_json.h"

namespace vllm_router {
namespace {

int64_t UnixUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool ContainsEncodedNul(std::string_view path) { return path.find("%00") != std::string_view::npos; }

// Engines do not use TRACE, and a server that implements it shows what the router added to the request:
// keys, addresses. Compared without case, since some servers ignore it.
bool IsTrace(std::string_view method) {
  return method.size() == 5 && (EqualsIgnoreCase(method, "TRACE") || EqualsIgnoreCase(method, "TRACK"));
}
constexpr std::string_view kTraceMessage =
    "TRACE and TRACK are not passed on to workers; see the Allow header.";
// Other methods pass as well; these are the ones to name.
constexpr std::string_view kForwardedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

// Streams of these routes end with "data: [DONE]".
bool EndsWithDone(Route route) { return route == Route::kChatCompletions || route == Route::kCompletions; }

// An own request that waits for workers, or changes something.
bool MayTakeLong(Route route, std::string_view method) {
  const bool asks_workers =
      route == Route::kModels || route == Route::kModel || route == Route::kLoads || route == Route::kFanOut;
  return asks_workers || (method != "GET" && method != "HEAD");
}

// As the head of a client that has had a comment says.
bool IsPlainStream(const ResponseHead& response) {
  return response.status == 200 && response.event_stream && !FindHeader(response.fields, "content-encoding");
}

// Where a response says that its engine aborted the generation. What is asked of a stored response is why that one
// ended, which may be long ago and by its client's wish.
std::optional<ResponseForm> FormOf(const RequestInfo& record) {
  if (record.status != 200) return std::nullopt;
  switch (record.route) {
    case Route::kChatCompletions:
    case Route::kCompletions:
    case Route::kGenerate:
    case Route::kInferenceGenerate:
      return ResponseForm::kChoices;
    case Route::kMessages:
      return ResponseForm::kMessage;
    case Route::kResponses:
      return ResponseForm::kResponse;
    default:
      return std::nullopt;
  }
}

// Its body may name a stored response.
bool MayContinueResponse(Route route) {
  return route == Route::kResponses || route == Route::kCompact || route == Route::kInputTokens;
}

// What cut a response that had begun, except the client and the worker's own end.
std::string_view CutBy(CancelReason reason) {
  switch (reason) {
    case CancelReason::kIdleTimeout:
      return "stream_idle_timeout";
    case CancelReason::kShutdown:
      return ErrorOf(HttpError::kShuttingDown).code;
    case CancelReason::kDrained:
      return ErrorOf(HttpError::kWorkerDrained).code;
    case CancelReason::kTotalTimeout:
      return "total_timeout";
    case CancelReason::kSlowWorker:
      return ErrorOf(HttpError::kWorkerWriteTimeout).code;
    case CancelReason::kWorkerDead:
      return "worker_dead";
    default:
      return {};
  }
}

// The status that says the same of a response that has not begun.
int StatusOfCut(std::string_view code) {
  const bool leaves =
      code == ErrorOf(HttpError::kShuttingDown).code || code == ErrorOf(HttpError::kWorkerDrained).code;
  return leaves ? 503 : code.ends_with("timeout") ? 504 : 502;
}

// Remembers which worker holds a stored response, by the name among its first bytes.
class ResponseIdSink final : public BodySink {
 public:
  ResponseIdSink(IoThread& thread, WorkerId worker, bool stream)
      : thread_(thread), worker_(worker), stream_(stream) {}

  Took Write(std::string_view data, bool last) override {
    if (done_ || data.empty()) return Took::kAll;
    prefix_.Write(data, last);
    const std::optional<std::string> id = ResponseIdOf(prefix_.bytes(), stream_);
    if (id) thread_.limits.responses.workers.Stick(*id, worker_, thread_.clock.NowNanos());
    done_ = id || prefix_.full();
    return Took::kAll;
  }
  Task<Took> Flush() override { return prefix_.Flush(); }

 private:
  IoThread& thread_;
  const WorkerId worker_;
  const bool stream_;
  bool done_ = false;
  CapturedBody prefix_{kResponseIdBytes};
};

constexpr int64_t kRestMs = 100;  // of a stream whose client has left behind the last event

constexpr int64_t kModelLookNanos = 100 * kNanosPerMs;  // between looks for a worker of a model

constexpr std::string_view kFanOutMethodsWithoutKey = "POST, PUT, DELETE";

}  // namespace

// What is changed, and the copy of the body for a request that one worker serves.
struct Exchange::EditedMessage {
  std::vector<BodyInsertion> edits;
  SplicedBody copy;
};

// Else it would come from the heap, once for each request.
static_assert(sizeof(Exchange) <= FramePool::kLargest);

Exchange::Exchange(Connection& connection)
    : connection_(connection),
      thread_(connection.thread),
      settings_(*connection.settings),
      permit_(
          thread_.limits.concurrency, thread_,
          thread_.router->options().max_worker_requests != 0 ? &MayHaveCapacity : nullptr, this),
      retry_loop_(
          thread_, settings_, record_,
          {.body_failed = &Exchange::OnBodyFailed, .body_sent = &Exchange::OnBodySent, .context = this}) {}

Exchange::~Exchange() { thread_.request_parsers.Release(std::move(head_parser_)); }

Task<void> Exchange::Run() {
  Next next = co_await ReadHead();                           // 1 HEAD
  if (next == Next::kOn) next = co_await ValidateRequest();  // 2 VALIDATE
  if (next == Next::kOn) next = co_await ReadBody();         // 3 BODY, 4 FIELDS
  if (next == Next::kOn && thread_.limits.quarantine.active()) next = co_await CheckQuarantine();
  if (next == Next::kOn && !permit_.TryAcquire(1)) next = co_await Admit();  // 5 ADMIT
  if (next == Next::kOn && MayWaitForTokens()) next = co_await FindTokens();
  if (next == Next::kOn && MayShareHolders()) next = co_await FindSharedHolders();
  if (next == Next::kOn && MayQueryPool()) next = co_await QueryPool();
  if (next == Next::kOn && MayNameResponse()) next = co_await FindResponse();
  if (next == Next::kOn)
    next = co_await Ask();  // 6 SELECT, 7 LEASE, 8 SEND, 9 AWAIT: proxy/exchange/retry_loop.h
  if (next == Next::kOn) {  // 10 RELAY
    if (key_.partly_tokenized_prompt) FindTokensLater();
    if (attempts_->response().status == 101) {
      co_await RelayWebSocket();
    } else {
      co_await RelayResponse();
    }
  }
  if (cancelled_ != CancelReason::kNone) permit_.Release();  // what is kept for the workers' sake needs none
  co_await attempts_->Finished();
  Finish();  // 11 FINISH
}

// ---- 1 HEAD

Task<Exchange::Next> Exchange::ReadHead() {
  head_parser_ = thread_.request_parsers.Acquire();
  head_parser_->Reset();
  Buffer& in = connection_.in;
  Socket& socket = connection_.socket;
  for (;;) {
    if (!in.empty()) {
      const ParseState state = head_parser_->Feed(in.view());
      if (state == ParseState::kDone) break;
      if (state == ParseState::kBad) {
        const HeadError& error = head_parser_->error();
        record_.bad_request_rule = error.rule;
        connection_.linger = error.status != 0;
        if (error.status == 0) {
          record_.error = "not_http";
        } else {
          const HeaderField allow{"Allow", kForwardedMethods};
          const std::span<const HeaderField> extra(&allow, error.status == 405 ? 1 : 0);
          co_await ReplyError(HttpError::kBadRequest, std::string(error.message), extra, error.status);
        }
        co_return Next::kFinish;
      }
    }
    in.Reserve(in.empty() ? BufferPool::kSmallest : in.size());
    const IoResult read = socket.TryRead(in.room());
    if (read.ok()) {
      in.Commit(static_cast<size_t>(read.bytes));
      continue;
    }
    if (!read.would_block()) co_return Next::kFinish;
    if (!deadline_.armed()) ArmDeadline(connection_.HeadTimeLeftMs(), &Exchange::OnClientTooSlow);
    // A partial head counts as silence when others need the connection.
    thread_.idle.Enter(&connection_);
    const bool readable = co_await socket.Readable();
    thread_.idle.Leave(&connection_);
    if (client_too_slow_) {
      connection_.linger = true;
      co_await ReplyError(HttpError::kHeadTimeout);
      co_return Next::kFinish;
    }
    if (!readable) co_return Next::kFinish;
  }
  deadline_.Disarm();
  head_ = &head_parser_->head();
  record_.head_ns = thread_.clock.NowNanos();
  record_.wall_us = UnixUs();
  co_return Next::kOn;
}

void Exchange::OnClientTooSlow(void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->client_too_slow_ = true;
  exchange->connection_.socket.InterruptRead();
}

// ---- 2 VALIDATE

Task<Exchange::Next> Exchange::ValidateRequest() {
  const bool metrics_listener = connection_.listener_kind == ListenerKind::kMetrics;
  record_.method = head_->method;
  record_.path = head_->path;
  // Before any decision by path, since a worker with a prefix gets the resolved path.
  std::string path;
  const DotSegments dots = !metrics_listener && thread_.fleet.Get()->any_prefix()
                               ? ResolveDotSegments(head_->path, &path)
                               : DotSegments::kNone;
  if (dots == DotSegments::kInside) {
    Rewrite().path = std::move(path);
    head_parser_->ReplacePath(rewritten_->path);
  }
  record_.route = metrics_listener ? (head_->path == "/metrics" ? Route::kMetrics : Route::kOther)
                  : head_->method == "OPTIONS" && head_->path == "*" ? Route::kServerOptions
                                                                     : FindRoute(head_->path);
  if (record_.route == Route::kRoot &&
      (head_->websocket || !MethodAllowed(RouteOf(Route::kRoot).allow, head_->method)))
    record_.route = Route::kOther;
  if (record_.route == Route::kOther && !metrics_listener &&
      thread_.fan_out_paths.Contains(head_->path, head_->method)) {
    record_.route = Route::kFanOut;
  }
  const RouteInfo& route = RouteOf(record_.route);
  request_id_ = ChooseRequestId(head_->fields, settings_.request_id_headers, route.id_prefix, thread_.ids);
  if (thread_.fleet.Get()->stages() != nullptr) HideFromWorkers(&request_id_, thread_.ids);
  connection_.keep = head_->keep_alive;
  body_.emplace(connection_, head_->framing, head_->content_length, head_->size);

  if (!head_->via.empty()) {
    const bool refused = co_await RejectRoutingLoop();
    if (refused) co_return Next::kFinish;
  }
  if (ContainsEncodedNul(head_->path)) {
    co_await ReplyError(HttpError::kNulInPath);
    co_return Next::kFinish;
  }
  if (dots == DotSegments::kOutside) {
    co_await ReplyError(HttpError::kPathOutsidePrefix);
    co_return Next::kFinish;
  }
  if (record_.route == Route::kOther && !metrics_listener && thread_.fan_out_paths.Resembles(head_->path)) {
    co_await ReplyError(
        HttpError::kNotFound,
        "The path is another spelling of an admin endpoint's path; write it without empty and dot segments, "
        "parameters, encoded characters and a slash at the end.");
    co_return Next::kFinish;
  }
  const bool admitted = co_await Authorize();
  if (!admitted) co_return Next::kFinish;
  // A page of another site can make a browser send GET without its origin, by an image for instance, but
  // not with a key.
  const bool no_get = record_.route == Route::kFanOut && !thread_.authorizer.takes_admin_keys();
  const std::string_view allowed = no_get ? kFanOutMethodsWithoutKey : route.allow;
  if (route.own && !MethodAllowed(allowed, head_->method)) {
    const HeaderField allow{"Allow", allowed};
    co_await ReplyError(HttpError::kMethodNotAllowed, {}, {&allow, 1});
    co_return Next::kFinish;
  }
  if (!route.own && head_->websocket && !settings_.cors.MayOpenWebSocket(*head_)) {
    co_await ReplyError(HttpError::kCrossSiteRequest);
    co_return Next::kFinish;
  }
  if (!route.own && IsTrace(head_->method)) {
    const HeaderField allow{"Allow", kForwardedMethods};
    co_await ReplyError(HttpError::kMethodNotAllowed, std::string(kTraceMessage), {&allow, 1});
    co_return Next::kFinish;
  }
  const uint64_t maximum = route.own ? MostOwnBytes() : settings_.max_payload_size;
  if (head_->framing == BodyFraming::kLength && head_->content_length > maximum) {
    const std::string message = "The request body has " + std::to_string(head_->content_length) +
                                " bytes; this router accepts at most " + std::to_string(maximum) +
                                (route.own ? "." : " (--max-payload-size).");
    co_await ReplyError(HttpError::kBodyTooLarge, message);
    co_return Next::kFinish;
  }
  if (settings_.allow_request_overrides && !route.own) {
    const bool rejected = co_await RejectOverride();
    if (rejected) co_return Next::kFinish;
  }
  if (settings_.response_cache.enabled && route.inference) {
    cache_ = std::make_unique<CachedRequest>(thread_, settings_.response_cache, *head_);
  }
  const bool refused = co_await RejectOverload();
  if (refused) co_return Next::kFinish;
  if (head_->expects_continue && !body_->complete()) {
    const bool written = co_await WriteToClient("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return Next::kFinish;
  }
  if (route.own) {
    co_await RespondLocally();
    co_return Next::kFinish;
  }
  proxied_ = true;
  thread_.telemetry.in_flight.fetch_add(1, std::memory_order_relaxed);
  co_return Next::kOn;
}

// Our own endpoints reject as well, so that a router that is its own worker is found unhealthy.
Task<bool> Exchange::RejectRoutingLoop() {
  const Hops hops = ReadVia(head_->via, thread_.hop_name);
  if (!hops.own && hops.routers <= kMaxRouterHops) co_return false;
  const std::string message =
      hops.own
          ? std::string(
                "The request has passed through this router already: one of its workers leads back to it.")
          : "The request has passed through " + std::to_string(hops.routers) + " routers; more than " +
                std::to_string(kMaxRouterHops) + " are taken for a routing loop.";
  co_await ReplyError(HttpError::kLoopDetected, message);
  co_return true;
}

// Whether this port serves the path, and the client is permitted to use it.
Task<bool> Exchange::Authorize() {
  const ListenerKind listener_kind = connection_.listener_kind;
  const Access access = listener_kind == ListenerKind::kMetrics ? Access::kAnybody : AccessOfRoute();
  const bool preflight = Cors::IsPreflight(*head_);
  const std::string_view origin = Cors::OriginOf(*head_);
  if (!origin.empty() || !settings_.cors.allowed_origins().empty()) {
    browser_ = std::make_unique<Browser>();
    browser_->origin = origin;
    const RouteInfo& route = RouteOf(record_.route);
    browser_->fields = preflight ? settings_.cors.PreflightFieldsFor(
                                       *head_, access, route.own ? route.allow : kForwardedMethods)
                                 : settings_.cors.FieldsFor(browser_->origin, access);
  }
  const bool wrong_port = listener_kind == ListenerKind::kMetrics
                              ? record_.route != Route::kMetrics
                              : !thread_.authorizer.Serves(listener_kind, access);
  if (wrong_port) {
    co_await ReplyError(
        HttpError::kNotFound, listener_kind == ListenerKind::kMetrics
                                  ? "Only /metrics is served on this port."
                              : listener_kind == ListenerKind::kAdmin
                                  ? "Only health and admin endpoints are served on this port."
                                  : "Admin endpoints are served on another port (--admin-port).");
    co_return false;
  }
  if (access == Access::kAdmin && settings_.cors.IsCrossSite(head_->fields)) {
    co_await ReplyError(HttpError::kCrossSiteRequest);
    co_return false;
  }
  if (preflight) {
    co_await Reply(200, {}, {});
    co_return false;
  }
  std::optional<HttpError> refusal = thread_.authorizer.Rejects(access, listener_kind, *head_);
  if (refusal.has_value()) {
    KeyValidator* validator = thread_.authorizer.ValidatorFor(access, *refusal);
    if (validator != nullptr) refusal = co_await ValidateKey(*validator);
  }
  if (cancelled_ != CancelReason::kNone) {
    co_await ReplyCancelled();
    co_return false;
  }
  if (!refusal.has_value()) co_return true;
  const HeaderField challenge{
      "WWW-Authenticate", refusal == HttpError::kInvalidApiKey
                              ? R"(Bearer realm="vllm-router", error="invalid_token")"
                              : R"(Bearer realm="vllm-router")"};
  const bool for_want_of_a_key = ErrorOf(*refusal).status == 401;
  const std::span<const HeaderField> extra(&challenge, for_want_of_a_key ? 1 : 0);
  co_await ReplyError(*refusal, {}, extra);
  co_return false;
}

// An external service decides. A client that leaves meanwhile ends its own wait; the query is dropped
// unless others wait for the same result.
Task<std::optional<HttpError>> Exchange::ValidateKey(KeyValidator& validator) {
  const std::optional<std::string_view> given = KeyOf(*head_);
  if (!given.has_value()) co_return HttpError::kInvalidApiKey;
  std::string key(*given);
  validation_ = std::make_shared<KeyValidator::Waiter>(thread_.loop, validator, connection_.peer.address);
  connection_.socket.WatchEnd(&Exchange::OnClientEnded, this);
  const KeyValidity validity = co_await validator.Validate(std::move(key), validation_);
  connection_.socket.WatchEnd(nullptr, nullptr);
  validation_ = nullptr;
  if (validity == KeyValidity::kYes) co_return std::nullopt;
  co_return validity == KeyValidity::kNo ? HttpError::kInvalidApiKey : HttpError::kKeyNotChecked;
}

// Reads what the client sets of the cost.
Task<bool> Exchange::RejectOverride() {
  const std::optional<std::string_view> given = FindHeader(head_->fields, kCostOverrideHeader);
  if (!given) co_return false;
  StatusOr<CostOverride> parsed = ParseCostOverride(*given);
  if (parsed.ok()) {
    cost_override_ = std::make_unique<CostOverride>(*parsed);
    co_return false;
  }
  co_await ReplyError(HttpError::kInvalidArgument, std::string(parsed.status().message()));
  co_return true;
}

// Before the body, which then need not be sent at all.
Task<bool> Exchange::RejectOverload() {
  const bool may_hit = cache_ != nullptr && cache_->may_hit();  // which takes no permit
  if (!RouteOf(record_.route).own && !may_hit && thread_.limits.concurrency.full()) {
    thread_.limits.slow_uploads.MakeRoom(1);
    co_await Reject(HttpError::kQueueFull);
    co_return true;
  }
  if (!thread_.limits.rate.limits() || !CountsInRateLimit()) co_return false;
  const int64_t too_early_ns = thread_.limits.rate.Take(record_.head_ns);
  if (too_early_ns == 0) co_return false;
  co_await Reject(HttpError::kRateLimited, too_early_ns);
  co_return true;
}

// Own endpoints cost something, too. Probes do not count, since a busy router is not unhealthy; nor do
// operators with a key or a port of their own, who come because it is busy.
Access Exchange::AccessOfRoute() const {
  const bool is_opened = record_.route == Route::kScale && settings_.scale_public;
  return is_opened ? Access::kAnybody : RouteOf(record_.route).access;
}

bool Exchange::CountsInRateLimit() const {
  const Access access = AccessOfRoute();
  if (access != Access::kAdmin) return access == Access::kClient;
  return connection_.listener_kind == ListenerKind::kPublic && !thread_.authorizer.takes_admin_keys();
}

// Before a response that does not depend on the body: the connection may then be kept.
Task<Exchange::Next> Exchange::TakeShortBody() {
  const bool short_body = head_->framing == BodyFraming::kLength && head_->content_length <= kSmallBodyBytes;
  if (body_->complete() || !short_body || head_->expects_continue) co_return Next::kOn;
  const RequestBody::End end = co_await body_->Fill(kSmallBodyBytes);
  if (end == RequestBody::End::kOk) co_return Next::kOn;
  co_await ReplyBodyFailed(end);
  co_return Next::kFinish;
}

Task<void> Exchange::Reject(HttpError error, int64_t retry_after_ns) {
  record_.refusal = ErrorOf(error).code;
  if (IsRecorded() && record_.prompt == nullptr) {  // its body was not read
    KeepPrompt({.headers = head_->fields, .path = head_->path, .body_bytes = head_->content_length});
  }
  const Next next = co_await TakeShortBody();
  if (next == Next::kFinish) co_return;
  const std::string seconds =
      std::to_string(std::max<int64_t>(1, (retry_after_ns + kNanosPerSecond - 1) / kNanosPerSecond));
  const HeaderField retry_after{"Retry-After", seconds};
  const std::span<const HeaderField> extra(&retry_after, retry_after_ns != 0 ? 1 : 0);
  std::string message;
  co_await ReplyError(error, std::move(message), extra);
}

uint64_t Exchange::MostOwnBytes() const { return RouteOf(record_.route).max_body; }

Task<void> Exchange::RespondLocally() {
  const RequestBody::End end = co_await body_->Fill(MostOwnBytes());
  if (end != RequestBody::End::kOk || !body_->complete()) {
    co_await ReplyBodyFailed(end == RequestBody::End::kOk ? RequestBody::End::kTooLarge : end);
    co_return;
  }
  Permit fan_out(thread_.limits.fan_outs, thread_);
  if (record_.route == Route::kFanOut && !fan_out.TryAcquire(1)) {
    co_await Reject(HttpError::kFanOutBusy);
    co_return;
  }
  if (settings_.response_cache.enabled && record_.route == Route::kFanOut) OutdateCache();
  CancelScope scope(head_->via);
  scope_ = &scope;
  // A page comes in a moment, also for a probe that has closed its sending side.
  if (MayTakeLong(record_.route, head_->method)) WatchClient();
  const bool asks_as_client = record_.route == Route::kModels || record_.route == Route::kModel;
  const AdminRequest request{
      .route = record_.route,
      .method = head_->method,
      .path = head_->path,
      .query = head_->query,
      .body = body_->held(),
      .settings = settings_,
      .scope = scope,
      .has_admin_key = AccessOfRoute() == Access::kAdmin && thread_.authorizer.takes_admin_keys(),
      .credentials =
          asks_as_client && !HasAdminKey() ? ForwardedCredentials(*head_, Client()) : std::string()};
  AdminReply reply;
  if (record_.route == Route::kFanOut) {
    reply = co_await FanOutToAll(scope);
  } else {
    reply = co_await connection_.own_endpoints.Respond(thread_, request);
  }
  scope_ = nullptr;
  if (scope.cancelled()) {
    Cancel(CancelReason::kShutdown);  // unless there was an earlier reason
    co_await ReplyCancelled();
    co_return;
  }
  record_.error = reply.error_code;
  if (reply.page == nullptr) {
    co_await Reply(reply.status, reply.body, reply.content_type);
  } else {
    co_await ReplyPage(std::move(reply));
  }
}

// It is meant for the router alone, wherever it is sent.
bool Exchange::HasAdminKey() const {
  Authorizer& authorizer = thread_.authorizer;
  if (!authorizer.takes_admin_keys()) return false;
  const bool has_port = !authorizer.Serves(ListenerKind::kPublic, Access::kAdmin);
  const ListenerKind kind = has_port ? ListenerKind::kAdmin : ListenerKind::kPublic;
  return !authorizer.Rejects(Access::kAdmin, kind, *head_).has_value();
}

Task<AdminReply> Exchange::FanOutToAll(CancelScope& scope) {
  FanOutRequest request{
      .head = *head_, .body = body_->held(), .client = Client(), .timeout_ms = settings_.request_timeout_ms};
  if (thread_.authorizer.takes_admin_keys()) request.client.drop_authorization = true;
  AdminReply reply = co_await FanOut(thread_, scope, connection_.own_endpoints, request);
  co_return reply;
}

// ---- 3 BODY, 4 FIELDS

Task<Exchange::Next> Exchange::ReadBody() {
  const bool reads_model = ReadsModel();
  const bool has_stages = thread_.fleet.Get()->stages() != nullptr;
  if (has_stages && PathInStages() == PdRoute::kUnknown) {
    co_await RejectPath();
    co_return Next::kFinish;
  }
  const bool strips = !has_stages && settings_.pd.strip_client_params == PdStrip::kAlways;
  const bool edits_message = MayEditMessage();
  const bool edits = has_stages || strips || edits_message;
  const bool may_hit = cache_ != nullptr && cache_->may_hit();
  const bool may_stream = settings_.sse_keepalive_ms != 0 && HasEventStreams(record_.route);
  const bool needed = reads_model || NeedsBody() || edits || may_hit || may_stream;
  if (!needed && head_->framing == BodyFraming::kLength && head_->content_length > kSmallBodyBytes) {
    const RequestBody::End end = body_->TakeArrived();
    if (end != RequestBody::End::kOk) {
      co_await ReplyBodyFailed(end);
      co_return Next::kFinish;
    }
    stream_body_ = !body_->complete();
  } else if (!body_->complete()) {
    uint64_t most = edits ? settings_.max_payload_size : needed ? kRoutedBodyBytes : kSmallBodyBytes;
    if (may_hit) most = std::max(most, settings_.response_cache.rules.max_request_bytes);
    const RequestBody::End end = co_await body_->Fill(most);
    if (end != RequestBody::End::kOk) {
      co_await ReplyBodyFailed(end);
      co_return Next::kFinish;
    }
    stream_body_ = !body_->complete();
  }
  if (may_stream) BeginKeepalive();
  if (reads_model) {
    const Next next = co_await FindModel();
    if (next == Next::kFinish) co_return next;
    stream_body_ = !body_->complete();
  } else if (head_->framing == BodyFraming::kNone && !head_->query.empty()) {
    const Next next = co_await FindModelInQuery();
    if (next == Next::kFinish) co_return next;
  }
  if (RouteOf(record_.route).inference && !thread_.fleet.Get()->models()->decides()) {
    thread_.telemetry.DemandedAny();
  }
  if (!stream_body_) WatchClient();
  record_.body_ns = thread_.clock.NowNanos() - model_wait_ns_;
  if (settings_.response_cache.enabled && cache_ == nullptr) OutdateCache();
  if (may_hit) {
    const Next next = co_await UseCache();
    if (next == Next::kFinish) co_return next;
  }
  MakeKey();
  Next next = Next::kOn;
  if (has_stages) {
    next = co_await PlanStages();
  } else if (strips) {
    next = co_await StripBody();
  }
  if (edits_message && next == Next::kOn) EditMessage();
  co_return next;
}

// HTTP/1.0 has no chunks, so there the end of an aborted stream would pass for the end of a whole one.
void Exchange::BeginKeepalive() {
  const bool may_stream = head_->method == "POST" && head_->minor_version > 0 && body_->complete();
  if (!may_stream || !WantsStream(BodyMap::Read(body_->held()))) return;
  keepalive_ = std::make_unique<SseKeepalive>(
      thread_.loop, connection_.socket, settings_.sse_keepalive_ms, settings_.client_write_timeout_ms,
      SseKeepalive::Hooks{
          .head = &Exchange::KeepaliveHead, .client_lost = &Exchange::OnKeepaliveLost, .context = this});
}

// What the worker's own head would say is not known yet. A proxy that collects what it passes on, as nginx does, is
// told not to.
std::string Exchange::KeepaliveHead(void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  if (exchange->thread_.draining) exchange->connection_.keep = false;
  const ResponseHead head{
      .status = 200,
      .reason = ReasonPhrase(200),
      .fields = {
          {"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}}};
  return exchange->HeadForClient(head, BodyFraming::kChunked, exchange->record_.decision.has_value());
}

void Exchange::OnKeepaliveLost(void* context, bool slow) {
  static_cast<Exchange*>(context)->Cancel(slow ? CancelReason::kSlowClient : CancelReason::kClientGone);
}

// A hit takes no permit, and neither a policy nor a worker hears of it.
Task<Exchange::Next> Exchange::UseCache() {
  if (stream_body_) {
    cache_->Bypass(CacheBypass::kBodySize);
    co_return Next::kOn;
  }
  cache_->JudgeBody(*head_, body_->held(), model_ != nullptr ? model_->name() : std::string_view());
  if (!cache_->may_hit()) co_return Next::kOn;
  CancelScope scope(head_->via);
  scope_ = &scope;
  // A body that others wait for the memory of does not wait.
  const bool in_the_way = body_->bytes() > kSmallBodyBytes && thread_.limits.body_memory.waiting() != 0;
  const bool found = co_await cache_->Find(scope, !in_the_way && !thread_.draining);
  scope_ = nullptr;
  if (cancelled_ != CancelReason::kNone) {
    co_await ReplyCancelled();
    co_return Next::kFinish;
  }
  if (!found) co_return Next::kOn;
  co_await ReplayStored();
  co_return Next::kFinish;
}

Task<void> Exchange::ReplayStored() {
  const StoredResponse& stored = cache_->stored();
  const ResponseHead& response = cache_->head();
  if (thread_.draining) connection_.keep = false;
  record_.status = response.status;
  record_.stream = response.event_stream;
  record_.prompt_tokens = stored.prompt_tokens;
  record_.completion_tokens = stored.completion_tokens;
  const bool chunked = record_.stream && head_->minor_version > 0;
  if (keepalive_ != nullptr) keepalive_->Stop();
  const std::string head =
      SentHead() ? keepalive_->TakeUnsent()
                 : HeadForClient(response, chunked ? BodyFraming::kChunked : BodyFraming::kLength);
  record_.responded_ns = record_.first_body_ns = thread_.clock.NowNanos();

  client_has_bytes_ = true;
  Timer client_timer;
  ClientSink client(connection_.socket, head, chunked, ClientStall(client_timer));
  // The client may read for minutes.
  head_ = nullptr;
  body_->Release();
  if (connection_.in.empty()) connection_.in.Release();
  thread_.request_parsers.Release(std::move(head_parser_));
  CancelScope scope({});
  scope_ = &scope;
  const BodySink::Took took = co_await cache_->Replay(client, scope);
  scope_ = nullptr;
  record_.bytes_out = cache_->replayed_bytes();
  if (took == BodySink::Took::kGone) Cancel(CancelReason::kClientGone);
}

// A request that changes weights or adapters: what was made before must not be used afterwards, nor what a worker makes
// before it has changed; so it counts again when it has ended.
void Exchange::OutdateCache() {
  if (head_->method == "GET") return;
  std::optional<std::string> decoded;  // as the worker reads it
  if (head_->path.find('%') != std::string_view::npos) decoded = PercentDecoded(head_->path, false);
  const std::string_view asked = decoded ? *decoded : head_->path;
  const auto matches = [asked](std::string_view path) {
    const bool open = path.ends_with('*');
    if (open) path.remove_suffix(1);
    return open ? asked.starts_with(path) : asked == path;
  };
  if (std::ranges::none_of(settings_.response_cache.invalidate_on, matches)) return;
  outdates_ = std::make_unique<std::string>();
  const BodyMap body = BodyMap::Read(body_->complete() ? body_->held() : std::string_view());
  const BodyMap::Member* const adapter = body.Find("lora_name");
  if (adapter != nullptr) *outdates_ = adapter->Text().value_or("");
  InvalidateCache();
}

void Exchange::InvalidateCache() {
  ResponseCache& cache = thread_.limits.response_cache;
  const bool has_generations = settings_.response_cache.rules.has_generations();
  if (outdates_->empty() || !has_generations) {
    cache.InvalidateAll(!has_generations);
  } else {
    cache.InvalidateModel(*outdates_);
  }
}

// Of a path that the router does not know, a name that is listed is obeyed, and any other is left to the worker.
bool Exchange::ReadsModel() const {
  if (head_->framing == BodyFraming::kNone) return false;
  if (!thread_.fleet.Get()->models()->decides() && settings_.model_aliases.empty()) return false;
  const bool is_open = record_.route == Route::kOther || record_.route == Route::kResponse;
  return RouteOf(record_.route).inference || (is_open && head_->method == "POST");
}

// `?model=` of a request without a body, as of a WebSocket to /v1/realtime. The last one counts, as engines read it.
Task<Exchange::Next> Exchange::FindModelInQuery() {
  const bool matters = thread_.fleet.Get()->models()->decides() || !settings_.model_aliases.empty();
  const std::optional<QueryParameter> found =
      matters ? FindQueryParameter(head_->query, "model") : std::nullopt;
  if (!found || found->value.empty()) co_return Next::kOn;
  std::string name = found->value;
  if (const ModelAliases::Alias* const alias = settings_.model_aliases.Find(name)) {
    name = TargetOf(*alias);
    const auto before = static_cast<size_t>(found->spelled.data() - head_->query.data());
    Rewrite().target = Concat(
        head_->path, "?", head_->query.substr(0, before), PercentEncoded(name),
        head_->query.substr(before + found->spelled.size()));
    head_parser_->ReplaceQueryBy(rewritten_->target);
  }
  const bool is_of_api = head_->path.starts_with("/v1/") || head_->path.starts_with("/v2/");
  const Next next = co_await FindModelOf(std::move(name), is_of_api);
  co_return next;
}

Task<Exchange::Next> Exchange::FillForModel() {
  const RequestBody::End end = co_await body_->Fill(kNamedBodyBytes);
  if (end == RequestBody::End::kOk) co_return Next::kOn;
  co_await ReplyBodyFailed(end);
  co_return Next::kFinish;
}

std::string Exchange::TargetOf(const ModelAliases::Alias& alias) {
  uint64_t hash = thread_.ids.Below(alias.total);
  if (alias.targets.size() > 1) {
    RequestView request{.headers = head_->fields, .path = head_->path, .body = body_->held()};
    request.body_is_padded = true;
    hash = thread_.router->SessionHash(request).value_or(hash);
  }
  return ModelAliases::TargetOf(alias, hash);
}

// The member `model` of the body. Where it stands behind the part that is routed by, more is read.
Task<Exchange::Next> Exchange::FindModel() {
  const std::string_view type = FindHeader(head_->fields, "content-type").value_or("");
  const bool is_form = IsForm(type);
  const auto find = [&] {
    return is_form ? FindModelInForm(type, body_->held()) : FindModelMember(body_->held());
  };
  ModelMember found = find();
  const ModelAliases::Alias* alias = settings_.model_aliases.Find(found.name);
  // Engines have endpoints of their own, to which each of them gives its only model.
  const bool is_known_path = RouteOf(record_.route).inference;
  const bool names_one =
      is_known_path && (head_->path.starts_with("/v1/") || head_->path.starts_with("/v2/"));
  const bool is_cut = found.kind == ModelMember::Kind::kMissing || alias != nullptr;
  if (!body_->complete() && is_cut && names_one) {
    const Next next = co_await FillForModel();
    if (next == Next::kFinish) co_return next;
    found = find();
    alias = settings_.model_aliases.Find(found.name);
  }
  if (!body_->complete() && names_one && (alias != nullptr || found.kind == ModelMember::Kind::kMissing)) {
    co_await ReplyError(
        HttpError::kModelRequired,
        alias != nullptr
            ? Concat("The body of a request for an alias of a model may have ", kNamedBodyBytes, " bytes.")
            : Concat("The first ", kNamedBodyBytes, " bytes of the body name no model; put it first."));
    co_return Next::kFinish;
  }
  if (found.kind == ModelMember::Kind::kMissing && !found.whole) co_return Next::kOn;  // malformed
  std::string name = std::move(found.name);
  if (alias != nullptr && body_->complete()) {
    name = TargetOf(*alias);
    body_->Replace(found.offset, found.length, found.quoted ? JsonQuoted(name) : name);
  } else if (found.kind == ModelMember::Kind::kMissing && is_known_path) {
    const ModelPools& pools = *thread_.fleet.Get()->models();
    const std::vector<std::string>& bases = pools.names->bases;
    name = bases.size() == 1 ? bases.front() : settings_.default_model;
    if (const auto* const by_default = settings_.model_aliases.Find(name)) name = TargetOf(*by_default);
    if (name.empty() && bases.size() > 1 && names_one && pools.decides()) {
      co_await ReplyError(
          HttpError::kModelRequired,
          ModelRequiredMessage(pools, thread_.limits.models_are_private.load(std::memory_order_relaxed)));
      co_return Next::kFinish;
    }
  }
  if (name.empty()) co_return Next::kOn;
  const Next next = co_await FindModelOf(std::move(name), is_known_path);
  co_return next;
}

Task<Exchange::Next> Exchange::FindModelOf(std::string name, bool must_exist) {
  std::shared_ptr<const FleetView> whole = thread_.fleet.Get();
  const ModelPools& pools = *whole->models();
  if (!must_exist && pools.Find(name) == nullptr) co_return Next::kOn;
  RequestedModel::Result result = RequestedModel::FindPool(whole, settings_, name, thread_.clock.NowNanos());
  RequestedModel::Count(pools, name, result);
  if (result == RequestedModel::Result::kAsleep && settings_.model_wait_ms > 0) {
    const std::shared_ptr<ModelDemand> demand = pools.Find(name)->demand;
    whole.reset();  // the wait may outlast many of them
    result = co_await WaitForModel(name, *demand);
    if (cancelled_ != CancelReason::kNone) {
      co_await ReplyCancelled();
      co_return Next::kFinish;
    }
  }
  switch (result) {
    case RequestedModel::Result::kAll:
    case RequestedModel::Result::kForwarded:
      co_return Next::kOn;
    case RequestedModel::Result::kPool:
    case RequestedModel::Result::kAnything:
      model_ = std::make_unique<RequestedModel>(std::move(name));
      co_return Next::kOn;
    case RequestedModel::Result::kUnknown: {
      std::string message = UnknownModelMessage(
          name, pools, settings_.model_aliases,
          thread_.limits.models_are_private.load(std::memory_order_relaxed));
      co_await ReplyError(HttpError::kModelNotFound, std::move(message));
      co_return Next::kFinish;
    }
    case RequestedModel::Result::kAsleep: {
      const HeaderField retry_after{"Retry-After", "10"};
      co_await ReplyError(HttpError::kNoWorkersForModel, SleepingModelMessage(name), {&retry_after, 1});
      co_return Next::kFinish;
    }
  }
  co_return Next::kOn;
}

// Until a worker of the model may be chosen. The request holds no permit, so that others pass it; as many as may
// queue for one wait here. A model that was known is asleep at the end of the wait, even if its memory has ended. A body
// that others wait for the memory of does not wait: requests that have a worker come first.
Task<RequestedModel::Result> Exchange::WaitForModel(const std::string& name, ModelDemand& demand) {
  using Result = RequestedModel::Result;
  Permit place(thread_.limits.model_waits, thread_);
  if (settings_.queue_size == 0 || thread_.draining || !place.TryAcquire(1)) co_return Result::kAsleep;
  if (body_->complete()) {
    WatchClient();
  } else {
    connection_.socket.WatchEnd(&Exchange::OnClientEnded, this);
  }
  demand.waiting.fetch_add(1, std::memory_order_relaxed);
  Delay delay(thread_.loop);
  model_wait_ = &delay;
  const int64_t began = thread_.clock.NowNanos();
  const int64_t until = began + settings_.model_wait_ms * kNanosPerMs;
  Result result = Result::kAsleep;
  bool found = false;
  const auto is_in_the_way = [this] {
    return body_->bytes() > kSmallBodyBytes && thread_.limits.body_memory.waiting() != 0;
  };
  for (int64_t now = began; !found && now < until && cancelled_ == CancelReason::kNone && !is_in_the_way();) {
    // All that wait look ten thousand times a second at most.
    const auto share = static_cast<int64_t>(1 + thread_.limits.model_waits.in_use() / 1000);
    co_await delay.For(std::min(until - now, kModelLookNanos * share));
    now = thread_.clock.NowNanos();
    const std::shared_ptr<const FleetView> whole = thread_.fleet.Get();
    result = RequestedModel::FindPool(whole, settings_, name, now);
    found = RequestedModel::HasWorkers(whole, name, result);
  }
  model_wait_ = nullptr;
  demand.waiting.fetch_sub(1, std::memory_order_relaxed);
  if (!body_->complete()) connection_.socket.WatchEnd(nullptr, nullptr);
  record_.queue_ns = model_wait_ns_ = thread_.clock.NowNanos() - began;
  co_return found ? result : Result::kAsleep;
}

// That the request may go to.
std::shared_ptr<const FleetView> Exchange::Fleet() const {
  return FleetFor(thread_, model_.get(), FirstStage());
}

Stage Exchange::FirstStage() const {
  const bool is_local = pd_request_ != nullptr && pd_request_->plan.kind == PdKind::kLocal;
  return is_local ? Stage::kDecode : Stage::kPrefill;
}

void Exchange::MakeKey() {
  RequestView request{.headers = head_->fields, .path = head_->path};
  request.body_bytes = head_->framing == BodyFraming::kLength ? head_->content_length : body_->bytes();
  if (!stream_body_ && head_->framing != BodyFraming::kNone) {
    request.body = body_->held();
    request.body_is_padded = true;
  }
  if (cost_override_) request.cost_override = &*cost_override_;
  if (settings_.decision_headers) key_.explanation = std::make_shared<Explanation>();
  std::optional<TruncatedJson> prefix;
  if ((stream_body_ || body_->bytes() > kRoutedBodyBytes) && NeedsBody()) {
    // A body too long to be held is routed by its prefix, as if that were all.
    prefix.emplace(body_->held_bytes().first(kRoutedBodyBytes));
    request.body = prefix->view();
    request.body_is_padded = true;
  }
  thread_.router->MakeKey(request, &key_);
  if (IsRecorded()) KeepPrompt(request);
}

void Exchange::KeepPrompt(const RequestView& request) {
  record_.prompt = std::make_unique<PromptReading>();
  thread_.router->ReadPrompt(request, key_, record_.prompt.get());
}

// Whether this request, or its client, may have caused workers to fail before. A body that is only
// streamed is not checked: it is sent to one worker only.
Task<Exchange::Next> Exchange::CheckQuarantine() {
  RequestQuarantine& quarantine = thread_.limits.quarantine;
  const int64_t now = thread_.clock.NowNanos();
  const bool known = !stream_body_ && quarantine.MayKnow(body_->bytes()) &&
                     quarantine.IsSuspected(
                         DigestOf(thread_, settings_, *head_, body_->held(), connection_.peer.address), now);
  if (known) {
    Log(LogLevel::kInfo, "request " + request_id_.id + " is rejected: it is quarantined");
    co_await ReplyError(HttpError::kRequestSuspected);
    co_return Next::kFinish;
  }
  if (!quarantine.restricts()) co_return Next::kOn;
  const uint64_t client = ClientNumber(thread_, settings_, *head_, connection_.peer.address);
  const RequestQuarantine::Entry entry = quarantine.Enter(client, now);
  if (entry == RequestQuarantine::Entry::kBusy) {
    co_await Reject(HttpError::kClientRestricted);
    co_return Next::kFinish;
  }
  if (entry == RequestQuarantine::Entry::kEntered) restricted_client_ = client;
  co_return Next::kOn;
}

// Whether the traffic log includes it: work for a model.
bool Exchange::IsRecorded() const {
  return thread_.telemetry.wants_prompts() && RouteOf(record_.route).computes;
}

// Whether at least a prefix of it must be read before the request continues.
bool Exchange::NeedsBody() const {
  const RequestQuarantine& quarantine = thread_.limits.quarantine;
  const bool may_be_quarantined = quarantine.active() && (head_->framing == BodyFraming::kChunked ||
                                                          quarantine.MayKnow(head_->content_length));
  return may_be_quarantined || thread_.router->NeedsBody(head_->fields) || IsRecorded() ||
         (MayContinueResponse(record_.route) && MayNameResponse());
}

// A worker's response goes to the router's cache, so the key is made once more. Without one it stays as
// it is.
bool Exchange::MayWaitForTokens() const {
  return key_.untokenized_prompt || (key_.partly_tokenized_prompt && thread_.router->compares_ids());
}

Task<Exchange::Next> Exchange::FindTokens() {
  if (stream_body_ || !RouteOf(record_.route).generates) co_return Next::kOn;
  CancelScope scope(head_->via);
  scope_ = &scope;
  const std::shared_ptr<const FleetView> fleet = Fleet();
  const bool found = co_await thread_.tokenizer.Tokenize(
      scope, key_.untokenized_prompt ? *key_.untokenized_prompt : *key_.partly_tokenized_prompt,
      body_->held(), *fleet, settings_.tokenize_timeout_ms);
  scope_ = nullptr;
  if (cancelled_ != CancelReason::kNone) {
    co_await ReplyCancelled();
    co_return Next::kFinish;
  }
  if (found) MakeKey();
  co_return Next::kOn;
}

// The workers that hold the request's prefix, as the Redis of several routers has them.
Task<Exchange::Next> Exchange::FindSharedHolders() {
  CancelScope scope(head_->via);
  scope_ = &scope;
  std::shared_ptr<const FleetView> fleet = thread_.fleet.Get();
  co_await thread_.shared_prefixes->Find(&scope, *key_.prefix_digest, std::move(fleet), &key_.shared_holders);
  scope_ = nullptr;
  if (cancelled_ != CancelReason::kNone) {
    co_await ReplyCancelled();
    co_return Next::kFinish;
  }
  co_return Next::kOn;
}

// A decision that counts the pool's blocks waits for them; else they are for the metrics.
bool Exchange::MayQueryPool() const {
  return !key_.pages.empty() && thread_.limits.shared_pool != nullptr && RouteOf(record_.route).generates;
}

Task<Exchange::Next> Exchange::QueryPool() {
  MooncakePool& pool = *thread_.limits.shared_pool;
  const PolicyOptions& options = thread_.router->options().policy;
  PagedPrompt prompt{
      .form = key_.page_form,
      .pages = std::move(key_.pages),
      .block_tokens = options.block_size,
      .blocks = key_.blocks.size()};
  key_.pages.clear();
  double multiplier = options.shared_cache_multiplier;
  if (key_.cost_override) multiplier = key_.cost_override->shared_cache_multiplier.value_or(multiplier);
  if (multiplier == 0 || !Has(thread_.router->needs(), KeyParts::kSharedHits)) {
    pool.QueryLater(thread_.http, thread_.telemetry, std::move(prompt));
    co_return Next::kOn;
  }
  CancelScope scope(head_->via);
  scope_ = &scope;
  key_.shared_hits = co_await pool.Query(thread_.http, thread_.telemetry, scope, std::move(prompt));
  scope_ = nullptr;
  if (cancelled_ == CancelReason::kNone) co_return Next::kOn;
  co_await ReplyCancelled();
  co_return Next::kFinish;
}

// For a prompt whose response has begun; its token IDs are for the next turn.
void Exchange::FindTokensLater() {
  if (stream_body_ || !RouteOf(record_.route).generates || attempts_->response().status != 200) return;
  thread_.tokenizer.TokenizeLater(
      *key_.partly_tokenized_prompt, body_->held(), head_->via, *record_.worker,
      settings_.tokenize_timeout_ms);
}

Task<void> Exchange::ReplyBodyFailed(RequestBody::End end) {
  switch (end) {
    case RequestBody::End::kNoMemory:
      record_.refusal = ErrorOf(HttpError::kNoBodyMemory).code;
      return ReplyError(HttpError::kNoBodyMemory);
    case RequestBody::End::kTimeout:
      return ReplyError(HttpError::kBodyTimeout);
    case RequestBody::End::kTooSlow:
      if (body_->was_cut()) record_.refusal = ErrorOf(HttpError::kBodyTooSlow).code;
      return ReplyError(
          HttpError::kBodyTooSlow,
          "The request body arrives more slowly than " + std::to_string(settings_.client_min_body_rate) +
              " bytes per second (--client-min-body-rate)" +
              (body_->was_cut() ? ", and other requests are waiting; send it faster." : "; send it faster."));
    case RequestBody::End::kBadChunk:
      return ReplyError(HttpError::kBadChunk);
    case RequestBody::End::kTooLarge:
      return ReplyError(
          HttpError::kBodyTooLarge, "The request body is longer than the " +
                                        std::to_string(settings_.max_payload_size) +
                                        " bytes that this router accepts (--max-payload-size).");
    default:
      Cancel(CancelReason::kClientGone);
      return ReplyCancelled();
  }
}

// ---- 5 ADMIT

Task<Exchange::Next> Exchange::Admit() {
  WatchQueued();
  thread_.limits.slow_uploads.MakeRoom(1);
  const Permit::End end = co_await permit_.Acquire(1, settings_.queue_timeout_ms);
  const Next next = co_await AfterWait(end);
  co_return next;
}

Task<Exchange::Next> Exchange::AfterWait(Permit::End end) {
  connection_.socket.WatchEnd(nullptr, nullptr);
  record_.queue_ns = model_wait_ns_ + permit_.waited_ns();
  if (cancelled_ != CancelReason::kNone) {
    co_await ReplyCancelled();
    co_return Next::kFinish;
  }
  if (end == Permit::End::kHeld) co_return Next::kOn;
  co_await Reject(end == Permit::End::kTimeout ? HttpError::kQueueTimeout : HttpError::kQueueFull);
  co_return Next::kFinish;
}

// A client that leaves gives up its place. If its body has not been read, only the end of its connection
// can be watched for.
void Exchange::WatchQueued() {
  if (stream_body_) connection_.socket.WatchEnd(&Exchange::OnClientEnded, this);
}

void Exchange::OnClientEnded(void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  if (exchange->connection_.MayStillRead()) return;
  exchange->Cancel(CancelReason::kClientGone);
}

// Workers of another model may be free while those of this one are not, so who waits for a model wakes itself only.
Permit::Worth Exchange::MayHaveCapacity(IoThread& thread, const void* context) {
  const auto* exchange = static_cast<const Exchange*>(context);
  const auto is_full = [&thread, exchange](Stage stage) {
    const RequestedModel* const model = exchange->model_.get();
    std::shared_ptr<const FleetView> fleet = FleetFor(thread, model, stage);
    if (!fleet->all_admitting()) {
      AdmitHalfOpen(thread, *fleet);
      fleet = FleetFor(thread, model, stage);
    }
    return fleet->in_rotation() != 0 && thread.router->FreePlaces(*fleet) == 0;
  };
  const bool takes_both = exchange->pd_ != nullptr;
  if (is_full(exchange->FirstStage()) || (takes_both && is_full(Stage::kDecode)))
    return Permit::Worth::kNobody;
  const bool is_particular = exchange->model_ != nullptr || exchange->pd_request_ != nullptr;
  return is_particular ? Permit::Worth::kThis : Permit::Worth::kFirst;
}

// With a single worker, the response is that worker's anyway.
bool Exchange::MayNameResponse() const {
  const bool may = record_.route == Route::kResponse ||
                   (MayContinueResponse(record_.route) && head_->framing != BodyFraming::kNone);
  return may && thread_.fleet.Get()->members().size() > 1;
}

// Engines keep the responses that they made, so a request that names one goes to the worker that has it.
Task<Exchange::Next> Exchange::FindResponse() {
  std::string id(ResponseIdOfPath(head_->path));
  if (MayContinueResponse(record_.route) && !stream_body_) {
    id = PreviousResponseId(body_->held(), /*padded=*/true).value_or(std::string());
  }
  if (id.empty()) co_return Next::kOn;
  ResponseOwners& responses = thread_.limits.responses;
  const auto count = [&responses](ResponseLookup lookup) {
    responses.lookups[static_cast<size_t>(lookup)].fetch_add(1, std::memory_order_relaxed);
  };
  holder_ = responses.workers.Find(id, thread_.clock.NowNanos());
  if (holder_ && thread_.fleet.Get()->Find(*holder_)) {
    count(ResponseLookup::kKnown);
    co_return Next::kOn;
  }
  holder_.reset();
  // Another operation below /v1/responses/, which every worker has: it goes where its body belongs.
  if (record_.route == Route::kResponse && !LooksLikeResponseId(id)) co_return Next::kOn;
  Permit search(responses.searches, thread_);
  if (!search.TryAcquire(1)) {
    count(ResponseLookup::kBusy);
    co_await Reject(HttpError::kResponseSearchBusy);
    co_return Next::kFinish;
  }
  CancelScope scope(head_->via);
  scope_ = &scope;
  holder_ = co_await SearchResponse(thread_, scope, *head_, id, Client());
  scope_ = nullptr;
  if (scope.cancelled()) {
    Cancel(CancelReason::kShutdown);  // unless there was an earlier reason
    co_await ReplyCancelled();
    co_return Next::kFinish;
  }
  count(holder_ ? ResponseLookup::kFound : ResponseLookup::kNotFound);
  if (holder_) responses.workers.Stick(id, *holder_, thread_.clock.NowNanos());
  co_return Next::kOn;
}

// A stored response's ID is among the first things that its worker sends.
ClientSide Exchange::Client() const {
  return {
      .request_id = request_id_.to_worker(),
      .request_id_name = request_id_.header_name,
      .hide_ids = thread_.fleet.Get()->stages() != nullptr,
      .id_names = settings_.request_id_headers,
      .address = connection_.peer.address,
      .tls = connection_.socket.is_tls(),
      .drop_authorization = thread_.authorizer.takes_client_keys(),
      .preserve_host = settings_.preserve_host,
      .trust_forwarded = settings_.trust_forwarded,
      .identity = keepalive_ != nullptr};
}

// ---- 6 SELECT, 7 LEASE, 8 SEND, 9 AWAIT

PdRoute Exchange::PathInStages() const {
  const PdSettings& pd = settings_.pd;
  return PdRouteOf(
      head_->method, head_->path, head_->websocket, {.two_stages = pd.extra_routes, .passed = pd.pass_paths});
}

// What a worker would do with it is not known, nor in which members a client could steer transfers.
Task<void> Exchange::RejectPath() {
  constexpr size_t kShownBytes = 128;
  record_.pd = std::make_unique<PdInfo>();
  record_.pd->kind = "rejected";
  const Next next = co_await TakeShortBody();
  if (next == Next::kFinish) co_return;
  const std::string_view method = head_->websocket ? std::string_view("WebSocket") : head_->method;
  std::string message = Concat(
      method, " ", CutAtCharacter(head_->path, kShownBytes),
      " is passed on to no worker: in front of prefill and decode workers only known paths are, with their "
      "methods and in their usual spelling; the operator can name one that steers no engine "
      "(--pd-pass-paths).");
  co_await ReplyError(HttpError::kPathNotPassed, std::move(message));
}

// Which workers may serve it is known from its body: two, or one of one stage.
Task<Exchange::Next> Exchange::PlanStages() {
  record_.pd = std::make_unique<PdInfo>();
  const PdRoute route = PathInStages();
  const bool has_body = head_->framing != BodyFraming::kNone;
  const std::shared_ptr<const FleetView> fleet = thread_.fleet.Get();
  const KvConnector* const connector = ConnectorOf(settings_.pd.kv_connector, fleet->stages()->engine);
  if (connector == nullptr) {  // auto, and no worker's engine is known
    std::string message = NoPairMessage(settings_.pd, *fleet);
    co_await ReplyError(HttpError::kNoWorkers, std::move(message));
    co_return Next::kFinish;
  }
  BodyMap body = BodyMap::Read(has_body ? body_->held() : std::string_view());
  PdPlan plan;
  if (has_body) plan = MakePdPlan(route, body, *connector);
  pd_request_ = std::make_unique<PdRequest>(PdRequest{route, connector, std::move(body), std::move(plan)});
  PdRequest& request = *pd_request_;
  switch (request.plan.kind) {
    case PdKind::kRejected: {
      record_.pd->kind = "rejected";
      std::string message = request.plan.error;
      co_await ReplyError(HttpError::kInvalidBody, std::move(message));
      co_return Next::kFinish;
    }
    case PdKind::kTwoStages:
      record_.pd->kind = "two_stages";
      CountRemoved(request.plan.stripped);
      pd_ = std::make_unique<PdExchange>(thread_, settings_, record_);
      attempts_ = pd_.get();
      co_return Next::kOn;
    case PdKind::kLocal:
      record_.pd->kind = "local";
      record_.pd->local = LocalReasonName(request.plan.reason);
      break;
    case PdKind::kSingle:
      record_.pd->kind = "single";
      break;
  }
  const bool edits =
      settings_.pd.strip_client_params != PdStrip::kNever && !request.plan.plain.empty() && request.body.ok();
  if (edits) {
    request.copy = request.plan.plain.Apply(request.body);
    CountRemoved(request.plan.stripped);
  }
  co_return Next::kOn;
}

void Exchange::CountRemoved(const StrippedMembers& removed) {
  Telemetry& telemetry = thread_.telemetry;
  telemetry.MembersRemoved("kv_transfer_params", removed.kv_transfer_params);
  telemetry.MembersRemoved("ec_transfer_params", removed.ec_transfer_params);
  telemetry.MembersRemoved("bootstrap", removed.bootstrap);
  telemetry.MembersRemoved("request_id", removed.request_id);
  telemetry.MembersRemoved("rank", removed.rank);
}

// In front of workers without stages; their bodies are read whole for it.
Task<Exchange::Next> Exchange::StripBody() {
  if (head_->framing == BodyFraming::kNone) co_return Next::kOn;
  BodyMap body = BodyMap::Read(body_->held());
  PdPlan plan = MakeSinglePlan(body);
  if (plan.kind == PdKind::kRejected) {
    std::string message = plan.error;
    co_await ReplyError(HttpError::kInvalidBody, std::move(message));
    co_return Next::kFinish;
  }
  if (plan.plain.empty()) co_return Next::kOn;
  CountRemoved(plan.stripped);
  stripped_ =
      std::make_unique<PdRequest>(PdRequest{PdRoute::kOther, nullptr, std::move(body), std::move(plan)});
  stripped_->copy = stripped_->plan.plain.Apply(stripped_->body);
  co_return Next::kOn;
}

bool Exchange::MayEditMessage() const {
  const bool marks = settings_.anthropic_cache_control_injection && record_.route == Route::kMessages;
  const bool strips = settings_.strip_anthropic_billing_header && IsAnthropic(record_.route);
  return (marks || strips) && head_->method == "POST" && head_->framing != BodyFraming::kNone;
}

// On top of what is removed, and behind the key, which is that of the client's body. All attempts send the same pieces.
void Exchange::EditMessage() {
  const PdRequest* const edited = stripped_ != nullptr ? stripped_.get() : pd_request_.get();
  std::optional<BodyMap> own;
  if (edited == nullptr) own = BodyMap::Read(body_->held());
  const BodyMap& body = edited != nullptr ? edited->body : *own;
  std::vector<BodyInsertion> edits;
  if (settings_.strip_anthropic_billing_header) edits = BillingHeaderEdits(body);
  if (settings_.anthropic_cache_control_injection && record_.route == Route::kMessages) {
    const CacheControlEdit marker = CacheControlEdit::Of(body);
    thread_.telemetry.CacheControl(CacheControlResultName(marker.result()));
    edits.insert(edits.end(), marker.insertions().begin(), marker.insertions().end());
  }
  if (edits.empty()) return;
  edited_message_ = std::make_unique<EditedMessage>(EditedMessage{std::move(edits), {}});
  if (pd_ != nullptr) return;  // each stage has a copy of its own
  SplicedBody& copy = edited_message_->copy;
  if (edited != nullptr && edited->copy.removed != 0) {
    copy = edited->copy;
  } else {
    copy.Add(body_->held());
  }
  for (const BodyInsertion& edit : edited_message_->edits) copy.Insert(edit);
}

Task<Attempts::End> Exchange::RunAttempts() {
  UpstreamRequest::Message message{
      .head = head_, .body = &*body_, .stream_body = stream_body_, .client = Client()};
  WorkerChoice::Request choice{
      .key = &key_,
      .path = head_->path,
      .pinned = holder_,
      .pinned_work = MayContinueResponse(record_.route),
      .model = model_.get(),
      .stage = FirstStage()};
  if (pd_ != nullptr) {
    choice.pinned.reset();
    const PdExchange::Request request{
        .message = message,
        .choice = choice,
        .id = &request_id_,
        .client_restricted = restricted_client_.has_value(),
        .route = pd_request_->route,
        .body = &pd_request_->body,
        .plan = &pd_request_->plan,
        .connector = pd_request_->connector,
        .insertions = edited_message_ != nullptr ? std::span<const BodyInsertion>(edited_message_->edits)
                                                 : std::span<const BodyInsertion>()};
    const Attempts::End end = co_await pd_->Run(request);
    co_return end;
  }
  const PdRequest* const edited = stripped_ != nullptr ? stripped_.get() : pd_request_.get();
  if (edited != nullptr && edited->copy.removed != 0) message.copy = &edited->copy;
  if (edited_message_ != nullptr) message.copy = &edited_message_->copy;
  const RetryLoop::Request request{
      .message = message,
      .choice = choice,
      .id = &request_id_,
      .client_restricted = restricted_client_.has_value()};
  const Attempts::End end = co_await retry_loop_.Run(request);
  co_return end;
}

Task<Exchange::Next> Exchange::Ask() {
  total_deadline_.Arm(thread_.loop.timers(), settings_.request_timeout_ms, &Exchange::OnTotalDeadline, this);
  Attempts::End end = co_await RunAttempts();
  if (key_.shared_hits && record_.decision) {
    thread_.telemetry.SharedCacheBeyond(record_.decision->shared_beyond);
  }
  while (end == Attempts::End::kFull && cancelled_ == CancelReason::kNone) {
    total_deadline_.Disarm();
    const Next next = co_await WaitForWorker();
    if (next == Next::kFinish) co_return next;
    total_deadline_.Arm(
        thread_.loop.timers(), settings_.request_timeout_ms, &Exchange::OnTotalDeadline, this);
    end = co_await RunAttempts();
  }
  if (cancelled_ != CancelReason::kNone) {
    if (cancelled_ == CancelReason::kTotalTimeout) attempts_->RecordTimeout();
    co_await ReplyCancelled();
    co_return Next::kFinish;
  }
  attempts_->SettleServerErrors();
  if (end == Attempts::End::kResponded) {
    // A 404 may also be about a stored response, or about the path.
    const bool may_lack_model = attempts_->response().status == 404 && model_ != nullptr &&
                                RouteOf(record_.route).computes && !MayContinueResponse(record_.route) &&
                                head_->path.starts_with("/v1/") &&
                                thread_.fleet.Get()->models()->names->any_said;
    if (may_lack_model) thread_.health.lacks_model(record_.worker);
    co_return Next::kOn;
  }
  const bool is_drained = attempts_->error() == HttpError::kWorkerDrained;
  worker_failed_ = !is_drained;
  if (is_drained) record_.end = ExchangeEnd::kDrain;
  if (attempts_->timed_out()) record_.end = ExchangeEnd::kTimeout;
  std::string message = attempts_->message();
  co_await ReplyError(attempts_->error(), std::move(message));
  co_return Next::kFinish;
}

// Every eligible worker has its maximum of requests. Another request may be able to use our permit.
Task<Exchange::Next> Exchange::WaitForWorker() {
  thread_.telemetry.steps_back.fetch_add(1, std::memory_order_relaxed);
  WatchQueued();
  thread_.limits.slow_uploads.MakeRoom(1);
  const Permit::End end = co_await permit_.Requeue(settings_.queue_timeout_ms);
  const Next next = co_await AfterWait(end);
  // If more than one worker has a free place, wake the next waiter now instead of when this request
  // ends.
  if (next == Next::kOn && model_ == nullptr && thread_.router->FreePlaces(*thread_.fleet.Get()) > 1) {
    permit_.WakeNext();
  }
  co_return next;
}

void Exchange::OnBodyFailed(void* context, RequestBody::End end) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->body_end_ = end;
  exchange->Cancel(
      end == RequestBody::End::kClientGone ? CancelReason::kClientGone : CancelReason::kBodyFailed);
}

void Exchange::OnBodySent(void* context) { static_cast<Exchange*>(context)->WatchClient(); }

// ---- 10 RELAY

Task<void> Exchange::RelayResponse() {
  const ResponseHead& response = attempts_->response();
  if (keepalive_ != nullptr) keepalive_->Stop();
  if (SentHead() && !IsPlainStream(response)) {
    co_await RelayAsEvents();
    co_return;
  }
  const bool old_client = head_->minor_version == 0;
  const bool worker_keeps = response.keep_alive && response.framing != BodyFraming::kUntilClose;
  const bool until_close =
      response.framing == BodyFraming::kChunked || response.framing == BodyFraming::kUntilClose;
  const bool chunked = (until_close && !old_client) || SentHead();
  ends_with_connection_ = until_close && old_client;
  if (thread_.draining || !RequestFullyRead() || ends_with_connection_) connection_.keep = false;
  if (!RequestFullyRead()) connection_.linger = true;

  // The head of an earlier attempt, if that one's response is the best available.
  if (record_.responded_ns < record_.sent_ns) record_.responded_ns = thread_.clock.NowNanos();
  record_.status = response.status;
  record_.stream = response.event_stream;
  const bool stored = record_.route == Route::kResponses && response.status / 100 == 2 &&
                      record_.worker != nullptr && thread_.fleet.Get()->members().size() > 1;
  if (response.event_stream) {
    total_deadline_.Arm(
        thread_.loop.timers(), settings_.stream_total_timeout_ms, &Exchange::OnTotalDeadline, this);
  }
  const BodyFraming framing = chunked                 ? BodyFraming::kChunked
                              : ends_with_connection_ ? BodyFraming::kUntilClose
                                                      : response.framing;
  const std::string client_head = SentHead() ? keepalive_->TakeUnsent() : HeadForClient(response, framing);
  BodyReader reader(response.framing, response.content_length, MessageKind::kResponse);
  const bool may_change = response.event_stream && response.framing != BodyFraming::kLength &&
                          !FindHeader(response.fields, "content-encoding");
  const std::string* const usage = may_change ? attempts_->prefill_usage() : nullptr;
  BodySink* const captured = cache_ != nullptr && attempts_->sent() ? cache_->Capture(response) : nullptr;
  attempts_->in().Consume(response.size);
  attempts_->ForgetResponseHead();
  // A worker that responds early may still be taking the body, which must then stay.
  if (attempts_->sent()) ForgetRequest();

  client_has_bytes_ = true;
  Timer client_timer;
  ClientSink client(connection_.socket, client_head, chunked, ClientStall(client_timer));
  std::optional<ResponseIdSink> response_id;
  std::optional<TeeSink> both;
  if (stored) both.emplace(response_id.emplace(thread_, record_.worker->id, record_.stream), client);
  if (captured != nullptr) both.emplace(client, *captured);
  BodySink* sink = both ? static_cast<BodySink*>(&*both) : &client;
  std::optional<UsageSink> merging;
  if (usage != nullptr) sink = &merging.emplace(*usage, *sink);
  Relay relay(
      thread_.loop, attempts_->worker(), *sink, settings_.stream_idle_timeout_ms,
      {.worker_idle = &Exchange::OnWorkerIdle,
       .first_byte = &Exchange::OnFirstBodyByte,
       .context = this,
       .progress = ProgressOfResponse(),
       .client_left = record_.stream && usage == nullptr ? &Exchange::OnClientLeft : nullptr});
  relay_ = chunked && record_.stream ? &relay : nullptr;
  relaying_ = true;
  const Relay::End end = co_await relay.Run(attempts_->in(), reader);
  relaying_ = false;
  deadline_.Disarm();

  record_.bytes_out = relay.bytes();
  record_.client_stalls = static_cast<uint32_t>(relay.stalls());
  const StreamSummary summary = relay.tail().Summarize(FormOf(record_));
  record_.prompt_tokens = summary.prompt_tokens;
  record_.completion_tokens = summary.completion_tokens;
  record_.cached_tokens = summary.cached_tokens;
  if (record_.prompt != nullptr && record_.stream && !record_.completion_tokens.has_value()) {
    record_.events = relay.tail().EstimateEvents(relay.bytes());
  }
  // Clients leave when they see such an event, so it counts for clients that left, too.
  const bool worker_error = record_.stream && summary.server_error;
  const bool aborted = summary.aborted && !worker_error;
  const ResponseEnd said = worker_error ? ResponseEnd::kServerError
                           : aborted    ? ResponseEnd::kAborted
                                        : ResponseEnd::kWhole;
  const bool rest_missing =
      relay.client_left() && end != Relay::End::kDone && cancelled_ == CancelReason::kNone;
  switch (rest_missing ? Relay::End::kDone : end) {
    case Relay::End::kDone:
      attempts_->ResponseEnded(said);
      lease_reusable_ = worker_keeps && attempts_->sent() && attempts_->in().empty() && !rest_missing;
      if (worker_error) {
        worker_failed_ = true;
        record_.end = ExchangeEnd::kWorkerError;
        record_.error = "worker_error_event";
      } else if (aborted) {
        worker_failed_ = true;
        record_.end = ExchangeEnd::kWorkerAborted;
        record_.error = "worker_aborted";
      } else if (record_.stream && !summary.done && EndsWithDone(record_.route)) {
        record_.end = ExchangeEnd::kNoDone;
      }
      break;
    case Relay::End::kClientGone:
      if (said != ResponseEnd::kWhole) attempts_->ResponseEnded(said);
      Cancel(CancelReason::kClientGone);
      break;
    case Relay::End::kWorkerGone:
    case Relay::End::kBadFraming:
      worker_failed_ = true;
      attempts_->ResponseEnded(ResponseEnd::kBrokeOff);
      record_.end = ExchangeEnd::kWorkerGone;
      record_.error = end == Relay::End::kWorkerGone ? "worker_closed" : "worker_bad_framing";
      CutClient();
      break;
    case Relay::End::kClosed:
      if (cancelled_ == CancelReason::kIdleTimeout || cancelled_ == CancelReason::kWorkerDead) {
        attempts_->ResponseEnded(ResponseEnd::kBrokeOff);
      } else if (said != ResponseEnd::kWhole) {
        attempts_->ResponseEnded(said);
      }
      CutClient();
      break;
  }
  relay_ = nullptr;
  if (cache_ != nullptr) {
    // The client has all of it: neither its departure nor a deadline changes what became of the request.
    total_deadline_.Disarm();
    connection_.socket.WatchReadable(nullptr, nullptr);
    // What was aborted is whole, and is not kept for what it says.
    const bool whole = end == Relay::End::kDone && !relay.client_left() &&
                       (record_.end == ExchangeEnd::kDone || record_.end == ExchangeEnd::kWorkerAborted);
    co_await cache_->End(whole, record_.prompt_tokens, record_.completion_tokens);
  }
}

// An error of the worker, or a response that is no event stream, for a client that has the head of a stream: read as a
// whole, and then sent as events.
Task<void> Exchange::RelayAsEvents() {
  const ResponseHead& response = attempts_->response();
  const bool worker_keeps = response.keep_alive && response.framing != BodyFraming::kUntilClose;
  const bool is_readable = !FindHeader(response.fields, "content-encoding");
  const int status = response.status;
  if (record_.responded_ns < record_.sent_ns) record_.responded_ns = thread_.clock.NowNanos();
  record_.status = status;
  BodyReader reader(response.framing, response.content_length, MessageKind::kResponse);
  attempts_->in().Consume(response.size);
  attempts_->ForgetResponseHead();
  CapturedBody body(kDrainedResponseBytes);
  Relay relay(
      thread_.loop, attempts_->worker(), body, settings_.stream_idle_timeout_ms,
      {.worker_idle = &Exchange::OnWorkerIdle,
       .first_byte = &Exchange::OnFirstBodyByte,
       .context = this,
       .progress = ProgressOfResponse()});
  const Relay::End end = co_await relay.Run(attempts_->in(), reader);
  if (end == Relay::End::kDone) {
    attempts_->ResponseEnded(ResponseEnd::kWhole);
    lease_reusable_ = worker_keeps && attempts_->sent() && attempts_->in().empty();
  } else if (cancelled_ == CancelReason::kNone || cancelled_ == CancelReason::kIdleTimeout) {
    worker_failed_ = true;
    attempts_->ResponseEnded(ResponseEnd::kBrokeOff);
  }
  if (cancelled_ != CancelReason::kNone) {
    co_await ReplyCancelled();
  } else if (end != Relay::End::kDone) {
    co_await ReplyError(
        end == Relay::End::kBadFraming ? HttpError::kWorkerBadResponse : HttpError::kWorkerClosed);
  } else {
    const std::string_view text = is_readable && body.whole() ? body.bytes() : std::string_view();
    std::string events;
    if (status == 200) events = WholeAsEvents(record_.route, text);
    if (!events.empty()) {
      co_await EndStream(events);
    } else if (status >= 400) {
      co_await EndStream(ErrorEvents(record_.route, status, text));
    } else {
      co_await ReplyError(HttpError::kWorkerBadResponse, "The worker's response is no event stream.");
    }
  }
  if (cache_ != nullptr) co_await cache_->End(/*whole=*/false, {}, {});
}

// The last part of a body whose head the client has.
Task<void> Exchange::EndStream(std::string_view events) {
  std::string out = keepalive_->TakeUnsent();
  WriteChunkSize(events.size(), &out);
  out.append(events).append("\r\n0\r\n\r\n");
  client_has_bytes_ = true;
  record_.bytes_out = events.size();
  co_await WriteToClient(out);
}

std::string Exchange::HeadForClient(const ResponseHead& response, BodyFraming framing, bool explains) {
  std::span<const HeaderField> extra;
  if (browser_ != nullptr) extra = browser_->fields;
  std::vector<HeaderField> more;
  std::optional<DecisionHeaders> why;
  if (explains && (cache_ != nullptr || settings_.decision_headers)) {
    more = ExtraFields();
    if (settings_.decision_headers) {
      const Stage stage = record_.worker != nullptr ? record_.worker->stage : Stage::kAll;
      why.emplace(record_, thread_.router->policy_of(stage).name());
      more.insert(more.end(), why->fields().begin(), why->fields().end());
    }
    extra = more;
  }
  std::optional<RedirectFields> redirect;
  if (RedirectFields::MayBeIn(response.status) && record_.worker != nullptr) {
    redirect.emplace(response, *head_, record_.worker->url, Client());
    std::vector<HeaderField> all(extra.begin(), extra.end());
    all.insert(all.end(), redirect->fields().begin(), redirect->fields().end());
    more = std::move(all);
    extra = more;
  }
  std::string head;
  WriteClientHead(
      response,
      {.request_id = request_id_.id,
       .framing = framing,
       .content_length = response.content_length,
       .close = !connection_.keep,
       .keep_alive_10 = head_->minor_version == 0 && connection_.keep,
       .own_cors = browser_ != nullptr && (!browser_->origin.empty() || !browser_->fields.empty()),
       .websocket = response.status == 101,
       .extra = extra},
      &head);
  return head;
}

// Of any response, besides what its kind has.
std::vector<HeaderField> Exchange::ExtraFields() const {
  std::vector<HeaderField> fields;
  if (browser_ != nullptr) fields = browser_->fields;
  if (cache_ == nullptr) return fields;
  fields.push_back({"X-Cache", cache_->label()});
  if (cache_->found()) fields.push_back({"Age", cache_->age()});
  const std::string_view reason = settings_.decision_headers ? cache_->reason() : std::string_view();
  if (!reason.empty()) fields.push_back({"x-vllm-router-cache-reason", reason});
  return fields;
}

// Nothing is sent again once a response is being relayed, and a stream may last for minutes.
void Exchange::ForgetRequest() {
  attempts_->ForgetRequest();
  head_ = nullptr;
  key_ = {};
  body_->Release();
  if (connection_.in.empty()) connection_.in.Release();
  thread_.request_parsers.Release(std::move(head_parser_));
}

// The worker has switched protocols, as requested. Bytes that the client sent behind its request belong
// to the new protocol.
Task<void> Exchange::RelayWebSocket() {
  connection_.keep = false;
  record_.status = attempts_->response().status;
  total_deadline_.Arm(
      thread_.loop.timers(), settings_.stream_total_timeout_ms, &Exchange::OnTotalDeadline, this);
  const std::string client_head = HeadForClient(attempts_->response(), BodyFraming::kNone);
  attempts_->in().Consume(attempts_->response().size);
  attempts_->ForgetResponseHead();
  connection_.socket.WatchReadable(nullptr, nullptr);
  ForgetRequest();
  if (ahead_ != nullptr) connection_.in.Append(*ahead_);
  ahead_.reset();

  client_has_bytes_ = true;
  Tunnel tunnel(
      thread_.loop, connection_.socket, attempts_->worker(),
      {.idle_ms = settings_.stream_idle_timeout_ms,
       .client_write_ms = settings_.client_write_timeout_ms,
       .worker_write_ms = settings_.upstream_write_timeout_ms},
      {.idle = &Exchange::OnWorkerIdle,
       .client_stalled = &Exchange::OnClientStalled,
       .worker_stalled = &Exchange::OnWorkerStalled,
       .context = this});
  relaying_ = true;
  const Tunnel::End end = co_await tunnel.Run(client_head, connection_.in, attempts_->in());
  relaying_ = false;
  deadline_.Disarm();

  connection_.in.Clear();
  tunnelled_in_ = tunnel.bytes_to_worker();
  record_.bytes_out = tunnel.bytes_to_client();
  record_.client_stalls = static_cast<uint32_t>(tunnel.client_stalls());
  record_.worker_stalls += static_cast<uint32_t>(tunnel.worker_stalls());
  if (end == Tunnel::End::kClientGone) Cancel(CancelReason::kClientGone);
  if (end == Tunnel::End::kWorkerGone) {
    worker_failed_ = true;
    record_.end = ExchangeEnd::kWorkerGone;
    record_.error = "worker_closed";
  }
  // What the client sent may have made a worker break off, so only good ends reach the breaker.
  if (end == Tunnel::End::kDone) attempts_->ResponseEnded(ResponseEnd::kWhole);
}

// The client must not mistake a broken response for a whole one. The framing is left open; if the end of
// the connection is the framing, the connection is reset.
void Exchange::CutClient() {
  connection_.keep = false;
  if (settings_.sse_error_event && relay_ != nullptr && relay_->at_event_edge()) SendCutEvent();
  if (ends_with_connection_) {
    connection_.socket.Abort();
  } else {
    connection_.socket.Close();
  }
}

// One more event behind those that the worker sent. Neither [DONE] nor a last chunk follows, so a client
// that does not know such events still sees that the stream broke off. Bytes that the socket does not
// take at once are dropped.
void Exchange::SendCutEvent() {
  const std::string_view code = !record_.error.empty() ? record_.error : CutBy(cancelled_);
  if (code.empty()) return;
  const RouteError error{
      .status = StatusOfCut(code),
      .message = "The stream was aborted before its end.",
      .type = "server_error",
      .code = code,
      .request_id = request_id_.id};
  const std::string event = ErrorEvent(record_.route, error.status, ErrorBodyFor(record_.route, error));
  std::string framed;
  WriteChunkSize(event.size(), &framed);
  framed.append(event).append("\r\n");
  const iovec piece = Piece(framed);
  connection_.socket.TryWrite({&piece, 1});
}

// Of what an engine computes: each piece of it shows that its worker serves.
ResponseProgress* Exchange::ProgressOfResponse() const {
  const bool shows = settings_.detects_hangs() && RouteOf(record_.route).computes;
  return shows && record_.status / 100 == 2 && record_.worker != nullptr ? &record_.worker->progress
                                                                         : nullptr;
}

void Exchange::OnFirstBodyByte(void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->record_.first_body_ns = exchange->thread_.clock.NowNanos();
  if (exchange->record_.stream) exchange->attempts_->ticket().FirstToken();
  exchange->attempts_->CountFirstByte();
}

void Exchange::OnWorkerIdle(void* context) {
  static_cast<Exchange*>(context)->Cancel(CancelReason::kIdleTimeout);
}

void Exchange::OnWorkerStalled(void* context) {
  static_cast<Exchange*>(context)->Cancel(CancelReason::kSlowWorker);
}

void Exchange::OnClientStalled(void* context) {
  static_cast<Exchange*>(context)->Cancel(CancelReason::kSlowClient);
}

void Exchange::OnTotalDeadline(void* context) {
  static_cast<Exchange*>(context)->Cancel(CancelReason::kTotalTimeout);
}

void Exchange::WorkerDied(const Worker& worker) {
  const bool is_relayed = record_.worker.get() == &worker;
  if (!client_has_bytes_ || !is_relayed) {
    attempts_->WorkerDied(worker);
  } else if (relaying_ && settings_.dead_worker_grace_ms == 0) {
    Cancel(CancelReason::kWorkerDead);
  } else if (relaying_) {
    ArmDeadline(settings_.dead_worker_grace_ms, &Exchange::OnDeadWorkerGrace);
  }
}

void Exchange::WorkerDrained(const Worker& worker) {
  const bool is_relayed = client_has_bytes_ && record_.worker.get() == &worker;
  if (is_relayed || !attempts_->WorkerDrained(worker)) Cancel(CancelReason::kDrained);
}

void Exchange::OnDeadWorkerGrace(void* context) {
  static_cast<Exchange*>(context)->Cancel(CancelReason::kWorkerDead);
}

// ---- 11 FINISH

void Exchange::Finish() {
  deadline_.Disarm();
  total_deadline_.Disarm();
  connection_.socket.WatchReadable(nullptr, nullptr);
  record_.end_ns = thread_.clock.NowNanos();
  if (keepalive_ != nullptr) {
    keepalive_->Stop();
    record_.keepalives = keepalive_->comments();
  }

  switch (cancelled_) {
    case CancelReason::kNone:
      break;
    case CancelReason::kClientGone:
      record_.end = ExchangeEnd::kClientGone;
      break;
    case CancelReason::kSlowClient:
      record_.end = ExchangeEnd::kSlowClient;
      break;
    case CancelReason::kBodyFailed:
      break;  // the response has its own status
    case CancelReason::kIdleTimeout:
    case CancelReason::kTotalTimeout:
    case CancelReason::kSlowWorker:
      record_.end = ExchangeEnd::kTimeout;
      if (record_.error.empty()) record_.error = CutBy(cancelled_);
      break;
    case CancelReason::kWorkerDead:
      worker_failed_ = true;
      record_.end = ExchangeEnd::kWorkerGone;
      record_.error = CutBy(cancelled_);
      break;
    case CancelReason::kShutdown:
    case CancelReason::kDrained:
      record_.end = ExchangeEnd::kDrain;
      break;
  }
  if (!attempts_->ticket().finished()) {
    Outcome outcome{.status = record_.worker != nullptr && client_has_bytes_ ? record_.status : 0};
    outcome.end = record_.end == ExchangeEnd::kClientGone || record_.end == ExchangeEnd::kSlowClient
                      ? Outcome::End::kClientGone
                  : worker_failed_ || record_.end == ExchangeEnd::kTimeout ? Outcome::End::kWorkerFailed
                  : record_.attempts == 0                                  ? Outcome::End::kNotSent
                                                                           : Outcome::End::kFinished;
    if (record_.first_body_ns != 0) {
      outcome.first_token_ms = static_cast<double>(record_.first_body_ns - record_.head_ns) / 1e6;
    }
    outcome.prompt_tokens = record_.prompt_tokens;
    // With transferred blocks, what decode reports as cached was cached at prefill.
    const bool is_own = record_.pd == nullptr || !record_.pd->transferred;
    if (is_own) outcome.cached_tokens = record_.cached_tokens;
    outcome.output_tokens = record_.completion_tokens;
    attempts_->ticket().Finish(outcome);
  }
  attempts_->ReleaseConnection(lease_reusable_);
  permit_.Release();
  if (restricted_client_.has_value()) thread_.limits.quarantine.Leave(*restricted_client_);

  if (body_.has_value()) {
    record_.bytes_in = body_->bytes() + tunnelled_in_;
    if (!body_->complete()) connection_.keep = false;
    body_->Release();
    if (ahead_ != nullptr) connection_.in.Append(*ahead_);
  }
  if (!connection_.socket.is_open()) connection_.keep = false;
  if (cache_ != nullptr) {
    constexpr std::array<std::string_view, ResponseCache::kResults> kNames = {"hit", "miss", "bypass"};
    cache_->Count();
    record_.cache = kNames[static_cast<size_t>(cache_->result())];
    record_.cache_reason = cache_->reason();
    record_.cache_ns = cache_->lookup_ns();
  }
  if (outdates_ != nullptr) InvalidateCache();
  if (record_.pd != nullptr && record_.pd->pair_id.empty() && record_.worker != nullptr)
    record_.pd->pair_id = request_id_.for_workers;
  if (proxied_) thread_.telemetry.in_flight.fetch_sub(1, std::memory_order_relaxed);
  // A connection that ended before it sent anything was no exchange.
  if (record_.head_ns != 0 || record_.status != 0 || !record_.bad_request_rule.empty()) {
    if (record_.wall_us == 0) record_.wall_us = UnixUs();  // the head was rejected
    record_.client = connection_.peer.address;
    record_.request_id = std::move(request_id_.id);
    thread_.telemetry.Record(record_);
    thread_.FlushLogSoon();
  }
}

// ---- cancelling, and the router's own responses

void Exchange::Cancel(CancelReason reason) {
  if (cancelled_ != CancelReason::kNone) {
    if (reason == CancelReason::kShutdown) attempts_->CancelKept();
    return;
  }
  cancelled_ = reason;
  if (keepalive_ != nullptr) keepalive_->Stop();
  if (scope_ != nullptr) scope_->Cancel();
  if (model_wait_ != nullptr) model_wait_->Cancel();
  if (validation_ != nullptr) KeyValidator::Waiter::Cancel(validation_);
  permit_.Leave();
  attempts_->Cancel();
  if (reason == CancelReason::kShutdown) attempts_->CancelKept();
  const bool client_is_lost = reason == CancelReason::kClientGone || reason == CancelReason::kSlowClient;
  const bool reading_head = head_ == nullptr && !client_has_bytes_;
  if (client_is_lost && client_has_bytes_) {
    connection_.socket.Abort();  // after a proper end, a partial response could pass for the whole
  } else if (client_has_bytes_) {
    CutClient();
  } else if (client_is_lost || reading_head) {
    connection_.socket.Close();
  }
  if (body_.has_value() && !body_->complete()) body_->Stop();
}

bool Exchange::IsLongRunning() const {
  return model_wait_ != nullptr || (scope_ != nullptr && scope_->is_long());
}

void Exchange::WatchClient() { connection_.socket.WatchReadable(&Exchange::OnClientReadable, this); }

// During an exchange a client may leave, or send its next requests; only a read tells which.
void Exchange::OnClientReadable(void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  std::array<char, 4096> bytes;
  for (;;) {
    const IoResult read = exchange->connection_.socket.TryRead(bytes);
    if (read.would_block()) break;
    if (read.eof && exchange->connection_.MayStillRead())
      return;  // from now on only a write shows whether it left
    if (!read.ok()) {
      Relay* const relay = exchange->relay_;
      if (relay == nullptr || !relay->client_has_all()) {
        exchange->Cancel(CancelReason::kClientGone);
      } else {
        relay->LeaveClient();
        OnClientLeft(context);
      }
      return;
    }
    std::unique_ptr<std::string>& ahead = exchange->ahead_;
    if (ahead == nullptr) ahead = std::make_unique<std::string>();
    ahead->append(bytes.data(), static_cast<size_t>(read.bytes));
    if (ahead->size() >= kMaxPipelinedBytes)
      return;  // the rest may wait; a write then shows that the client left
  }
  exchange->WatchClient();
}

// Behind the last event of its stream. The worker has little left to send, and a moment for it.
void Exchange::OnClientLeft(void* context) {
  auto* exchange = static_cast<Exchange*>(context);
  exchange->connection_.keep = false;
  exchange->ArmDeadline(kRestMs, &Exchange::OnRestLate);
}

void Exchange::OnRestLate(void* context) { static_cast<Exchange*>(context)->attempts_->worker().Close(); }

void Exchange::ArmDeadline(int64_t ms, Timer::Callback callback) {
  deadline_.Arm(thread_.loop.timers(), ms, callback, this);
}

Task<void> Exchange::ReplyCancelled() {
  switch (cancelled_) {
    case CancelReason::kBodyFailed:
      return ReplyBodyFailed(body_end_);
    case CancelReason::kTotalTimeout:
      worker_failed_ = true;
      return ReplyError(HttpError::kFirstByteTimeout);
    case CancelReason::kIdleTimeout:  // amid an error's body
      return ReplyError(HttpError::kFirstByteTimeout);
    case CancelReason::kShutdown:
      return ReplyError(HttpError::kShuttingDown);
    case CancelReason::kDrained:
      return ReplyError(HttpError::kWorkerDrained);
    default:
      return ReplyNothing();
  }
}

// The client is gone.
Task<void> Exchange::ReplyNothing() {
  connection_.keep = false;
  co_return;
}

Task<void> Exchange::ReplyError(
    HttpError error, std::string message, std::span<const HeaderField> extra, int status) {
  const ErrorRow& row = ErrorOf(error);
  record_.error = row.code;
  const RouteError told{
      .status = status != 0 ? status : row.status,
      .message = message.empty() ? row.message : std::string_view(message),
      .type = row.type,
      .code = row.code,
      .param = row.param,
      .request_id = request_id_.id};
  const std::string body = ErrorBodyFor(record_.route, told);
  const HeaderField retry_after{"Retry-After", "1"};
  if (row.retry_after && extra.empty()) extra = {&retry_after, 1};
  co_await Reply(told.status, body, "application/json", extra);
}

void Exchange::BeginReply(int status) {
  if (request_id_.id.empty())
    request_id_ = ChooseRequestId({}, {}, RouteOf(Route::kOther).id_prefix, thread_.ids);
  if (thread_.draining || (head_ != nullptr && head_->minor_version == 0)) connection_.keep = false;
  if (!RequestFullyRead()) {
    connection_.keep = false;
    connection_.linger = true;
  }
  record_.status = status;
}

std::string Exchange::WriteReply(
    int status, std::string_view body, std::string_view content_type, std::span<const HeaderField> extra,
    bool with_body) {
  BeginReply(status);
  std::vector<HeaderField> fields = ExtraFields();
  fields.insert(fields.begin(), extra.begin(), extra.end());
  std::string out;
  WriteOwnResponse(
      {.status = status,
       .content_type = content_type,
       .request_id = request_id_.id,
       .extra = fields,
       .body = body,
       .close = !connection_.keep,
       .to_head = !with_body || (head_ != nullptr && head_->method == "HEAD")},
      &out);
  client_has_bytes_ = true;
  record_.bytes_out = body.size();
  return out;
}

Task<void> Exchange::Reply(
    int status, std::string_view body, std::string_view content_type, std::span<const HeaderField> extra) {
  if (keepalive_ != nullptr) keepalive_->Stop();
  if (SentHead()) {
    BeginReply(status);
    co_await EndStream(ErrorEvents(record_.route, status, body));
    co_return;
  }
  const std::string out = WriteReply(status, body, content_type, extra, /*with_body=*/true);
  co_await WriteToClient(out);
}

// From where it is, since thousands of clients may wait for it, and in pieces between which others have their turns.
Task<void> Exchange::ReplyPage(AdminReply reply) {
  const std::string head =
      WriteReply(reply.status, reply.text(), reply.content_type, {}, /*with_body=*/false);
  std::string_view rest = head_ != nullptr && head_->method == "HEAD" ? std::string_view() : reply.text();
  page_ = reply.page.get();
  std::string_view first = head;
  do {
    const std::string_view piece = rest.substr(0, kFairnessBytes);
    rest.remove_prefix(piece.size());
    std::array<iovec, 2> pieces = {Piece(first), Piece(piece)};
    first = {};
    WriteStall stall = ClientStall(deadline_);
    const WriteEnd end = co_await WriteAll(connection_.socket, pieces, &stall);
    if (end == WriteEnd::kGone) Cancel(CancelReason::kClientGone);
    if (end != WriteEnd::kAll) break;
    if (!rest.empty()) co_await thread_.loop.Yield();
  } while (!rest.empty());
  page_ = nullptr;
}

WriteStall Exchange::ClientStall(Timer& timer) {
  return {
      .loop = thread_.loop,
      .timer = timer,
      .timeout_ms = settings_.client_write_timeout_ms,
      .callback = &Exchange::OnClientStalled,
      .context = this};
}

Task<bool> Exchange::WriteToClient(std::string_view bytes) {
  WriteStall stall = ClientStall(deadline_);
  iovec piece = Piece(bytes);
  const WriteEnd end = co_await WriteAll(connection_.socket, {&piece, 1}, &stall);
  if (end == WriteEnd::kGone) Cancel(CancelReason::kClientGone);
  co_return end == WriteEnd::kAll;
}

}  // namespace vllm_router
