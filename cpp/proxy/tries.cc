#include "proxy/tries.h"

#include <array>
#include <utility>

#include "base/limits.h"
#include "http/head_writer.h"
#include "proxy/lane.h"
#include "proxy/relay.h"
#include "proxy/tls_files.h"

namespace vllm_router {
namespace {

iovec Piece(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

}  // namespace

Tries::Tries(Lane& lane, ExchangeRecord& record, const Hooks& hooks)
    : lane_(lane), record_(record), hooks_(hooks) {}

Tries::~Tries() { lane_.response_parsers.Give(std::move(answer_parser_)); }

Task<Tries::End> Tries::Run(const Request& request) {
  request_ = request;
  if (!Select()) co_return End::kFailed;  // 6 SELECT
  // A body that cannot be sent twice must not meet a connection that its worker is just closing.
  const bool replayable = !request_.stream_body || request_.body->keeps_pieces();
  bool fresh = !replayable;
  for (;;) {
    if (!fresh) lease_ = lane_.upstreams.Take(ticket_.worker().id);  // 7 LEASE
    if (lease_ == nullptr) {
      const bool connected = co_await Connect();
      if (cancelled_) co_return End::kCancelled;
      if (!connected)
        co_return Fail(connect_timed_out_ ? HttpError::kConnectTimeout : HttpError::kConnectFailed);
    }
    record_.connected_ns = lane_.clock.NowNanos();
    record_.reused = lease_->reused;
    WriteHead();
    co_await lane_.loop.TurnEnd();
    Send();                                        // 8 SEND
    const Awaited awaited = co_await AwaitHead();  // 9 AWAIT
    if (awaited == Awaited::kHead) {
      answered_ = true;
      co_return End::kAnswered;
    }
    if (cancelled_) co_return End::kCancelled;
    const bool stale =
        awaited == Awaited::kEnded && !given_up_ && lease_->reused && !worker_spoke_ && replayable;
    co_await StopSending();
    lease_.reset();
    if (cancelled_) co_return End::kCancelled;
    if (stale) {  // the worker closed a resting connection while we wrote: not its failure, and not an attempt
      fresh = true;
      request_.body->Rewind();
      record_.stale_retry = true;
      continue;
    }
    if (given_up_) co_return Fail(*given_up_);
    co_return Fail(awaited == Awaited::kBad ? HttpError::kWorkerBadAnswer : HttpError::kWorkerClosed);
  }
}

void Tries::Cancel() {
  cancelled_ = true;
  if (connector_ != nullptr) connector_->Cancel();
  if (lease_ != nullptr) lease_->socket.Close();
}

Tries::End Tries::Fail(HttpError error, std::string message) {
  error_ = error;
  message_ = std::move(message);
  return End::kFailed;
}

bool Tries::timed_out() const {
  return error_ == HttpError::kFirstByteTimeout || error_ == HttpError::kWorkerWriteTimeout;
}

// ---- 6 SELECT

bool Tries::Select() {
  fleet_ = lane_.fleet.Get();
  StatusOr<Ticket> ticket = lane_.router->Select(*request_.key, *fleet_);
  record_.chosen_ns = lane_.clock.NowNanos();
  if (!ticket.ok()) {
    Fail(HttpError::kNoWorkers, std::string(ticket.status().message()));
    return false;
  }
  ticket_ = *std::move(ticket);
  record_.worker = ticket_.shared_worker();
  record_.decision = ticket_.decision();
  lane_.recorder.Decided(record_.worker, ticket_.decision());
  return true;
}

// ---- 7 LEASE

Task<bool> Tries::Connect() {
  const WorkerUrl& url = ticket_.worker().url;
  connect_timed_out_ = false;
  deadline_.Arm(lane_.loop.timers(), lane_.options.connect_timeout_ms, &Tries::OnConnectTimeout, this);
  StatusOr<std::vector<Address>> addresses = co_await lane_.resolver.Resolve(url.host);
  const std::shared_ptr<const TlsContext> tls = url.tls ? lane_.tls.workers() : nullptr;
  int error = 0;
  if (addresses.ok() && (tls != nullptr || !url.tls)) {
    for (const Address& address : *addresses) {
      if (cancelled_ || connect_timed_out_) break;
      Connector connector(lane_.loop, tls, url.host);
      connector_ = &connector;
      error = co_await connector.Connect(address, url.port);
      connector_ = nullptr;
      if (error == 0 && !cancelled_) {
        deadline_.Disarm();
        lane_.recorder.connects_ok.fetch_add(1, std::memory_order_relaxed);
        lease_ = lane_.upstreams.Adopt(connector.TakeSocket(), ticket_.worker().id);
        co_return true;
      }
    }
  }
  deadline_.Disarm();
  if (!cancelled_) lane_.recorder.connects_failed.fetch_add(1, std::memory_order_relaxed);
  co_return false;
}

void Tries::OnConnectTimeout(void* context) {
  auto* tries = static_cast<Tries*>(context);
  tries->connect_timed_out_ = true;
  if (tries->connector_ != nullptr) tries->connector_->Cancel();
}

// ---- 8 SEND

void Tries::WriteHead() {
  const RequestHead& head = *request_.head;
  const Worker& worker = ticket_.worker();
  const ServerOptions& options = lane_.options;
  const bool has_body = head.framing != BodyFraming::kNone;
  const bool chunked = has_body && request_.stream_body && head.framing == BodyFraming::kChunked;
  head_for_worker_.clear();
  WriteUpstreamHead(
      head,
      {.prefix = worker.url.prefix,
       .authority = worker.url.authority,
       .preserve_host = options.preserve_host,
       .hop_name = lane_.hop_name,
       .client_address = request_.client_address,
       .forwarded_proto = request_.client_tls ? "https" : "http",
       .trust_forwarded = options.trust_forwarded,
       .request_id_name = request_.id->header_name,
       .request_id = request_.id->to_worker(),
       .data_parallel_rank = worker.url.rank,
       .authorization = lane_.bearer,
       .drop_authorization = lane_.gatekeeper.takes_client_keys(),
       .framing = !has_body ? BodyFraming::kNone
                  : chunked ? BodyFraming::kChunked
                            : BodyFraming::kLength,
       .content_length = request_.stream_body ? head.content_length : request_.body->held().size()},
      &head_for_worker_);
}

// The whole request in one write if the socket takes it; what it does not take, and a streamed body, is the sender's.
void Tries::Send() {
  ++record_.attempts;
  request_sent_ = false;
  record_.sent_ns = lane_.clock.NowNanos();

  const std::string_view body = request_.stream_body ? std::string_view() : request_.body->held();
  std::array<iovec, 2> pieces = {Piece(head_for_worker_), Piece(body)};
  const IoResult write = lease_->socket.TryWrite(pieces);
  if (write.error != 0 && !write.would_block()) return;  // AWAIT finds out, and may still find an answer
  const size_t written = static_cast<size_t>(write.bytes);
  if (!request_.stream_body && written == head_for_worker_.size() + body.size()) {
    request_sent_ = true;
    return;
  }
  sending_ = true;
  Spawn(SendRest(written));
}

// Runs beside AWAIT and RELAY.
Task<void> Tries::SendRest(size_t written) {
  const std::string_view body = request_.stream_body ? std::string_view() : request_.body->held();
  std::array<iovec, 3> pieces = {Piece(head_for_worker_), Piece(body)};
  bool sent = co_await SendPieces(SkipWritten({pieces.data(), 2}, written));
  if (request_.stream_body) {
    const bool chunked = request_.head->framing == BodyFraming::kChunked;
    std::string size_line;
    while (sent) {
      const RequestBody::End end = co_await request_.body->Next();
      if (end != RequestBody::End::kOk) {
        sent = false;
        if (end != RequestBody::End::kStopped) hooks_.body_failed(hooks_.context, end);
        break;
      }
      const std::string_view piece = request_.body->piece();
      if (!piece.empty()) {
        size_t count = 0;
        if (chunked) {
          size_line.clear();
          WriteChunkSize(piece.size(), &size_line);
          pieces[count++] = Piece(size_line);
        }
        pieces[count++] = Piece(piece);
        if (chunked) pieces[count++] = Piece("\r\n");
        sent = co_await SendPieces({pieces.data(), count});
      }
      if (piece.empty() || (!chunked && request_.body->complete())) {
        if (chunked) {
          pieces[0] = Piece("0\r\n\r\n");
          sent = co_await SendPieces({pieces.data(), 1});
        }
        break;
      }
    }
    if (sent) hooks_.body_sent(hooks_.context);
  }
  request_sent_ = sent;
  sending_ = false;
  sender_done_.Notify();
}

Task<bool> Tries::SendPieces(std::span<iovec> pieces) {
  Socket& socket = lease_->socket;
  while (!pieces.empty()) {
    const IoResult write = socket.TryWrite(pieces);
    if (write.would_block()) {
      ++record_.worker_stalls;
      send_deadline_.Arm(
          lane_.loop.timers(), lane_.options.upstream_write_timeout_ms, &Tries::OnSendStalled, this);
      const bool writable = co_await socket.Writable();
      send_deadline_.Disarm();
      if (!writable) co_return false;
      continue;
    }
    if (write.error != 0) co_return false;
    pieces = SkipWritten(pieces, static_cast<size_t>(write.bytes));
  }
  co_return true;
}

void Tries::OnSendStalled(void* context) {
  auto* tries = static_cast<Tries*>(context);
  // A worker that has begun to answer need not read the rest of the request.
  if (!tries->answered_) tries->GiveUp(HttpError::kWorkerWriteTimeout);
}

Task<void> Tries::StopSending() {
  if (!sending_) co_return;
  lease_->socket.Close();
  request_.body->Stop();
  while (sending_) co_await sender_done_;
}

// ---- 9 AWAIT

Task<Tries::Awaited> Tries::AwaitHead() {
  if (answer_parser_ == nullptr) answer_parser_ = lane_.response_parsers.Take();
  const bool to_head = request_.head->method == "HEAD";
  answer_parser_->Reset(to_head);
  if (!answer_in_.has_value()) answer_in_.emplace(lane_.buffers);
  answer_in_->Clear();
  worker_spoke_ = false;
  given_up_.reset();
  const ServerOptions& options = lane_.options;
  deadline_.Arm(
      lane_.loop.timers(),
      options.first_byte_timeout_ms != 0 ? options.first_byte_timeout_ms : options.request_timeout_ms,
      &Tries::OnFirstByteTimeout, this);
  Socket& socket = lease_->socket;
  int informational = 0;
  for (;;) {
    const bool readable = co_await socket.Readable();
    if (!readable) {  // cancelled, or given up
      deadline_.Disarm();
      co_return Awaited::kEnded;
    }
    answer_in_->Reserve(answer_in_->empty() ? BufferPool::kSmallest : answer_in_->size());
    const IoResult read = socket.TryRead(answer_in_->room());
    if (read.would_block()) continue;
    if (!read.ok()) {
      deadline_.Disarm();
      co_return Awaited::kEnded;
    }
    answer_in_->Commit(static_cast<size_t>(read.bytes));
    worker_spoke_ = true;
    while (!answer_in_->empty()) {
      const ParseState state = answer_parser_->Feed(answer_in_->view());
      if (state == ParseState::kNeedMore) break;
      const bool informational_head = state == ParseState::kDone && answer_parser_->head().status < 200;
      if (!informational_head || answer_parser_->head().status == 101 ||
          ++informational > kMaxInformationalHeads) {
        deadline_.Disarm();
        co_return state == ParseState::kDone && !informational_head ? Awaited::kHead : Awaited::kBad;
      }
      answer_in_->Consume(answer_parser_->head().size);
      answer_parser_->Reset(to_head);
    }
  }
}

void Tries::OnFirstByteTimeout(void* context) {
  static_cast<Tries*>(context)->GiveUp(HttpError::kFirstByteTimeout);
}

void Tries::GiveUp(HttpError why) {
  if (!given_up_) given_up_ = why;
  lease_->socket.Close();
}

// ---- afterwards

void Tries::ForgetAnswerHead() { lane_.response_parsers.Give(std::move(answer_parser_)); }

void Tries::GiveBack(bool reusable) {
  if (lease_ != nullptr && reusable) lane_.upstreams.Give(std::move(lease_));
  lease_.reset();
}

}  // namespace vllm_router
