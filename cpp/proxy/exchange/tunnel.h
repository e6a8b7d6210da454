// Tunnel: bytes in both directions between a client and a worker that have switched to another protocol
// (WebSocket), forwarded unparsed as they come.
//
//   client --read--> [up to 64 KiB] --write--> worker     two pumps, each a coroutine; a pump reads nothing
//   client <--write-- [up to 64 KiB] <--read-- worker     more while the other side has bytes to take
//
//   end of one side's sending   passed on as such; the other direction goes on until it ends as well
//   a side breaks               both are closed
//   no byte for idle_ms         hooks.idle, which is expected to close both
//   a side takes nothing        hooks.client_stalled, hooks.worker_stalled, likewise
//
// A direction without bytes in flight holds no buffer, so an idle tunnel costs two coroutine frames. One
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"

namespace vllm_router {

class Tunnel {
 public:
  enum class End : uint8_t {
    kDone,  // both sides have ended their sending
    kClientGone,
    kWorkerGone,
    kClosed,  // on this side; its closer has the reason
  };

  struct Limits {
    int64_t idle_ms;          // without a byte in either direction
    int64_t client_write_ms;  // maximum time in which the client takes nothing
    int64_t worker_write_ms;
  };
  // Called with `context`. Those for deadlines are expected to close both sockets.
  struct Hooks {
    Timer::Callback idle;
    Timer::Callback client_stalled;
    Timer::Callback worker_stalled;
    void* context;
  };

  Tunnel(EventLoop& loop, Socket& client, Socket& worker, const Limits& limits, const Hooks& hooks);

  // `head` is for the client, in front of everything else. `from_client`, `from_worker`: bytes already
  // read from the two, and the pumps' read buffers from now on.
  Task<End> Run(std::string_view head, Buffer& from_client, Buffer& from_worker);

  uint64_t bytes_to_worker() const { return to_worker_.bytes; }
  uint64_t bytes_to_client() const { return to_client_.bytes; }
  uint64_t client_stalls() const { return to_client_.stalls; }
  uint64_t worker_stalls() const { return to_worker_.stalls; }

 private:
  // One direction.
  struct Pump {
    Socket& from;
    Socket& to;
    int64_t write_ms;
    Timer::Callback stalled;
    End from_gone;
    End to_gone;
    uint64_t bytes = 0;
    uint64_t stalls = 0;
    Timer timer{};  // of a waiting write
  };

  Task<End> Move(Pump& pump, std::string_view head, Buffer& buffer);
  Task<End> Write(Pump& pump, std::string_view bytes);
  Task<void> MoveAside(Pump& pump, Buffer& buffer);
  void Break(End end);
  void Moved();

  EventLoop& loop_;
  const Limits limits_;
  const Hooks hooks_;
  Pump to_worker_;
  Pump to_client_;
  Timer idle_timer_;
  End end_ = End::kDone;  // the first that was not kDone
  bool aside_ = false;    // the second pump runs
  Signal aside_ended_;
};

}  // namespace vllm_router
