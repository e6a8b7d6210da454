// Listener: a TCP port of ours on one loop. Several listeners, one per loop, may share a port (SO_REUSEPORT): the
// kernel then spreads new connections over them, and a connection never changes its loop.
//
//   StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(loop, {"127.0.0.1", 0}, on_accept);
//   (*listener)->Start();
//
// Out of descriptors, it gives up its reserve, tells one client so by closing, and rests 100 ms: the backlog stays in
// the kernel and nothing spins. The log hears of it at once, and then every 10 s how many were turned away since, from
// all listeners of the process together. Open() on any thread, the rest on the loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "net/event_loop.h"
#include "net/socket.h"

namespace vllm_router {

class Listener {
 public:
  using OnAccept = std::function<void(Socket socket, Endpoint peer)>;

  struct Where {
    std::string host;
    uint16_t port = 0;       // 0: any free port
    bool share_port = true;  // SO_REUSEPORT: other listeners may join
    bool join = false;       // join whoever shares its port; else nobody may be listening there yet
  };
  // FailedPrecondition, in a sentence with the address and the reason, if it cannot listen there.
  static StatusOr<std::unique_ptr<Listener>> Open(EventLoop& loop, const Where& where, OnAccept on_accept);
  ~Listener();

  uint16_t port() const;

  // For a restart: where more listen on this port than `ours`, this process among them, new connections go to the one
  // that came last from now on, and this is true. The kernel otherwise spreads them over all, and what it has given to
  // a port that is then closed is refused. Any thread, while the listener is not being stopped.
  bool YieldPort(size_t ours);
  void Start();
  // Accepts what the kernel has already queued, then closes the port.
  void Stop();

 private:
  struct Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace vllm_router
