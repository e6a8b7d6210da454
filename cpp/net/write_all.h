// WriteAll: writes bytes to a socket until it has taken all of them, waiting while it is full.
//
//   std::array<iovec, 2> pieces = {Piece(head), Piece(body)};
//   const WriteEnd end = co_await WriteAll(socket, pieces, &stall);
//
// A peer that takes nothing for `stall.timeout_ms` is reported to `stall.callback`, which is expected to
// close the socket. Only taken bytes are progress, not a wake-up without any.
//
// Cost: a coroutine frame, and a system call per gather write. Who expects the socket to take everything
// at once calls TryWrite() first. One thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"

namespace vllm_router {

inline iovec Piece(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

// Drops `written` bytes from the front of `pieces`, and empty pieces behind them.
std::span<iovec> SkipWritten(std::span<iovec> pieces, size_t written);

struct WriteStall {
  EventLoop& loop;
  Timer& timer;  // armed while the socket is full
  int64_t timeout_ms;
  Timer::Callback callback;
  void* context;
  uint32_t waits = 0;  // for room in the socket
};

enum class WriteEnd : uint8_t {
  kAll,
  kGone,    // a write failed
  kClosed,  // by this side, during a wait
};

// `stall` may be null: no timeout. The pieces are used up.
Task<WriteEnd> WriteAll(Socket& socket, std::span<iovec> pieces, WriteStall* stall = nullptr);

}  // namespace vllm_router
