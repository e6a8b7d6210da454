#include "proxy/exchange/downstream.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/time_units.h"
#include "http/head_writer.h"
#include "proxy/api/error_event.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/decision_headers.h"
#include "proxy/exchange/redirect_fields.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/own_endpoints.h"
#include "routing/body_map.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

// The status that says the same of a response that has not begun.
int StatusOfCut(std::string_view code) {
  const bool leaves =
      code == ErrorOf(HttpError::kShuttingDown).code || code == ErrorOf(HttpError::kWorkerDrained).code;
  return leaves ? 503 : code.ends_with("timeout") ? 504 : 502;
}

}  // namespace

// ---- the router's own responses

Task<bool> Downstream::TakeShortBody() {
  const RequestHead& head = *request_.head;
  const bool short_body = head.framing == BodyFraming::kLength && head.content_length <= kSmallBodyBytes;
  if (request_.body->complete() || !short_body || head.expects_continue) co_return true;
  const RequestBody::End end = co_await request_.body->Fill(kSmallBodyBytes);
  if (end == RequestBody::End::kOk) co_return true;
  co_await ReplyBodyFailed(end);
  co_return false;
}

Task<void> Downstream::Reject(HttpError error, int64_t retry_after_ns, std::string_view message) {
  Request& request = request_;
  request.info.refusal = ErrorOf(error).code;
  if (IsRecorded(request) && request.info.prompt == nullptr) {  // its body was not read
    const RequestHead& head = *request.head;
    KeepPrompt(request, {.headers = head.fields, .path = head.path, .body_bytes = head.content_length});
  }
  const bool taken = co_await TakeShortBody();
  if (!taken) co_return;
  const std::string seconds =
      std::to_string(std::max<int64_t>(1, (retry_after_ns + kNanosPerSecond - 1) / kNanosPerSecond));
  const HeaderField retry_after{"Retry-After", seconds};
  const std::span<const HeaderField> extra(&retry_after, retry_after_ns != 0 ? 1 : 0);
  std::string text(message);
  co_await ReplyError(error, std::move(text), extra);
}

Task<void> Downstream::ReplyBodyFailed(RequestBody::End end) {
  const Settings& settings = request_.settings;
  const bool was_cut = request_.body->was_cut();
  switch (end) {
    case RequestBody::End::kNoMemory:
      request_.info.refusal = ErrorOf(HttpError::kNoBodyMemory).code;
      return ReplyError(HttpError::kNoBodyMemory);
    case RequestBody::End::kTimeout:
      return ReplyError(HttpError::kBodyTimeout);
    case RequestBody::End::kTooSlow:
      if (was_cut) request_.info.refusal = ErrorOf(HttpError::kBodyTooSlow).code;
      return ReplyError(
          HttpError::kBodyTooSlow,
          "The request body arrives more slowly than " + std::to_string(settings.client_min_body_rate) +
              " bytes per second (--client-min-body-rate)" +
              (was_cut ? ", and other requests are waiting; send it faster." : "; send it faster."));
    case RequestBody::End::kBadChunk:
      return ReplyError(HttpError::kBadChunk);
    case RequestBody::End::kTooLarge:
      return ReplyError(
          HttpError::kBodyTooLarge, "The request body is longer than the " +
                                        std::to_string(settings.max_payload_size) +
                                        " bytes that this router accepts (--max-payload-size).");
    default:
      request_.Cancel(CancelReason::kClientGone);
      return ReplyCancelled();
  }
}

Task<void> Downstream::ReplyCancelled() {
  switch (request_.cancelled) {
    case CancelReason::kBodyFailed:
      return ReplyBodyFailed(request_.body_end);
    case CancelReason::kTotalTimeout:
      request_.worker_failed = true;
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
Task<void> Downstream::ReplyNothing() {
  request_.connection.keep = false;
  co_return;
}

Task<void> Downstream::ReplyError(
    HttpError error, std::string message, std::span<const HeaderField> extra, int status) {
  const ErrorRow& row = ErrorOf(error);
  request_.info.error = row.code;
  const RouteError shown{
      .status = status != 0 ? status : row.status,
      .message = message.empty() ? row.message : std::string_view(message),
      .type = row.type,
      .code = row.code,
      .param = row.param,
      .request_id = request_.id.id};
  const std::string body = ErrorBodyFor(request_.info.route, shown);
  const HeaderField retry_after{"Retry-After", "1"};
  if (row.retry_after && extra.empty()) extra = {&retry_after, 1};
  co_await Reply(shown.status, body, "application/json", extra);
}

void Downstream::BeginReply(int status) {
  RequestId& id = request_.id;
  if (id.id.empty()) id = ChooseRequestId({}, {}, RouteOf(Route::kOther).id_prefix, request_.thread.ids);
  if (request_.thread.draining || (request_.head && request_.head->minor_version == 0))
    request_.connection.keep = false;
  if (!request_.fully_read()) {
    request_.connection.keep = false;
    request_.connection.linger = true;
  }
  request_.info.status = status;
}

std::vector<HeaderField> Downstream::ExtraFields() const {
  std::vector<HeaderField> fields;
  if (browser_ != nullptr) fields = browser_->fields;
  request_.pipeline.AddFields(request_, &fields);
  return fields;
}

std::string Downstream::WriteReply(
    int status, std::string_view body, std::string_view content_type, std::span<const HeaderField> extra,
    bool with_body) {
  BeginReply(status);
  std::vector<HeaderField> fields = ExtraFields();
  fields.insert(fields.begin(), extra.begin(), extra.end());
  std::string out;
  WriteOwnResponse(
      {.status = status,
       .content_type = content_type,
       .request_id = request_.id.id,
       .extra = fields,
       .body = body,
       .close = !request_.connection.keep,
       .to_head = !with_body || (request_.head && request_.head->method == "HEAD")},
      &out);
  has_bytes_ = true;
  request_.info.bytes_out = body.size();
  return out;
}

Task<void> Downstream::Reply(
    int status, std::string_view body, std::string_view content_type, std::span<const HeaderField> extra) {
  StopKeepalive();
  if (sent_head()) {
    BeginReply(status);
    const std::string events = ErrorEvents(request_.info.route, status, body);
    co_await EndStream(events);
    co_return;
  }
  const std::string out = WriteReply(status, body, content_type, extra, /*with_body=*/true);
  co_await Write(out);
}

// From where it is, since thousands of clients may wait for it, and in pieces between which others have their turns.
Task<void> Downstream::ReplyPage(AdminReply reply) {
  const std::string head =
      WriteReply(reply.status, reply.text(), reply.content_type, reply.fields, /*with_body=*/false);
  const bool is_head = request_.head && request_.head->method == "HEAD";
  std::string_view rest = is_head ? std::string_view() : reply.text();
  page_ = reply.page.get();
  std::string_view first = head;
  do {
    const std::string_view piece = rest.substr(0, kFairnessBytes);
    rest.remove_prefix(piece.size());
    std::array<iovec, 2> pieces = {Piece(first), Piece(piece)};
    first = {};
    WriteStall stall = Stall(request_.deadline);
    const WriteEnd end = co_await WriteAll(request_.connection.socket, pieces, &stall);
    if (end == WriteEnd::kGone) request_.Cancel(CancelReason::kClientGone);
    if (end != WriteEnd::kAll) break;
    if (!rest.empty()) co_await request_.thread.loop.Yield();
  } while (!rest.empty());
  page_ = nullptr;
}

WriteStall Downstream::Stall(Timer& timer) {
  return {
      .loop = request_.thread.loop,
      .timer = timer,
      .timeout_ms = request_.settings.client_write_timeout_ms,
      .callback = &Downstream::OnStalled,
      .context = this};
}

void Downstream::OnStalled(void* context) {
  static_cast<Downstream*>(context)->request_.Cancel(CancelReason::kSlowClient);
}

Task<bool> Downstream::Write(std::string_view bytes) {
  WriteStall stall = Stall(request_.deadline);
  iovec piece = Piece(bytes);
  const WriteEnd end = co_await WriteAll(request_.connection.socket, {&piece, 1}, &stall);
  if (end == WriteEnd::kGone) request_.Cancel(CancelReason::kClientGone);
  co_return end == WriteEnd::kAll;
}

// ---- comments until a stream begins

// HTTP/1.0 has no chunks, so there the end of an aborted stream would pass for the end of a whole one.
void Downstream::BeginKeepalive() {
  const RequestHead& head = *request_.head;
  const bool may_stream = head.method == "POST" && head.minor_version > 0 && request_.body->complete();
  if (!may_stream || !WantsStream(BodyMap::Read(request_.body->held()))) return;
  const SseKeepalive::Hooks hooks{
      .head = [](void* context) { return static_cast<Downstream*>(context)->KeepaliveHead(); },
      .client_lost =
          [](void* context, bool slow) {
            static_cast<Downstream*>(context)->request_.Cancel(
                slow ? CancelReason::kSlowClient : CancelReason::kClientGone);
          },
      .context = this};
  keepalive_ = std::make_unique<SseKeepalive>(
      request_.thread.loop, request_.connection.socket, request_.settings.sse_keepalive_ms,
      request_.settings.client_write_timeout_ms, hooks);
}

// What the worker's own head would say is not known yet. A proxy that collects what it passes on, as nginx does, is
// told not to.
std::string Downstream::KeepaliveHead() {
  if (request_.thread.draining) request_.connection.keep = false;
  const ResponseHead head{
      .status = 200,
      .reason = ReasonPhrase(200),
      .fields = {
          {"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}}};
  return HeadFor(head, BodyFraming::kChunked, request_.info.decision.has_value());
}

Task<void> Downstream::EndStream(std::string_view events) {
  std::string out = TakeUnsent();
  WriteChunkSize(events.size(), &out);
  out.append(events).append("\r\n0\r\n\r\n");
  has_bytes_ = true;
  request_.info.bytes_out = events.size();
  co_await Write(out);
}

// ---- a worker's response

std::string Downstream::HeadFor(const ResponseHead& response, BodyFraming framing, bool explains) {
  const RequestInfo& info = request_.info;
  std::span<const HeaderField> extra;
  if (browser_ != nullptr) extra = browser_->fields;
  std::vector<HeaderField> more;
  std::optional<DecisionHeaders> why;
  if (explains) request_.pipeline.AddFields(request_, &more);
  if (explains && request_.settings.decision_headers) {
    const Stage stage = info.worker != nullptr ? info.worker->stage : Stage::kAll;
    why.emplace(info, request_.thread.router->policy_of(stage).name());
    more.insert(more.end(), why->fields().begin(), why->fields().end());
  }
  std::optional<RedirectFields> redirect;
  if (RedirectFields::MayBeIn(response.status) && info.worker != nullptr) {
    redirect.emplace(response, *request_.head, info.worker->url, ClientSideOf(request_));
    more.insert(more.end(), redirect->fields().begin(), redirect->fields().end());
  }
  if (!more.empty()) {
    more.insert(more.begin(), extra.begin(), extra.end());
    extra = more;
  }
  std::string head;
  WriteClientHead(
      response,
      {.request_id = request_.id.id,
       .framing = framing,
       .content_length = response.content_length,
       .close = !request_.connection.keep,
       .keep_alive_10 = request_.head->minor_version == 0 && request_.connection.keep,
       .own_cors = browser_ != nullptr && (!browser_->origin.empty() || !browser_->fields.empty()),
       .websocket = response.status == 101,
       .extra = extra},
      &head);
  return head;
}

void Downstream::Begin(bool ends_with_connection) {
  has_bytes_ = true;
  ends_with_connection_ = ends_with_connection;
}

// The framing is left open; if the end of the connection is the framing, the connection is reset.
void Downstream::Cut() {
  request_.connection.keep = false;
  if (request_.settings.sse_error_event && relay_ != nullptr && relay_->at_event_edge()) SendCutEvent();
  if (ends_with_connection_) {
    request_.connection.socket.Abort();
  } else {
    request_.connection.socket.Close();
  }
}

// One more event behind those that the worker sent. Neither [DONE] nor a last chunk follows, so a client
// that does not know such events still sees that the stream broke off. Bytes that the socket does not
// take at once are dropped.
void Downstream::SendCutEvent() {
  const RequestInfo& info = request_.info;
  const std::string_view code = !info.error.empty() ? info.error : CodeOfCut(request_.cancelled);
  if (code.empty()) return;
  const RouteError error{
      .status = StatusOfCut(code),
      .message = "The stream was aborted before its end.",
      .type = "server_error",
      .code = code,
      .request_id = request_.id.id};
  const std::string event = ErrorEvent(info.route, error.status, ErrorBodyFor(info.route, error));
  std::string framed;
  WriteChunkSize(event.size(), &framed);
  framed.append(event).append("\r\n");
  const iovec piece = Piece(framed);
  request_.connection.socket.TryWrite({&piece, 1});
}

// After a proper end, a partial response could pass for the whole, so a connection with one is reset or cut.
void Downstream::Cancelled() {
  StopKeepalive();
  const CancelReason reason = request_.cancelled;
  const bool is_lost = reason == CancelReason::kClientGone || reason == CancelReason::kSlowClient;
  const bool reading_head = request_.info.head_ns == 0;
  if (is_lost && has_bytes_) {
    request_.connection.socket.Abort();
  } else if (has_bytes_) {
    Cut();
  } else if (is_lost || reading_head) {
    request_.connection.socket.Close();
  }
}

void Downstream::Finish() {
  watch_.Stop();
  if (keepalive_ == nullptr) return;
  keepalive_->Stop();
  request_.info.keepalives = keepalive_->comments();
}

}  // namespace vllm_router
