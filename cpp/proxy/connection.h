// Connection: one client, from accept to close: rests between requests, then hands each to an Exchange, in order.
// Owns itself: Serve() makes it, and it is gone when the client is.
#pragma once

#include <memory>

#include "net/buffer.h"
#include "net/socket.h"
#include "net/task.h"
#include "proxy/gatekeeper.h"
#include "proxy/lane.h"

namespace vllm_router {

class Exchange;

class Connection {
 public:
  // The lane's TLS is what clients speak, but for the metrics' door.
  static void Serve(Lane& lane, Socket socket, Endpoint peer, Door door);
  ~Connection();

  // On shutdown: a resting connection closes, a working one, or one whose request has arrived, closes after its answer;
  // with `cut`, now.
  void Drain(bool cut);
  void CutFrom(const Worker& worker);     // if that is where its request is
  void WorkerDied(const Worker& worker);  // likewise

  Lane& lane;
  Socket socket;
  const Endpoint peer;
  const Door door;
  Buffer in;  // received, not yet consumed
  // For Exchange to say how the connection goes on.
  bool keep = true;     // another request may follow
  bool linger = false;  // request bytes may be unread: discard some before closing, or our answer is lost

 private:
  friend class Exchange;
  Connection(Lane& lane, Socket socket, Endpoint peer, Door door);
  Task<void> Run();
  Task<bool> StartTls(std::shared_ptr<const TlsContext> tls);
  Task<void> Linger();
  static void OnTimeout(void* connection);

  std::unique_ptr<Exchange> exchange_;
  bool resting_ = false;
  Timer timer_;
};

}  // namespace vllm_router
