#include "proxy/exchange/upstream_response.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/limits.h"
#include "http/dechunk.h"
#include "proxy/api/settings.h"
#include "proxy/thread/body_claim.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// vLLM sends a stream's 200 before it has queued the request, so that head promises nothing yet. Until a
// byte of the body comes, another worker may be attempted, and the client may still get a true status.
bool HoldsHead(const UpstreamMessage& message, const Settings& settings, const ResponseHead& head) {
  const bool is_stream = settings.hold_stream_head && head.status == 200 && head.event_stream;
  return (is_stream || (message.pair && head.status / 100 == 2)) &&
         (head.framing == BodyFraming::kChunked || head.framing == BodyFraming::kUntilClose ||
          (head.framing == BodyFraming::kLength && head.content_length != 0));
}

int64_t FirstByteTimeout(const UpstreamMessage& message, const Settings& settings) {
  if (message.pair && message.pair->first_byte_timeout_ms != 0) return message.pair->first_byte_timeout_ms;
  return settings.first_byte_timeout_ms != 0 ? settings.first_byte_timeout_ms : settings.request_timeout_ms;
}

// Room for the body so far and one more read. Claims double, so that there are few of them.
bool ClaimMore(uint64_t bytes, const ResponseHead& head, uint64_t most, BodyClaim* memory) {
  const uint64_t wanted = bytes + kRelayBufferFirst;
  if (wanted <= std::max<uint64_t>(memory->held(), kSmallBodyBytes)) return true;
  const bool is_known = head.framing == BodyFraming::kLength;
  const uint64_t whole = is_known ? std::min<uint64_t>(head.content_length, most) : most;
  return memory->GrowNow(std::max(wanted, std::min(2 * wanted, whole)));
}

}  // namespace

Task<UpstreamResponse::Awaited> UpstreamResponse::AwaitHead(
    const UpstreamMessage& message, const Settings& settings) {
  if (parser_ == nullptr) parser_ = thread_.response_parsers.Acquire();
  const bool to_head = message.head->method == "HEAD";
  const bool to_upgrade = message.head->websocket;
  parser_->Reset(to_head, to_upgrade);
  if (!in_.has_value()) in_.emplace(thread_.buffers);
  in_->Clear();
  has_come_ = false;
  connection_.ForgetGivenUp();
  connection_.GiveUpAfter(FirstByteTimeout(message, settings));
  Socket& socket = connection_.socket();
  int informational = 0;
  bool holding = false;  // a whole head, until a byte of its body comes
  for (;;) {
    const bool readable = co_await socket.Readable();
    if (!readable) {  // cancelled, or the attempt has been given up
      connection_.DisarmDeadline();
      co_return Awaited::kEnded;
    }
    in_->Reserve(in_->empty() ? BufferPool::kSmallest : in_->size());
    const IoResult read = socket.TryRead(in_->room());
    if (read.would_block()) continue;
    if (!read.ok()) {
      connection_.DisarmDeadline();
      co_return Awaited::kEnded;
    }
    in_->Commit(static_cast<size_t>(read.bytes));
    has_come_ = true;
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
        record_.ReceivedHead(thread_.clock.NowNanos());
        holding = state == ParseState::kDone && HoldsHead(message, settings, parser_->head());
        if (holding) break;
        connection_.DisarmDeadline();
        if (status == 101 && !sender_.sent()) co_return Awaited::kBad;
        co_return state == ParseState::kDone && !informational_head ? Awaited::kHead : Awaited::kBad;
      }
      in_->Consume(parser_->head().size);
      parser_->Reset(to_head, to_upgrade);
    }
    if (holding && HasBodyByte()) {
      connection_.DisarmDeadline();
      if (message.pair) record_.ReceivedBody(thread_.clock.NowNanos());
      co_return Awaited::kHead;
    }
  }
}

// A chunk's size line alone is neither.
bool UpstreamResponse::HasBodyByte() const {
  const std::string_view body = in_->view().substr(head().size);
  if (head().framing != BodyFraming::kChunked) return !body.empty();
  const size_t line_end = body.find('\n');
  return line_end != std::string_view::npos && line_end + 1 < body.size();
}

void UpstreamResponse::ForgetHead() { thread_.response_parsers.Release(std::move(parser_)); }

Task<bool> UpstreamResponse::ReadMore(int64_t timeout_ms) {
  connection_.InterruptReadAfter(timeout_ms);
  for (;;) {
    const bool readable = co_await connection_.socket().Readable();
    if (!readable) break;
    in_->Reserve(in_->size());
    const IoResult read = connection_.socket().TryRead(in_->room());
    if (read.would_block()) continue;
    if (!read.ok()) break;
    in_->Commit(static_cast<size_t>(read.bytes));
    parser_->Reset(/*to_head=*/false);
    parser_->Feed(in_->view());  // the buffer may have moved
    connection_.DisarmDeadline();
    co_return true;
  }
  connection_.DisarmDeadline();
  co_return false;
}

Task<UpstreamResponse::Rest> UpstreamResponse::ReadWhole(
    size_t most, int64_t timeout_ms, bool keep_bytes, Whole* whole, BodyClaim* memory) {
  const ResponseHead& head = this->head();
  BodyReader reader(head.framing, head.content_length, MessageKind::kResponse);
  if (keep_bytes) whole->bytes.assign(in_->view());
  std::string piece(in_->view().substr(head.size));
  bool worker_closed = false;
  Buffer more(thread_.buffers);
  connection_.GiveUpAfter(timeout_ms);
  Rest rest = Rest::kBrokeOff;
  for (;;) {
    const Dechunked part = Dechunk(reader, piece);
    whole->body.append(part.data);
    const bool ended = !part.bad && (reader.ended() || (worker_closed && reader.EndOfConnection()));
    if (ended) {
      const bool reusable = part.used == piece.size() && head.keep_alive && sender_.sent() &&
                            !worker_closed && head.framing != BodyFraming::kUntilClose;
      connection_.DisarmDeadline();
      co_await sender_.Stop();
      connection_.Release(reusable);
      co_return Rest::kWhole;
    }
    rest = whole->body.size() > most ? Rest::kTooLong : Rest::kBrokeOff;
    if (part.bad || worker_closed || rest == Rest::kTooLong) break;
    if (memory != nullptr && !ClaimMore(whole->body.size(), head, most, memory)) {
      rest = Rest::kNoMemory;
      break;
    }
    piece.erase(0, part.used);
    more.Reserve(kRelayBufferFirst);
    const IoResult read = co_await connection_.socket().Read(more.room());
    if (connection_.given_up()) rest = Rest::kTimeout;
    worker_closed = read.eof;
    if (!read.ok() && !read.eof) break;
    if (!read.ok()) continue;
    more.Commit(static_cast<size_t>(read.bytes));
    if (keep_bytes) whole->bytes.append(more.view());
    piece.append(more.view());
    more.Clear();
  }
  connection_.DisarmDeadline();
  co_await sender_.Stop();
  connection_.Release(/*reusable=*/false);
  co_return rest;
}

std::optional<std::string> UpstreamResponse::TakeWhole() {
  if (!connection_.is_leased()) return std::nullopt;
  const ResponseHead& head = this->head();
  std::string bytes(in_->view());
  bool worker_closed = false;
  std::array<char, 4096> more;
  while (bytes.size() <= kDrainedResponseBytes && !worker_closed) {
    const IoResult read = connection_.socket().TryRead(more);
    if (read.would_block()) break;
    worker_closed = !read.ok();
    if (read.ok()) bytes.append(more.data(), static_cast<size_t>(read.bytes));
  }
  std::string body = bytes.substr(head.size);
  BodyReader reader(head.framing, head.content_length, MessageKind::kResponse);
  const Dechunked rest = Dechunk(reader, body);
  const bool whole = bytes.size() <= kDrainedResponseBytes && head.framing != BodyFraming::kUntilClose &&
                     !rest.bad && reader.ended() && rest.used == body.size();
  connection_.Release(whole && sender_.sent() && head.keep_alive && !worker_closed);
  if (!whole) return std::nullopt;
  return bytes;
}

}  // namespace vllm_router
