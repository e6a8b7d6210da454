#include "proxy/exchange/relay.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/limits.h"
#include "http/dechunk.h"

namespace vllm_router {
namespace {

iovec Piece(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

}  // namespace

std::span<iovec> SkipWritten(std::span<iovec> pieces, size_t written) {
  while (!pieces.empty() && written >= pieces.front().iov_len) {
    written -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty()) {
    pieces.front().iov_base = static_cast<char*>(pieces.front().iov_base) + written;
    pieces.front().iov_len -= written;
  }
  return pieces;
}

Relay::Relay(EventLoop& loop, Socket& worker, Socket& client, const Limits& limits, const Hooks& hooks)
    : loop_(loop), worker_(worker), client_(client), limits_(limits), hooks_(hooks) {}

// The caller makes the first attempt; this writes what is left.
Task<Relay::End> Relay::WriteAll(std::span<iovec> pieces) {
  ++stalls_;
  stalled_ = true;
  while (!pieces.empty()) {
    // From the last byte that it took: a wake-up without bytes is no progress.
    if (!timer_.armed())
      timer_.Arm(loop_.timers(), limits_.client_write_ms, hooks_.client_stalled, hooks_.context);
    const bool writable = co_await client_.Writable();
    const IoResult write = writable ? client_.TryWrite(pieces) : IoResult{};
    if (write.would_block()) continue;
    timer_.Disarm();
    if (!writable) co_return End::kClosed;
    if (write.error != 0) co_return End::kClientGone;
    pieces = SkipWritten(pieces, static_cast<size_t>(write.bytes));
  }
  stalled_ = false;
  co_return End::kDone;
}

Task<Relay::End> Relay::Run(std::string_view head, Buffer& in, BodyReader& reader, bool chunked) {
  bool worker_closed = false;
  for (;;) {
    co_await loop_.TurnEnd();
    const Dechunked part = Dechunk(reader, {in.data(), in.size()});
    const bool ended = !part.bad && (reader.ended() || (worker_closed && reader.EndOfConnection()));

    if (bytes_ == 0 && !part.data.empty()) hooks_.first_byte(hooks_.context);
    if (hooks_.beginning != nullptr && !part.data.empty() && !hooks_.beginning(hooks_.context, part.data)) {
      hooks_.beginning = nullptr;
    }

    // head | size CRLF | data | CRLF | 0 CRLF CRLF, those that apply
    std::array<iovec, 4> pieces;
    size_t count = 0;
    char size_line[20];
    if (!head.empty()) pieces[count++] = Piece(head);
    if (!part.data.empty()) {
      if (chunked) {
        char* end = std::to_chars(size_line, size_line + 16, part.data.size(), 16).ptr;
        *end++ = '\r';
        *end++ = '\n';
        pieces[count++] = Piece({size_line, static_cast<size_t>(end - size_line)});
      }
      pieces[count++] = Piece(part.data);
    }
    if (chunked && (ended || !part.data.empty())) {
      pieces[count++] = Piece(!ended ? "\r\n" : part.data.empty() ? "0\r\n\r\n" : "\r\n0\r\n\r\n");
    }
    if (count > 0) {
      std::span<iovec> rest(pieces.data(), count);
      const IoResult write = client_.TryWrite(rest);
      if (write.error != 0 && !write.would_block()) {
        co_return client_.is_open() ? End::kClientGone : End::kClosed;
      }
      head_sent_ = true;
      rest = SkipWritten(rest, static_cast<size_t>(write.bytes));
      if (!rest.empty()) {
        const End end = co_await WriteAll(rest);
        if (end != End::kDone) co_return end;
      }
    }
    head = {};
    bytes_ += part.data.size();
    tail_.Add(part.data);

    const bool brimful = in.room().empty();
    in.Consume(part.used);
    if (part.bad) co_return End::kBadFraming;
    if (ended) co_return End::kDone;
    if (worker_closed) co_return End::kWorkerGone;

    // Most streams are small events and stay in the first block; a read that fills its block enlarges it.
    in.Reserve(brimful ? std::min(in.capacity() * 4, kRelayBufferMost) : kRelayBufferFirst);
    timer_.Arm(loop_.timers(), limits_.idle_ms, hooks_.worker_idle, hooks_.context);
    const IoResult read = co_await worker_.Read(in.room());
    timer_.Disarm();
    if (read.ok()) {
      in.Commit(static_cast<size_t>(read.bytes));
    } else if (read.eof) {
      worker_closed = true;
    } else {
      co_return worker_.is_open() ? End::kWorkerGone : End::kClosed;
    }
  }
}

}  // namespace vllm_router
