#include "net/write_all.h"

namespace vllm_router {

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

Task<WriteEnd> WriteAll(Socket& socket, std::span<iovec> pieces, WriteStall* stall) {
  pieces = SkipWritten(pieces, 0);
  bool full = false;
  while (!pieces.empty()) {
    const IoResult write = socket.TryWrite(pieces);
    const bool would_block = write.would_block();
    if (stall != nullptr && would_block && !full) {
      ++stall->waits;
      stall->timer.Arm(stall->loop.timers(), stall->timeout_ms, stall->callback, stall->context);
    } else if (stall != nullptr && full && !would_block) {
      stall->timer.Disarm();
    }
    full = would_block;
    if (would_block) {
      const bool writable = co_await socket.Writable();
      if (writable) continue;
      if (stall != nullptr) stall->timer.Disarm();
      co_return WriteEnd::kClosed;
    }
    if (write.error != 0) co_return WriteEnd::kGone;
    pieces = SkipWritten(pieces, static_cast<size_t>(write.bytes));
  }
  co_return WriteEnd::kAll;
}

}  // namespace vllm_router
