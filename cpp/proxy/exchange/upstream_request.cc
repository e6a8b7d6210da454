#include "proxy/exchange/upstream_request.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/limits.h"
#include "http/dechunk.h"
#include "net/tls.h"
#include "net/write_all.h"
#include "proxy/api/settings.h"
#include "proxy/client/tls_files.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/body_claim.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"
#include "routing/request_fields.h"

namespace vllm_router {
namespace {

// Whether a byte of the body, or its end, is behind the head. A chunk's size line alone is neither.
bool HasBodyByte(const ResponseHead& head, std::string_view received) {
  const std::string_view body = received.substr(head.size);
  if (head.framing != BodyFraming::kChunked) return !body.empty();
  const size_t line_end = body.find('\n');
  return line_end != std::string_view::npos && line_end + 1 < body.size();
}

// Room for the body so far and one more read. Claims double, so that there are few of them.
bool HoldMore(uint64_t bytes, const ResponseHead& head, uint64_t most, BodyClaim* memory) {
  const uint64_t wanted = bytes + kRelayBufferFirst;
  if (wanted <= std::max<uint64_t>(memory->held(), kSmallBodyBytes)) return true;
  const bool says = head.framing == BodyFraming::kLength;
  const uint64_t whole = says ? std::min<uint64_t>(head.content_length, most) : most;
  return memory->GrowNow(std::max(wanted, std::min(2 * wanted, whole)));
}

// Whether errno of a failed connect says something about the worker, and not about this process.
bool IsWorkersFault(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ETIMEDOUT;
}

AttemptPhase PhaseOf(const UpstreamRequest::Message& message) {
  if (!message.pair) return AttemptPhase::kInference;
  return message.pair->is_prefill ? AttemptPhase::kPrefill : AttemptPhase::kDecode;
}

}  // namespace

UpstreamRequest::UpstreamRequest(
    IoThread& thread, const Settings& settings, RequestInfo& info, ServerErrors& server_errors,
    const Message& message, const Hooks& hooks, Ticket ticket, std::optional<BreakerPass> pass)
    : thread_(thread),
      settings_(settings),
      info_(info),
      server_errors_(server_errors),
      message_(message),
      hooks_(hooks),
      ticket_(std::move(ticket)),
      pass_(std::move(pass)),
      own_info_{.chosen_ns = info.chosen_ns, .phase = PhaseOf(message)} {}

UpstreamRequest::~UpstreamRequest() { thread_.response_parsers.Release(std::move(parser_)); }

Task<UpstreamRequest::End> UpstreamRequest::Run(bool fresh_connection) {
  // A body that cannot be sent twice must not use a connection that its worker may just be closing.
  bool fresh = fresh_connection || !message_.replayable();
  for (;;) {
    if (!fresh) lease_ = thread_.upstreams.Acquire(worker()->id);  // 7 LEASE
    if (lease_ == nullptr) {
      const bool connected = co_await Connect();
      if (cancelled_) co_return End::kCancelled;
      if (drained_) {
        lease_.reset();
        co_return Fail(HttpError::kWorkerDrained);
      }
      if (!connected) {
        co_return Fail(connect_timed_out_ ? HttpError::kConnectTimeout : HttpError::kConnectFailed);
      }
    }
    info_.connected_ns = thread_.clock.NowNanos();
    info_.reused = own_info_.reused = lease_->reused;
    WriteHead();
    co_await thread_.loop.TurnEnd();
    Send();  // 8 SEND
    const Awaited awaited = co_await AwaitHead();
    if (awaited == Awaited::kHead) {
      // A successful connect shows nothing: a terminating process may close its listener after its
      // connections.
      if (response().status < 500) ReportWorkerUp(thread_, worker()->url, info_.sent_ns);
      responded_ = true;
      own_info_.status = response().status;
      if (settings_.detects_hangs()) FollowProgress();
      co_return End::kResponded;
    }
    if (cancelled_) co_return End::kCancelled;
    const bool stale =
        awaited == Awaited::kEnded && !given_up_ && lease_->reused && !worker_spoke_ && message_.replayable();
    const HttpError error = given_up_                  ? *given_up_
                            : awaited == Awaited::kBad ? HttpError::kWorkerBadResponse
                                                       : HttpError::kWorkerClosed;
    lost_ = error == HttpError::kWorkerClosed && (sent_ || worker_spoke_);
    co_await StopSending();
    lease_.reset();
    if (cancelled_) co_return End::kCancelled;
    if (!stale || drained_) co_return Fail(error);
    // The worker closed an idle connection while we wrote: not its failure, and not an attempt. If a new
    // connect fails, though, the worker may have crashed because of the request.
    fresh = true;
    message_.body->Rewind();
    info_.stale_retry = true;
  }
}

void UpstreamRequest::Cancel() {
  cancelled_ = true;
  if (name_ != nullptr) Resolver::Waiter::Cancel(name_);
  if (connector_ != nullptr) connector_->Cancel();
  if (lease_ != nullptr) lease_->socket.Close();
}

void UpstreamRequest::WorkerDrained() {
  drained_ = true;
  if (name_ != nullptr) Resolver::Waiter::Cancel(name_);
  if (connector_ != nullptr) connector_->Cancel();
  if (lease_ != nullptr) lease_->socket.Close();
}

void UpstreamRequest::WorkerDied() {
  if (lease_ != nullptr && !responded_) GiveUp(HttpError::kWorkerClosed);
}

void UpstreamRequest::MoveAway() {
  moved_ = true;
  GiveUp(HttpError::kFirstByteTimeout);
}

HangDetector::Wait UpstreamRequest::DescribeWait(size_t* reads_bodies) {
  const bool is_held = !message_.stream_body || message_.body->keeps_pieces();
  if (kind_ == Kind::kNotRead && message_.pair && message_.pair->is_prefill) kind_ = Kind::kStream;
  if (kind_ == Kind::kNotRead && (!is_held || message_.body->bytes() > kRoutedBodyBytes))
    kind_ = Kind::kPlain;
  if (kind_ == Kind::kNotRead && *reads_bodies != 0) {
    --*reads_bodies;
    const RequestFields fields = ParseRequestFields(message_.body->held(), /*padded=*/false);
    kind_ = fields.stream.value_or(false) ? Kind::kStream : Kind::kPlain;
  }
  return {
      .kind = kind_ == Kind::kStream ? ResponseKind::kStream : ResponseKind::kPlain,
      .bytes = message_.body->bytes(),
      .sent_ns = all_sent_ns_,
      .client = client_};
}

// A response without a body, or with another status than 2xx, says nothing of the engine behind the server, nor does one
// of /v1/responses that is no stream: the request may run in the background.
void UpstreamRequest::FollowProgress() {
  const bool prefills = message_.pair && message_.pair->is_prefill;
  kind_ = prefills || response().event_stream ? Kind::kStream : Kind::kPlain;
  const bool may_be_accepted = info_.route == Route::kResponses && kind_ == Kind::kPlain;
  const bool computes = message_.pair.has_value() || RouteOf(info_.route).computes;
  counts_ = computes && !may_be_accepted && all_sent_ns_ != 0 && response().status / 100 == 2;
  if (HasBodyByte(response(), in_->view())) CountFirstByte();
}

void UpstreamRequest::CountFirstByte() {
  if (!std::exchange(counts_, false)) return;
  const int64_t now = thread_.clock.NowNanos();
  worker()->progress.CountFirstByte(
      kind_ == Kind::kStream ? ResponseKind::kStream : ResponseKind::kPlain, message_.body->bytes(),
      now - all_sent_ns_, client_, now);
}

UpstreamRequest::End UpstreamRequest::Fail(HttpError error) {
  error_ = error;
  own_info_.end_ns = thread_.clock.NowNanos();
  own_info_.error = moved_ ? std::string_view("moved") : ErrorOf(this->error()).code;
  return End::kFailed;
}

void UpstreamRequest::AddTo(RequestInfo* request, std::string_view error) {
  if (std::exchange(added_, true)) return;
  if (own_info_.end_ns == 0) own_info_.end_ns = thread_.clock.NowNanos();
  if (own_info_.error.empty()) own_info_.error = error;
  request->attempts_made.push_back(own_info_);
  request->attempts_made.back().worker = worker();
}

void UpstreamRequest::AddRelayedTo(RequestInfo* request) {
  if (own_info_.end_ns == 0) own_info_.end_ns = request->end_ns;
  if (own_info_.first_body_ns == 0) own_info_.first_body_ns = request->first_body_ns;
  const bool is_cut = request->ended_early();
  const std::string_view why = request->error.empty() ? ExchangeEndName(request->end) : request->error;
  AddTo(request, is_cut ? why : std::string_view());
}

AttemptFailure UpstreamRequest::failure() const {
  // Without a byte of the request it is as if the worker had not been reached.
  if (drained_) return own_info_.sent_ns == 0 ? AttemptFailure::kConnect : AttemptFailure::kDrained;
  return moved_                                     ? AttemptFailure::kMoved
         : was_lost()                               ? AttemptFailure::kLost
         : unreached()                              ? AttemptFailure::kConnect
         : error_ == HttpError::kWorkerBadResponse  ? AttemptFailure::kBadResponse
         : error_ == HttpError::kWorkerWriteTimeout ? AttemptFailure::kSendTimeout
         : error_ == HttpError::kFirstByteTimeout   ? AttemptFailure::kFirstByteTimeout
                                                    : AttemptFailure::kBroken;
}

// ---- 7 LEASE

Task<bool> UpstreamRequest::Connect() {
  const WorkerUrl& url = worker()->url;
  connect_timed_out_ = false;
  deadline_.Arm(
      thread_.loop.timers(), settings_.connect_timeout_ms, &UpstreamRequest::OnConnectTimeout, this);
  name_ = std::make_shared<Resolver::Waiter>(thread_.loop);
  StatusOr<std::vector<Address>> addresses = co_await thread_.resolver.Resolve(url.host, name_);
  name_ = nullptr;
  const std::shared_ptr<const TlsContext> tls = url.tls ? thread_.tls.workers() : nullptr;
  int error = ECANCELED;
  Connector connector(thread_.loop, tls, url.host);
  if (addresses.ok() && (tls != nullptr || !url.tls) && !cancelled_ && !drained_ && !connect_timed_out_) {
    connector_ = &connector;
    error = co_await connector.ConnectToAny(*std::move(addresses), url.port);
    connector_ = nullptr;
  }
  deadline_.Disarm();
  if (error == 0 && !cancelled_) {
    thread_.telemetry.connections.connects.Add(true);
    lease_ = thread_.upstreams.Adopt(connector.TakeSocket(), worker()->id);
    co_return true;
  }
  if (cancelled_ || drained_) co_return false;
  thread_.telemetry.connections.connects.Add(false);
  thread_.resolver.ReportFailure(url.host);
  if (connect_timed_out_ || IsWorkersFault(error)) ReportWorkerDown(thread_, url);
  co_return false;
}

void UpstreamRequest::OnConnectTimeout(void* context) {
  auto* attempt = static_cast<UpstreamRequest*>(context);
  attempt->connect_timed_out_ = true;
  if (attempt->name_ != nullptr) Resolver::Waiter::Cancel(attempt->name_);
  if (attempt->connector_ != nullptr) attempt->connector_->Cancel();
}

// ---- 8 SEND

void UpstreamRequest::WriteHead() {
  const RequestHead& head = *message_.head;
  const WorkerUrl& url = worker()->url;
  const bool has_body = head.framing != BodyFraming::kNone;
  const bool chunked = has_body && message_.stream_body && head.framing == BodyFraming::kChunked;
  UpstreamHeadParts parts = PartsFor(thread_, url, message_.client);
  parts.data_parallel_rank = url.rank;
  parts.websocket = head.websocket;
  parts.framing = !has_body ? BodyFraming::kNone : chunked ? BodyFraming::kChunked : BodyFraming::kLength;
  parts.content_length = message_.copy != nullptr ? message_.copy->size
                         : message_.stream_body   ? head.content_length
                                                  : message_.body->held().size();
  if (message_.pair) parts.identity = parts.identity || message_.pair->identity;
  if (RequestTrace* const trace = message_.client.trace) {
    if (own_info_.span_id == 0) own_info_.span_id = trace->AttemptSpan(trace->attempts++);
    parts.traceparent = trace->HeaderOf(own_info_.span_id);
  }
  head_for_worker_.clear();
  WriteUpstreamHead(head, parts, &head_for_worker_);
}

// Sends the whole request in one write if the socket takes it; the sender handles the rest and streamed
// bodies.
void UpstreamRequest::Send() {
  ++info_.attempts;
  sent_ = false;
  all_sent_ns_ = 0;
  if (settings_.detects_hangs() && client_ == 0)
    client_ = ClientTag(thread_, settings_, *message_.head, message_.client.address);
  info_.sent_ns = thread_.clock.NowNanos();
  if (own_info_.sent_ns == 0) own_info_.sent_ns = info_.sent_ns;

  if (hooks_.sending != nullptr) hooks_.sending(hooks_.context);
  Pieces pieces = HeadAndBody();
  const IoResult write = lease_->socket.TryWrite(pieces);
  if (write.error != 0 && !write.would_block())
    return;  // AWAIT detects the failure, and may still find a response
  const size_t written = static_cast<size_t>(write.bytes);
  if (!message_.stream_body && SkipWritten({pieces.data(), pieces.size()}, written).empty()) {
    sent_ = true;
    all_sent_ns_ = info_.sent_ns;
    return;
  }
  sending_ = true;
  Spawn(SendRest(written));
}

UpstreamRequest::Pieces UpstreamRequest::HeadAndBody() const {
  Pieces pieces{Piece(head_for_worker_)};
  if (message_.copy != nullptr) {
    for (const std::string_view piece : message_.copy->pieces) pieces.push_back(Piece(piece));
  } else if (!message_.stream_body) {
    pieces.push_back(Piece(message_.body->held()));
  }
  return pieces;
}

// Runs beside AWAIT and the relay.
Task<void> UpstreamRequest::SendRest(size_t written) {
  Pieces whole = HeadAndBody();
  std::array<iovec, 3> pieces;  // of a chunk
  WriteStall stall{
      .loop = thread_.loop,
      .timer = send_deadline_,
      .timeout_ms = settings_.upstream_write_timeout_ms,
      .callback = &UpstreamRequest::OnSendStalled,
      .context = this};
  Socket& socket = lease_->socket;
  WriteEnd end = co_await WriteAll(socket, SkipWritten({whole.data(), whole.size()}, written), &stall);
  bool sent = end == WriteEnd::kAll;
  if (message_.stream_body) {
    const bool chunked = message_.head->framing == BodyFraming::kChunked;
    std::string size_line;
    while (sent) {
      const RequestBody::End next = co_await message_.body->Next();
      if (next != RequestBody::End::kOk) {
        sent = false;
        if (next != RequestBody::End::kStopped) hooks_.body_failed(hooks_.context, next);
        break;
      }
      const std::string_view piece = message_.body->piece();
      if (!piece.empty()) {
        size_t count = 0;
        if (chunked) {
          size_line.clear();
          WriteChunkSize(piece.size(), &size_line);
          pieces[count++] = Piece(size_line);
        }
        pieces[count++] = Piece(piece);
        if (chunked) pieces[count++] = Piece("\r\n");
        end = co_await WriteAll(socket, {pieces.data(), count}, &stall);
        sent = end == WriteEnd::kAll;
      }
      if (piece.empty() || (!chunked && message_.body->complete())) {
        if (chunked) {
          pieces[0] = Piece("0\r\n\r\n");
          end = co_await WriteAll(socket, {pieces.data(), 1}, &stall);
          sent = end == WriteEnd::kAll;
        }
        break;
      }
    }
    if (sent) hooks_.body_sent(hooks_.context);
  }
  info_.worker_stalls += stall.waits;
  sent_ = sent;
  if (sent && !responded_) all_sent_ns_ = thread_.clock.NowNanos();
  sending_ = false;
  sender_done_.Notify();
}

void UpstreamRequest::OnSendStalled(void* context) {
  auto* attempt = static_cast<UpstreamRequest*>(context);
  // A worker that has begun to respond need not read the rest of the request.
  if (!attempt->responded_) attempt->GiveUp(HttpError::kWorkerWriteTimeout);
}

Task<void> UpstreamRequest::StopSending() {
  if (!sending_) co_return;
  lease_->socket.Close();
  if (message_.stream_body) message_.body->Stop();
  while (sending_) co_await sender_done_;
}

// ---- AWAIT

Task<UpstreamRequest::Awaited> UpstreamRequest::AwaitHead() {
  if (parser_ == nullptr) parser_ = thread_.response_parsers.Acquire();
  const bool to_head = message_.head->method == "HEAD";
  const bool to_upgrade = message_.head->websocket;
  parser_->Reset(to_head, to_upgrade);
  if (!in_.has_value()) in_.emplace(thread_.buffers);
  in_->Clear();
  worker_spoke_ = false;
  given_up_.reset();
  deadline_.Arm(thread_.loop.timers(), FirstByteTimeout(), &UpstreamRequest::OnFirstByteTimeout, this);
  Socket& socket = lease_->socket;
  int informational = 0;
  bool holding = false;  // a whole head, until a byte of its body comes
  for (;;) {
    const bool readable = co_await socket.Readable();
    if (!readable) {  // cancelled, or the attempt has been given up
      deadline_.Disarm();
      co_return Awaited::kEnded;
    }
    in_->Reserve(in_->empty() ? BufferPool::kSmallest : in_->size());
    const IoResult read = socket.TryRead(in_->room());
    if (read.would_block()) continue;
    if (!read.ok()) {
      deadline_.Disarm();
      co_return Awaited::kEnded;
    }
    in_->Commit(static_cast<size_t>(read.bytes));
    worker_spoke_ = true;
    if (holding) {
      parser_->Reset(to_head, to_upgrade);
      parser_->Feed(in_->view());  // the buffer may have moved
    }
    while (!in_->empty() && !holding) {
      const ParseState state = parser_->Feed(in_->view());
      if (state == ParseState::kNeedMore) break;
      const int status = state == ParseState::kDone ? parser_->head().status : 0;
      const bool informational_head = state == ParseState::kDone && status < 200 && status != 101;
      if (!informational_head || ++informational > kMaxInformationalHeads) {
        info_.responded_ns = own_info_.responded_ns = thread_.clock.NowNanos();
        holding = state == ParseState::kDone && HoldsHead(parser_->head());
        if (holding) break;
        deadline_.Disarm();
        if (status == 101 && !sent_) co_return Awaited::kBad;
        co_return state == ParseState::kDone && !informational_head ? Awaited::kHead : Awaited::kBad;
      }
      in_->Consume(parser_->head().size);
      parser_->Reset(to_head, to_upgrade);
    }
    if (holding && HasBodyByte(parser_->head(), in_->view())) {
      deadline_.Disarm();
      if (message_.pair) own_info_.first_body_ns = thread_.clock.NowNanos();
      co_return Awaited::kHead;
    }
  }
}

// vLLM sends a stream's 200 before it has queued the request, so that head promises nothing yet. Until a
// byte of the body comes, another worker may be attempted, and the client may still get a true status.
bool UpstreamRequest::HoldsHead(const ResponseHead& head) const {
  const bool is_stream = settings_.hold_stream_head && head.status == 200 && head.event_stream;
  return (is_stream || (message_.pair && head.status / 100 == 2)) &&
         (head.framing == BodyFraming::kChunked || head.framing == BodyFraming::kUntilClose ||
          (head.framing == BodyFraming::kLength && head.content_length != 0));
}

int64_t UpstreamRequest::FirstByteTimeout() const {
  if (message_.pair && message_.pair->first_byte_timeout_ms != 0) return message_.pair->first_byte_timeout_ms;
  return settings_.first_byte_timeout_ms != 0 ? settings_.first_byte_timeout_ms
                                              : settings_.request_timeout_ms;
}

void UpstreamRequest::OnFirstByteTimeout(void* context) {
  static_cast<UpstreamRequest*>(context)->GiveUp(HttpError::kFirstByteTimeout);
}

void UpstreamRequest::GiveUp(HttpError why) {
  if (!given_up_) given_up_ = why;
  lease_->socket.Close();
}

// ---- afterwards

void UpstreamRequest::ForgetResponseHead() { thread_.response_parsers.Release(std::move(parser_)); }

void UpstreamRequest::ReleaseConnection(bool reusable) {
  if (lease_ != nullptr && reusable) thread_.upstreams.Release(std::move(lease_));
  lease_.reset();
}

Task<bool> UpstreamRequest::ReadMore(int64_t timeout_ms) {
  deadline_.Arm(thread_.loop.timers(), timeout_ms, &UpstreamRequest::OnReadMoreTimeout, this);
  for (;;) {
    const bool readable = co_await lease_->socket.Readable();
    if (!readable) break;
    in_->Reserve(in_->size());
    const IoResult read = lease_->socket.TryRead(in_->room());
    if (read.would_block()) continue;
    if (!read.ok()) break;
    in_->Commit(static_cast<size_t>(read.bytes));
    parser_->Reset(/*to_head=*/false);
    parser_->Feed(in_->view());  // the buffer may have moved
    deadline_.Disarm();
    co_return true;
  }
  deadline_.Disarm();
  co_return false;
}

void UpstreamRequest::OnReadMoreTimeout(void* context) {
  static_cast<UpstreamRequest*>(context)->lease_->socket.InterruptRead();
}

Task<UpstreamRequest::Rest> UpstreamRequest::ReadWhole(
    size_t most, int64_t timeout_ms, bool keep_bytes, Whole* whole, BodyClaim* memory) {
  const ResponseHead& head = response();
  BodyReader reader(head.framing, head.content_length, MessageKind::kResponse);
  if (keep_bytes) whole->bytes.assign(in_->view());
  std::string piece(in_->view().substr(head.size));
  bool worker_closed = false;
  Buffer more(thread_.buffers);
  deadline_.Arm(thread_.loop.timers(), timeout_ms, &UpstreamRequest::OnFirstByteTimeout, this);
  Rest rest = Rest::kBrokeOff;
  for (;;) {
    const Dechunked part = Dechunk(reader, piece);
    whole->body.append(part.data);
    const bool ended = !part.bad && (reader.ended() || (worker_closed && reader.EndOfConnection()));
    if (ended) {
      const bool reusable = part.used == piece.size() && head.keep_alive && sent_ && !worker_closed &&
                            head.framing != BodyFraming::kUntilClose;
      deadline_.Disarm();
      co_await StopSending();
      ReleaseConnection(reusable);
      co_return Rest::kWhole;
    }
    rest = whole->body.size() > most ? Rest::kTooLong : Rest::kBrokeOff;
    if (part.bad || worker_closed || rest == Rest::kTooLong) break;
    if (memory != nullptr && !HoldMore(whole->body.size(), head, most, memory)) {
      rest = Rest::kNoMemory;
      break;
    }
    piece.erase(0, part.used);
    more.Reserve(kRelayBufferFirst);
    const IoResult read = co_await lease_->socket.Read(more.room());
    if (given_up_) rest = Rest::kTimeout;
    worker_closed = read.eof;
    if (!read.ok() && !read.eof) break;
    if (!read.ok()) continue;
    more.Commit(static_cast<size_t>(read.bytes));
    if (keep_bytes) whole->bytes.append(more.view());
    piece.append(more.view());
    more.Clear();
  }
  deadline_.Disarm();
  co_await StopSending();
  ReleaseConnection(/*reusable=*/false);
  co_return rest;
}

std::optional<std::string> UpstreamRequest::TakeWholeResponse() {
  if (lease_ == nullptr) return std::nullopt;
  const ResponseHead& head = response();
  std::string bytes(in_->view());
  bool worker_closed = false;
  std::array<char, 4096> more;
  while (bytes.size() <= kDrainedResponseBytes && !worker_closed) {
    const IoResult read = lease_->socket.TryRead(more);
    if (read.would_block()) break;
    worker_closed = !read.ok();
    if (read.ok()) bytes.append(more.data(), static_cast<size_t>(read.bytes));
  }
  std::string body = bytes.substr(head.size);
  BodyReader reader(head.framing, head.content_length, MessageKind::kResponse);
  const Dechunked rest = Dechunk(reader, body);
  const bool whole = bytes.size() <= kDrainedResponseBytes && head.framing != BodyFraming::kUntilClose &&
                     !rest.bad && reader.ended() && rest.used == body.size();
  ReleaseConnection(whole && sent_ && head.keep_alive && !worker_closed);
  if (!whole) return std::nullopt;
  return bytes;
}

void AddWait(
    UpstreamRequest& attempt, Route route, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  if (RouteOf(route).computes) waits->push_back(attempt.DescribeWait(reads_bodies));
}

}  // namespace vllm_router
