// Relay: streams one response body from a worker's socket to a client's.
//
//   worker --read--> [4..64 KiB] --dechunk in place--> one piece --frame--> client
//
// Each read is written at once, in one call, with our own framing around it. Nothing is held back, and
// nothing more is read until the client has taken it. So memory is one buffer, and a slow client slows
// its worker down. The last bytes are kept beside the stream for token counts (http/stream_tail.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "http/body_reader.h"
#include "http/stream_tail.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"

namespace vllm_router {

class Relay {
 public:
  enum class End : uint8_t {
    kDone,
    kClientGone,
    kWorkerGone,  // reset, or end before the framed end
    kBadFraming,
    kClosed,  // a socket was closed on our side; its closer has the reason
  };

  struct Limits {
    int64_t idle_ms;          // between the worker's bytes
    int64_t client_write_ms;  // maximum time in which the client takes nothing
  };
  // Called with `context`. Those for deadlines are expected to close sockets.
  struct Hooks {
    Timer::Callback worker_idle;
    Timer::Callback client_stalled;
    Timer::Callback first_byte;  // of the body, once, before it is written
    void* context;
    // Called with each piece of the body before it is written, until it returns false; null: not called.
    bool (*beginning)(void* context, std::string_view data) = nullptr;
  };

  Relay(EventLoop& loop, Socket& worker, Socket& client, const Limits& limits, const Hooks& hooks);

  // `head` is written in front of the first body bytes. `in` holds what was read behind the worker's
  // head. `chunked`: the client gets chunks; else the bytes as they are. Afterwards `in` holds what came
  // after the framed end.
  Task<End> Run(std::string_view head, Buffer& in, BodyReader& reader, bool chunked);

  uint64_t bytes() const { return bytes_; }  // body data written to the client
  bool head_sent() const { return head_sent_; }
  // The client has whole events and no bytes are on their way to it, so another event may follow.
  bool at_event_edge() const { return head_sent_ && !stalled_ && tail_.EndsWithEvent(); }
  uint64_t stalls() const { return stalls_; }  // times that the client's socket was full
  const StreamTail& tail() const { return tail_; }

 private:
  Task<End> WriteAll(std::span<iovec> pieces);

  EventLoop& loop_;
  Socket& worker_;
  Socket& client_;
  const Limits limits_;
  Hooks hooks_;
  Timer timer_;
  StreamTail tail_;
  uint64_t bytes_ = 0;
  uint64_t stalls_ = 0;
  bool head_sent_ = false;
  bool stalled_ = false;  // the client has yet to take what was read
};

// Drops `written` bytes from the front of `pieces`.
std::span<iovec> SkipWritten(std::span<iovec> pieces, size_t written);

}  // namespace vllm_router
