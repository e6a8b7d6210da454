// SseKeepalive: comments to a client that waits for the first event of its stream (--sse-keepalive-secs), so that
// proxies between client and router do not take the connection for dead.
//
//   request ---- interval ---- interval ---------- the worker's first event
//                |             |                   |
//                head, comment comment             the response goes on behind them
//
//   : keep-alive            one chunk: a comment and an empty line, which every reader of event streams skips
//
// The first comment comes behind the head of a 200, since a client reads no body without one. Whatever follows is then
// part of that body: an error becomes an event (proxy/api/error_event.h). Nothing of a response has been sent, though,
// so retries are as free as before.
//
// A comment is written when the socket takes it. What it does not take waits, without another comment behind it, for
// the client or until `write_timeout_ms` have passed; so memory is one head and one comment. Cost: a timer, a write per
// interval. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "net/event_loop.h"
#include "net/socket.h"
#include "net/timer_wheel.h"

namespace vllm_router {

class SseKeepalive {
 public:
  // Called with `context`.
  struct Hooks {
    std::string (*head)(void* context);             // of the response, once; its body is chunked
    void (*client_lost)(void* context, bool slow);  // slow: it reads nothing; else a write failed
    void* context;
  };

  // All must outlive it. The first comment comes after an interval.
  SseKeepalive(
      EventLoop& loop, Socket& client, int64_t interval_ms, int64_t write_timeout_ms, const Hooks& hooks);

  // The response begins: no further comment.
  void Stop() { timer_.Disarm(); }
  bool sent_head() const { return comments_ != 0; }
  uint32_t comments() const { return comments_; }
  // What the socket has yet to take, to be written in front of all that follows.
  std::string TakeUnsent() { return std::exchange(unsent_, {}); }

 private:
  void Arm();
  void SendComment();
  static void OnInterval(void* context);

  EventLoop& loop_;
  Socket& client_;
  const int64_t interval_ms_;
  const int64_t write_timeout_ms_;  // 0: none
  const Hooks hooks_;
  Timer timer_;
  std::string unsent_;
  int64_t stuck_ms_ = 0;  // for how long the socket has taken nothing
  uint32_t comments_ = 0;
};

}  // namespace vllm_router
