// Relay: streams one response body from a worker's socket to a sink (body_sink.h), mostly a client.
//
//   worker --read--> [4..64 KiB] --dechunk in place--> one piece --> sink
//
// Each read goes on at once, as one piece. Nothing is held back, and nothing more is read until the sink
// has taken it. So memory is one buffer, and a slow client slows its worker down. The last bytes are kept
// beside the stream for token counts (http/stream_tail.h).
//
// A client may close as soon as it has the last event of its stream, without waiting for the end of the body. Then it
// has what it came for: the rest is read, so that the worker's connection can be used again, and goes nowhere.
#pragma once

#include <cstdint>

#include "http/body_reader.h"
#include "http/stream_tail.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"
#include "proxy/exchange/body_sink.h"
#include "worker/response_progress.h"

namespace vllm_router {

class Relay {
 public:
  enum class End : uint8_t {
    kDone,
    kClientGone,  // or what else the sink stands for
    kWorkerGone,  // reset, or end before the framed end
    kBadFraming,
    kClosed,  // a socket was closed on our side; its closer has the reason
  };

  static constexpr uint64_t kMostRest = 16 * 1024;  // body data behind the last event; of more, kClosed

  // Called with `context`.
  struct Hooks {
    Timer::Callback worker_idle;  // no byte came for `idle_ms`; expected to close the sockets
    Timer::Callback first_byte;   // of the body, once, before it is written
    void* context;
    ResponseProgress* progress = nullptr;  // of the worker, which each piece touches; null: none
    // The sink broke behind the last event of a stream; expected to limit the time of the rest. Null: what the sink
    // has is not told by what it took.
    void (*client_left)(void* context) = nullptr;
  };

  Relay(EventLoop& loop, Socket& worker, BodySink& sink, int64_t idle_ms, const Hooks& hooks)
      : loop_(loop), worker_(worker), sink_(sink), idle_ms_(idle_ms), hooks_(hooks) {}

  // `in` holds what was read behind the worker's head; afterwards, what came after the framed end.
  Task<End> Run(Buffer& in, BodyReader& reader);

  uint64_t bytes() const { return bytes_; }  // body data that the sink has taken
  // The client has whole events and no bytes are on their way to it, so another event may follow.
  bool at_event_edge() const { return started_ && !waiting_ && tail_.EndsWithEvent(); }
  // The client has the whole stream, as far as it can tell; should it leave now, LeaveClient() says so.
  bool client_has_all() const {
    return hooks_.client_left != nullptr && started_ && !waiting_ && tail_.EndsWithLastEvent();
  }
  void LeaveClient() { client_left_ = true; }
  bool client_left() const { return client_left_; }
  uint64_t stalls() const { return stalls_; }  // pieces that the sink did not take at once
  const StreamTail& tail() const { return tail_; }

 private:
  EventLoop& loop_;
  Socket& worker_;
  BodySink& sink_;
  const int64_t idle_ms_;
  const Hooks hooks_;
  Timer idle_timer_;
  StreamTail tail_;
  uint64_t bytes_ = 0;
  uint64_t stalls_ = 0;
  bool started_ = false;  // the sink has the first piece
  bool waiting_ = false;  // the sink has yet to take what was read
  bool client_left_ = false;
  uint64_t rest_ = 0;  // of the body, that went nowhere
};

}  // namespace vllm_router
