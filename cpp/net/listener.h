// Listener: one listening TCP port on one loop, at each address of its host: a name such as localhost may have two.
// Several listeners, one per loop, may share a port (SO_REUSEPORT). The kernel then spreads new connections over them,
// and a connection never changes its loop.
//
//   StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(loop, {"127.0.0.1", 0}, on_accept);
//   (*listener)->Start();
//
// When no descriptor is left, it frees its reserve, accepts and closes one client, and pauses 100 ms.
// The backlog stays in the kernel and nothing spins. It logs a warning at once, then every 10 s the
// number of clients rejected since, for all listeners of the process together. Open() may be called on
// any thread, everything else on the loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/event_loop.h"
#include "net/socket.h"

namespace vllm_router {

class Listener {
 public:
  using OnAccept = std::function<void(Socket socket, Endpoint peer)>;

  struct Where {
    std::string host;        // an IPv6 address with or without brackets
    uint16_t port = 0;       // 0: any free port
    bool share_port = true;  // SO_REUSEPORT: other listeners may join
    bool join = false;  // join existing sharers of the port; if false, no process may be listening there yet
  };
  // If it cannot listen: FailedPrecondition with the address and the reason.
  static StatusOr<std::unique_ptr<Listener>> Open(EventLoop& loop, const Where& where, OnAccept on_accept);
  ~Listener();

  uint16_t port() const;

  // For a restart without downtime. Returns true if more sockets listen on this port than `ours`, this
  // process among them; from then on new connections go to the one that joined last. Otherwise the
  // kernel would spread them over all sockets, and would reset connections already given to a socket
  // that is then closed. Any thread, while the listener is not being stopped.
  bool YieldPort(size_t ours);
  void Start();
  // Accepts the connections already in the kernel's queue, then closes the port.
  void Stop();

 private:
  struct Impl;
  explicit Listener(std::vector<std::shared_ptr<Impl>> impls) : impls_(std::move(impls)) {}
  std::vector<std::shared_ptr<Impl>> impls_;  // of each address; at least one
};

}  // namespace vllm_router
