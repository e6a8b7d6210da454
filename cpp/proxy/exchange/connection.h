// Connection: one client, from accept to close: rests between requests, then hands each to an Exchange, in order.
// Owns itself: Serve() makes it, and it is gone when the client is.
//
//   accept --- first byte --- TLS handshake --- head |  response --- first byte --- head |  response --- …
//   `------ --client-head-timeout-secs --------------´          `--idle timeout-´`-head timeout-´
//
// One deadline covers all that comes before the first request's head is complete, so a client that connects and never
// speaks is closed after that time and not after the much longer idle timeout, which holds between requests only. A
// silent connection costs no TLS session: that is made when the first byte has arrived. Idle connections, those in the TLS
// handshake included, are in the thread's IdleList and may be closed for a new one.
#pragma once

#include <memory>

#include "net/buffer.h"
#include "net/socket.h"
#include "net/task.h"
#include "proxy/security/authorizer.h"
#include "proxy/thread/idle_list.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

class Exchange;
class OwnEndpoints;

class Connection : public IdleList::Member {
 public:
  // The thread's TLS is what clients speak, but for the metrics' listener_kind.
  static void Serve(
      IoThread& thread, Socket socket, Endpoint peer, ListenerKind listener_kind,
      OwnEndpoints& own_endpoints);
  ~Connection();

  // On shutdown: a resting connection closes, a working one, or one whose request has arrived, closes after its answer;
  // with `cut`, now.
  void Drain(bool cut);
  void CutFrom(const Worker& worker);     // if that is where its request is
  void WorkerDied(const Worker& worker);  // likewise

  // Closes the connection of the thread that has been idle longest and has no request waiting; false: there is none.
  static bool CloseLongestIdle(IoThread& thread);

  // What is left of the time that a request's head may take. At least 1 where there is a limit, else 0.
  int64_t HeadTimeLeftMs() const;

  // Of a client that sends no more: whether it is to be served all the same (--half-closed-clients serve).
  bool MayStillRead() const { return thread.options.serve_half_closed && !socket.IsBroken(); }

  IoThread& thread;
  Socket socket;
  const Endpoint peer;
  const ListenerKind listener_kind;
  OwnEndpoints& own_endpoints;
  Buffer in;  // received, not yet consumed
  // For Exchange to say how the connection goes on.
  bool keep = true;     // another request may follow
  bool linger = false;  // request bytes may be unread: discard some before closing, or our answer is lost

 private:
  friend class Exchange;
  Connection(
      IoThread& thread, Socket socket, Endpoint peer, ListenerKind listener_kind,
      OwnEndpoints& own_endpoints);
  Task<void> Run();
  Task<bool> StartTls(std::shared_ptr<const TlsContext> tls);
  Task<bool> AwaitBytes();
  Task<bool> AwaitRequest();
  Task<void> Linger();
  static void OnTimeout(void* connection);

  std::unique_ptr<Exchange> exchange_;
  bool idle_ = false;
  bool evicted_ = false;          // closed for a new connection
  int64_t head_deadline_ns_ = 0;  // of the first request; 0: that has come
  Timer timer_;
};

}  // namespace vllm_router
