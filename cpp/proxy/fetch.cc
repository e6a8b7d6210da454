#include "proxy/fetch.h"

#include <optional>
#include <utility>

#include "base/text.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "http/unframe.h"
#include "net/socket.h"
#include "proxy/lane.h"
#include "proxy/tls_files.h"

namespace vllm_router {
namespace {

constexpr size_t kMostBytes = 8 << 20;

Status Failed(const FetchDeadline& deadline, std::string_view what) {
  if (deadline.passed) return absl::DeadlineExceededError("no complete answer in time");
  return absl::UnavailableError(std::string(what));
}

}  // namespace

FetchDeadline::FetchDeadline(Lane& lane, Errand* errand) : lane(lane), errand(errand) {
  lane.fetches.insert(this);
  if (errand == nullptr) return;
  errand->fetches_.insert(this);
  passed = errand->cancelled_;
}

FetchDeadline::~FetchDeadline() {
  lane.fetches.erase(this);
  if (errand != nullptr) errand->fetches_.erase(this);
}

void FetchDeadline::Pass(void* deadline) {
  auto* self = static_cast<FetchDeadline*>(deadline);
  self->passed = true;
  if (self->name != nullptr) Resolver::Waiter::Cancel(self->name);
  if (self->connector != nullptr) self->connector->Cancel();
  if (self->socket != nullptr) self->socket->Close();
}

void Errand::Cancel() {
  cancelled_ = true;
  for (FetchDeadline* fetch : fetches_) FetchDeadline::Pass(fetch);
  if (inner_ != nullptr) inner_->Cancel();
  EndPause();
}

void Errand::EndPause() {
  if (pause_ != nullptr) pause_->Cancel();
}

Task<bool> Errand::Pause(Lane& lane, int64_t nanos) {
  if (cancelled_) co_return false;
  Delay delay(lane.loop);
  pause_ = &delay;
  co_await delay.For(nanos);
  pause_ = nullptr;
  co_return !cancelled_;
}

namespace {

Task<bool> Write(Socket& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    const IoResult write = socket.TryWrite({&piece, 1});
    if (write.would_block()) {
      const bool writable = co_await socket.Writable();
      if (!writable) co_return false;
      continue;
    }
    if (write.error != 0) co_return false;
    bytes.remove_prefix(static_cast<size_t>(write.bytes));
  }
  co_return true;
}

std::string WriteHead(
    const Lane& lane, const Errand* errand, const WorkerUrl& url, std::string_view method,
    std::string_view target, std::optional<size_t> json_bytes, const std::string* outsiders_key) {
  std::string head = Concat(
      method, " ", url.prefix, target, " HTTP/1.1\r\nHost: ", url.authority,
      "\r\nUser-Agent: vllm-router\r\nAccept: */*\r\nConnection: close\r\n");
  if (outsiders_key != nullptr) head += "Authorization: Bearer " + *outsiders_key + "\r\n";
  if (!lane.bearer.empty() && outsiders_key == nullptr && url.receives_api_key)
    head += "Authorization: " + lane.bearer + "\r\n";
  if (errand != nullptr) {
    for (const std::string_view hops : errand->via()) head.append("Via: ").append(hops).append("\r\n");
  }
  head += "Via: 1.1 " + lane.hop_name + "\r\n";
  if (json_bytes.has_value()) {
    head += "Content-Type: application/json\r\nContent-Length: " + std::to_string(*json_bytes) + "\r\n";
  }
  return head += "\r\n";
}

Task<StatusOr<Fetched>> Run(
    Lane& lane, Errand* errand, WorkerUrl url, std::string head, std::string_view body_to_send,
    int64_t timeout_ms, bool outside, Part wanted = Part::kWhole) {
  FetchDeadline deadline(lane, errand);
  deadline.timer.Arm(lane.loop.timers(), timeout_ms, &FetchDeadline::Pass, &deadline);
  deadline.name = std::make_shared<Resolver::Waiter>(lane.loop);
  StatusOr<std::vector<Address>> addresses = co_await lane.resolver.Resolve(url.host, deadline.name);
  deadline.name = nullptr;
  if (deadline.passed) co_return Failed(deadline, {});
  if (!addresses.ok()) co_return absl::NotFoundError(addresses.status().message());

  std::shared_ptr<const TlsContext> tls;
  if (url.tls) tls = outside ? lane.tls.others() : lane.tls.workers();
  if (url.tls && tls == nullptr) co_return absl::UnavailableError("TLS cannot be set up");
  std::string refused = "the connection was refused";
  Socket socket;
  for (const Address& address : *addresses) {
    if (deadline.passed) break;
    Connector connector(lane.loop, tls, url.host);
    deadline.connector = &connector;
    const int error = co_await connector.Connect(address, url.port);
    deadline.connector = nullptr;
    if (!connector.tls_error().empty()) refused = "TLS failed: " + connector.tls_error();
    if (error != 0) continue;
    socket = connector.TakeSocket();
    break;
  }
  if (!socket.is_open()) {
    lane.resolver.Doubt(url.host);
    if (deadline.passed) refused = "no connection in time";
    co_return absl::UnavailableError(refused);
  }
  deadline.socket = &socket;

  bool written = co_await Write(socket, head);
  if (written) written = co_await Write(socket, body_to_send);
  if (!written) co_return Failed(deadline, "the request was not taken");

  ResponseHeadParser parser;
  parser.Reset(/*to_head=*/false);
  Buffer in(lane.buffers);
  Fetched fetched;
  BodyReader body;
  bool in_body = false;
  bool closed = false;
  while (!in_body || !body.ended()) {
    if (closed && !(in_body && body.EndOfConnection()))
      co_return Failed(deadline, "the connection was closed early");
    if (closed) break;
    in.Reserve(BufferPool::kSmallest);
    const IoResult read = co_await socket.Read(in.room());
    if (read.error != 0) co_return Failed(deadline, "the connection broke");
    closed = read.eof;
    in.Commit(static_cast<size_t>(read.bytes));
    while (!in_body && !in.empty()) {
      const ParseState state = parser.Feed(in.view());
      if (state == ParseState::kNeedMore) break;
      if (state == ParseState::kBad) co_return absl::FailedPreconditionError("the answer is not HTTP");
      fetched.status = parser.head().status;
      in_body = fetched.status >= 200;
      if (in_body && wanted == Part::kStatus) co_return fetched;
      if (in_body) {
        body = BodyReader(parser.head().framing, parser.head().content_length, MessageKind::kResponse);
      }
      in.Consume(parser.head().size);
      parser.Reset(/*to_head=*/false);
    }
    if (in_body) {
      const Unframed part = Unframe(body, {in.data(), in.size()});
      if (part.bad) co_return absl::FailedPreconditionError("the answer's body is malformed");
      fetched.body.append(part.data);
      in.Consume(part.used);
    }
    if (fetched.body.size() + in.size() > kMostBytes)
      co_return absl::FailedPreconditionError(
          Concat("the response is longer than ", kMostBytes >> 20, " MiB"));
  }
  co_return fetched;
}

}  // namespace

Task<StatusOr<Fetched>> Fetch(
    Lane& lane, Errand* errand, WorkerUrl url, std::string target, int64_t timeout_ms,
    const std::string* outsiders_key) {
  std::string head = WriteHead(lane, errand, url, "GET", target, std::nullopt, outsiders_key);
  return Run(lane, errand, std::move(url), std::move(head), {}, timeout_ms, outsiders_key != nullptr);
}

Task<StatusOr<Fetched>> Post(
    Lane& lane, Errand* errand, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms) {
  std::string head = WriteHead(lane, errand, url, "POST", target, json.size(), nullptr);
  head += json;
  return Run(lane, errand, std::move(url), std::move(head), {}, timeout_ms, /*outside=*/false);
}

Task<StatusOr<Fetched>> Send(
    Lane& lane, Errand* errand, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
    Part part) {
  return Run(lane, errand, std::move(url), std::move(head), body, timeout_ms, /*outside=*/false, part);
}

}  // namespace vllm_router
