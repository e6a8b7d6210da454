#include "proxy/client/http_client.h"

#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "http/dechunk.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "net/socket.h"
#include "net/write_all.h"
#include "proxy/client/tls_files.h"

namespace vllm_router {
namespace {

constexpr size_t kMostBytes = 8 << 20;

}  // namespace

// A request in flight, and how to cancel it in each step.
struct CancelScope::Call {
  Call(HttpClient& client, CancelScope* scope) : client(client), scope(scope), ended(client.stopped_) {
    client.calls_.insert(this);
    if (scope == nullptr) return;
    scope->calls_.insert(this);
    ended |= scope->cancelled_;
  }
  ~Call() {
    client.calls_.erase(this);
    if (scope != nullptr) scope->calls_.erase(this);
  }

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
  CancelScope* const scope;
  bool ended;
  std::shared_ptr<Resolver::Waiter> name;  // being looked up
  Connector* connector = nullptr;
  Socket* socket = nullptr;
  Timer timer;
};

void CancelScope::Cancel() {
  cancelled_ = true;
  for (Call* call : calls_) Call::End(call);
  if (inner_ != nullptr) inner_->Cancel();
  EndPause();
}

void CancelScope::EndPause() {
  if (pause_ != nullptr) pause_->Cancel();
}

Task<bool> CancelScope::Pause(EventLoop& loop, int64_t nanos) {
  if (cancelled_) co_return false;
  Delay delay(loop);
  pause_ = &delay;
  co_await delay.For(nanos);
  pause_ = nullptr;
  co_return !cancelled_;
}

void HttpClient::Stop() {
  stopped_ = true;
  for (Call* call : calls_) Call::End(call);
}

std::string_view HttpClient::AuthorizationFor(const WorkerUrl& url) const {
  return url.receives_api_key ? std::string_view(bearer_) : std::string_view();
}

std::string HttpClient::WriteHead(
    const CancelScope* scope, const WorkerUrl& url, std::string_view method, std::string_view target,
    std::string_view authorization, std::optional<size_t> json_bytes) const {
  std::string head = Concat(
      method, " ", url.prefix, target, " HTTP/1.1\r\nHost: ", url.authority,
      "\r\nUser-Agent: vllm-router\r\nAccept: */*\r\nConnection: close\r\n");
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

Task<StatusOr<HttpResponse>> HttpClient::Run(
    CancelScope* scope, WorkerUrl url, std::string head, std::string_view body_to_send, int64_t timeout_ms,
    bool external, Part part) {
  Call call(*this, scope);
  call.timer.Arm(loop_.timers(), timeout_ms, &Call::End, &call);
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
    resolver_.Doubt(url.host);
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
  HttpResponse response;
  BodyReader body;
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
    while (!in_body && !in.empty()) {
      const ParseState state = parser.Feed(in.view());
      if (state == ParseState::kNeedMore) break;
      if (state == ParseState::kBad) co_return absl::FailedPreconditionError("the response is not HTTP");
      response.status = parser.head().status;
      in_body = response.status >= 200;
      if (in_body && part == Part::kStatus) co_return response;
      if (in_body) {
        body = BodyReader(parser.head().framing, parser.head().content_length, MessageKind::kResponse);
      }
      in.Consume(parser.head().size);
      parser.Reset(/*to_head=*/false);
    }
    if (in_body) {
      const Dechunked data = Dechunk(body, {in.data(), in.size()});
      if (data.bad) co_return absl::FailedPreconditionError("the response's body is malformed");
      response.body.append(data.data);
      in.Consume(data.used);
    }
    if (response.body.size() + in.size() > kMostBytes)
      co_return absl::FailedPreconditionError(
          Concat("the response is longer than ", kMostBytes >> 20, " MiB"));
  }
  co_return response;
}

Task<StatusOr<HttpResponse>> HttpClient::Get(
    CancelScope* scope, WorkerUrl url, std::string target, int64_t timeout_ms) {
  std::string head = WriteHead(scope, url, "GET", target, AuthorizationFor(url), std::nullopt);
  return Run(scope, std::move(url), std::move(head), {}, timeout_ms, /*external=*/false, Part::kWhole);
}

Task<StatusOr<HttpResponse>> HttpClient::GetExternal(
    CancelScope* scope, WorkerUrl url, std::string target, std::string key, int64_t timeout_ms) {
  std::string head = WriteHead(scope, url, "GET", target, "Bearer " + key, std::nullopt);
  return Run(scope, std::move(url), std::move(head), {}, timeout_ms, /*external=*/true, Part::kWhole);
}

Task<StatusOr<HttpResponse>> HttpClient::Post(
    CancelScope* scope, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms) {
  std::string head = WriteHead(scope, url, "POST", target, AuthorizationFor(url), json.size());
  head += json;
  return Run(scope, std::move(url), std::move(head), {}, timeout_ms, /*external=*/false, Part::kWhole);
}

Task<StatusOr<HttpResponse>> HttpClient::Send(
    CancelScope* scope, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
    Part part) {
  return Run(scope, std::move(url), std::move(head), body, timeout_ms, /*external=*/false, part);
}

}  // namespace vllm_router
