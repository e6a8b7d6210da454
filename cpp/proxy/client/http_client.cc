#include "proxy/client/http_client.h"

#include <string.h>

#include <array>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "http/dechunk.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "net/socket.h"
#include "net/write_all.h"
#include "proxy/client/tls_files.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxFramingBytes = size_t{8} << 20;

class WholeResponse final : public ResponseSink {
 public:
  WholeResponse(HttpClient::Part part, size_t max_body_bytes)
      : part_(part), max_body_bytes_(max_body_bytes) {}

  bool OnHead(const ResponseHead& head) override {
    response.status = head.status;
    return part_ == HttpClient::Part::kWhole;
  }
  bool OnData(std::string_view body_data) override {
    too_long = response.body.size() + body_data.size() > max_body_bytes_;
    if (!too_long) response.body.append(body_data);
    return !too_long;
  }

  HttpResponse response;
  bool too_long = false;

 private:
  const HttpClient::Part part_;
  const size_t max_body_bytes_;
};

}  // namespace

// A request in flight, and how to cancel it in each step.
struct HttpClient::Call final : CancelScope::Hook {
  Call(HttpClient& client, CancelScope* scope)
      : Hook(scope, [](Hook* call) { End(static_cast<Call*>(call)); }),
        client(client),
        ended(client.stopped_ || (scope != nullptr && scope->cancelled())) {
    client.calls_.insert(this);
  }
  ~Call() { client.calls_.erase(this); }

  static void End(void* call) {
    auto* self = static_cast<Call*>(call);
    self->ended = true;
    if (self->name != nullptr) Resolver::Waiter::Cancel(self->name);
    if (self->connector != nullptr) self->connector->Cancel();
    if (self->socket != nullptr) self->socket->Close();
  }

  Status Failed(std::string_view what) const {
    if (ended) return absl::DeadlineExceededError("no complete response in time");
    return absl::UnavailableError(std::string(what));
  }

  HttpClient& client;
  bool ended;
  std::shared_ptr<Resolver::Waiter> name;  // being looked up
  Connector* connector = nullptr;
  Socket* socket = nullptr;
  int64_t idle_ms = 0;  // > 0: each byte that arrives sets the timer again
  Timer timer;
};

void HttpClient::Stop() {
  stopped_ = true;
  for (Call* call : calls_) Call::End(call);
}

std::string_view HttpClient::AuthorizationFor(const WorkerUrl& url) const {
  return url.receives_api_key ? std::string_view(bearer_) : std::string_view();
}

std::string HttpClient::WriteHead(
    const CancelScope* scope, const WorkerUrl& url, std::string_view method, std::string_view target,
    std::string_view authorization, std::optional<size_t> json_bytes, std::string_view accept) const {
  std::string head = Concat(
      method, " ", url.prefix, target, " HTTP/1.1\r\nHost: ", url.authority,
      "\r\nUser-Agent: vllm-router\r\nAccept: ", accept, "\r\nConnection: close\r\n");
  if (!authorization.empty()) head += Concat("Authorization: ", authorization, "\r\n");
  if (scope != nullptr) {
    for (const std::string_view hops : scope->via()) head.append("Via: ").append(hops).append("\r\n");
  }
  head += "Via: 1.1 " + hop_name_ + "\r\n";
  if (json_bytes.has_value()) {
    head += "Content-Type: application/json\r\nContent-Length: " + std::to_string(*json_bytes) + "\r\n";
  }
  return head += "\r\n";
}

Task<Status> HttpClient::Read(
    Call& call, const WorkerUrl& url, std::string_view head, std::string_view body_to_send, bool external,
    ResponseSink& sink) {
  call.name = std::make_shared<Resolver::Waiter>(loop_);
  StatusOr<std::vector<Address>> addresses = co_await resolver_.Resolve(url.host, call.name);
  call.name = nullptr;
  if (call.ended) co_return call.Failed({});
  if (!addresses.ok()) co_return absl::NotFoundError(addresses.status().message());

  std::shared_ptr<const TlsContext> tls;
  if (url.tls) tls = external ? tls_.others() : tls_.workers();
  if (url.tls && tls == nullptr) co_return absl::UnavailableError("TLS cannot be set up");
  Connector connector(loop_, std::move(tls), url.host);
  call.connector = &connector;
  const int error = co_await connector.ConnectToAny(*std::move(addresses), url.port);
  call.connector = nullptr;
  if (error != 0) {
    resolver_.ReportFailure(url.host);
    co_return absl::UnavailableError(
        call.ended                      ? "no connection in time"
        : connector.tls_error().empty() ? "the connection was refused"
                                        : "TLS failed: " + connector.tls_error());
  }
  Socket socket = connector.TakeSocket();
  call.socket = &socket;

  std::array<iovec, 2> pieces = {Piece(head), Piece(body_to_send)};
  const WriteEnd written = co_await WriteAll(socket, pieces);
  if (written != WriteEnd::kAll) co_return call.Failed("the request could not be sent");

  ResponseHeadParser parser;
  parser.Reset(/*to_head=*/false);
  Buffer in(buffers_);
  BodyReader body;
  size_t this_turn = 0;
  bool in_body = false;
  bool closed = false;
  while (!in_body || !body.ended()) {
    if (closed && !(in_body && body.EndOfConnection()))
      co_return call.Failed("the connection was closed early");
    if (closed) break;
    in.Reserve(BufferPool::kSmallest);
    const IoResult read = co_await socket.Read(in.room());
    if (read.error != 0) co_return call.Failed("the connection broke");
    closed = read.eof;
    in.Commit(static_cast<size_t>(read.bytes));
    this_turn += static_cast<size_t>(read.bytes);
    if (call.idle_ms > 0) call.timer.Arm(loop_.timers(), call.idle_ms, &Call::End, &call);
    while (!in_body && !in.empty()) {
      const ParseState state = parser.Feed(in.view());
      if (state == ParseState::kNeedMore) break;
      if (state == ParseState::kBad) co_return absl::FailedPreconditionError("the response is not HTTP");
      in_body = parser.head().status >= 200;
      if (in_body && !sink.OnHead(parser.head())) co_return absl::OkStatus();
      if (in_body) {
        body = BodyReader(parser.head().framing, parser.head().content_length, MessageKind::kResponse);
      }
      in.Consume(parser.head().size);
      parser.Reset(/*to_head=*/false);
    }
    if (in_body) {
      const Dechunked data = Dechunk(body, {in.data(), in.size()});
      if (data.bad) co_return absl::FailedPreconditionError("the response's body is malformed");
      if (!data.data.empty() && !sink.OnData(data.data)) co_return absl::OkStatus();
      in.Consume(data.used);
    }
    if (in.size() > kMaxFramingBytes)
      co_return absl::FailedPreconditionError("the response's framing is too long");
    if (this_turn >= kFairnessBytes) {
      this_turn = 0;
      co_await loop_.Yield();
    }
  }
  co_return absl::OkStatus();
}

Task<StatusOr<HttpResponse>> HttpClient::Run(
    CancelScope* scope, WorkerUrl url, std::string head, std::string_view body_to_send, int64_t timeout_ms,
    bool external, Part part, size_t max_body_bytes) {
  Call call(*this, scope);
  call.timer.Arm(loop_.timers(), timeout_ms, &Call::End, &call);
  WholeResponse sink(part, max_body_bytes);
  const Status status = co_await Read(call, url, head, body_to_send, external, sink);
  call.socket = nullptr;
  if (!status.ok()) co_return status;
  if (sink.too_long) {
    co_return absl::ResourceExhaustedError(
        Concat("the response is longer than ", max_body_bytes >> 20, " MiB"));
  }
  co_return std::move(sink.response);
}

Task<Status> HttpClient::Stream(
    CancelScope* scope, WorkerUrl url, std::string target, std::string_view accept, std::string last_event_id,
    int64_t idle_ms, ResponseSink* sink) {
  std::string head = WriteHead(scope, url, "GET", target, AuthorizationFor(url), std::nullopt, accept);
  if (!last_event_id.empty()) head.insert(head.size() - 2, Concat("Last-Event-ID: ", last_event_id, "\r\n"));
  Call call(*this, scope);
  call.idle_ms = idle_ms;
  call.timer.Arm(loop_.timers(), idle_ms, &Call::End, &call);
  const Status status = co_await Read(call, url, head, {}, /*external=*/false, *sink);
  call.socket = nullptr;
  co_return status;
}

Task<StatusOr<HttpResponse>> HttpClient::Get(
    CancelScope* scope, WorkerUrl url, std::string target, int64_t timeout_ms, size_t max_body_bytes) {
  return GetWith({}, scope, std::move(url), std::move(target), timeout_ms, max_body_bytes);
}

Task<StatusOr<HttpResponse>> HttpClient::GetWith(
    std::string credentials, CancelScope* scope, WorkerUrl url, std::string target, int64_t timeout_ms,
    size_t max_body_bytes) {
  const std::string_view key = AuthorizationFor(url);
  std::string head = WriteHead(scope, url, "GET", target, key, std::nullopt);
  if (key.empty()) head.insert(head.size() - 2, credentials);
  ::explicit_bzero(credentials.data(), credentials.size());
  return Run(
      scope, std::move(url), std::move(head), {}, timeout_ms, /*external=*/false, Part::kWhole,
      max_body_bytes);
}

Task<Status> HttpClient::GetExternal(
    CancelScope* scope, WorkerUrl url, std::string target, std::string key, int64_t timeout_ms,
    ResponseSink* sink) {
  const std::string head = WriteHead(scope, url, "GET", target, "Bearer " + key, std::nullopt);
  Call call(*this, scope);
  call.timer.Arm(loop_.timers(), timeout_ms, &Call::End, &call);
  const Status status = co_await Read(call, url, head, {}, /*external=*/true, *sink);
  call.socket = nullptr;
  co_return status;
}

Task<StatusOr<HttpResponse>> HttpClient::Post(
    CancelScope* scope, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms,
    size_t max_body_bytes) {
  return PostWith({}, scope, std::move(url), std::move(target), std::move(json), timeout_ms, max_body_bytes);
}

Task<StatusOr<HttpResponse>> HttpClient::PostWith(
    std::string credentials, CancelScope* scope, WorkerUrl url, std::string target, std::string json,
    int64_t timeout_ms, size_t max_body_bytes) {
  const std::string_view key = AuthorizationFor(url);
  std::string head = WriteHead(scope, url, "POST", target, key, json.size());
  if (key.empty()) head.insert(head.size() - 2, credentials);
  ::explicit_bzero(credentials.data(), credentials.size());
  head += json;
  return Run(
      scope, std::move(url), std::move(head), {}, timeout_ms, /*external=*/false, Part::kWhole,
      max_body_bytes);
}

Task<StatusOr<HttpResponse>> HttpClient::PostAs(
    std::string authorization, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms) {
  const std::string_view key =
      authorization.empty() ? AuthorizationFor(url) : std::string_view(authorization);
  std::string head = WriteHead(nullptr, url, "POST", target, key, json.size());
  head += json;
  ::explicit_bzero(authorization.data(), authorization.size());
  return Run(nullptr, std::move(url), std::move(head), {}, timeout_ms, /*external=*/false, Part::kWhole);
}

Task<StatusOr<HttpResponse>> HttpClient::Send(
    CancelScope* scope, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
    Part part) {
  return Run(scope, std::move(url), std::move(head), body, timeout_ms, /*external=*/false, part);
}

Task<Status> HttpClient::SendExternal(
    WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms, ResponseSink* sink) {
  Call call(*this, nullptr);
  call.timer.Arm(loop_.timers(), timeout_ms, &Call::End, &call);
  const Status status = co_await Read(call, url, head, body, /*external=*/true, *sink);
  call.socket = nullptr;
  co_return status;
}

}  // namespace vllm_router
