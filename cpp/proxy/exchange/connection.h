// Connection: one client, from accept to close. It is idle between requests and hands each to an
// Exchange, in order. It owns itself: Serve() makes it, and it is destroyed when the client is gone.
//
//   accept --- first byte --- TLS handshake --- head |  response --- first byte --- head |  response --- …
//   `------ --client-head-timeout-secs --------------´          `--idle timeout-´`-head timeout-´
//
// One deadline covers everything before the first request's head is complete. So a client that connects
// and sends nothing is closed after that time, not after the much longer idle timeout, which holds
// between requests only. A silent connection costs no TLS session: that is made when the first byte has
// arrived. Idle connections, including those in the TLS handshake, are in the thread's IdleList and may
// be closed for a new one.
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
class Pipeline;
class TlsContext;
struct AdminReply;
struct Settings;
struct Worker;

class Connection : public IdleList::Member {
 public:
  // The thread's TLS applies to clients, except on the metrics listener.
  static void Serve(
      IoThread& thread, Socket socket, Endpoint peer, ListenerKind listener_kind, const Pipeline& pipeline);
  ~Connection();

  // On shutdown. An idle connection closes; one with a running or arrived request closes after its
  // response; with `cut`, it closes now.
  void Drain(bool cut);
  void CutFrom(const Worker& worker);               // if its request is there
  void WorkerDied(const Worker& worker);            // likewise
  void HandOverFrom(const Worker& worker);          // likewise
  void CutReader(const AdminReply& page);           // if its client still reads that
  Exchange* exchange() { return exchange_.get(); }  // null: no request is under way

  // Closes the thread's longest idle connection that has no request waiting; false: there is none.
  static bool CloseLongestIdle(IoThread& thread);

  // The time left for a request's head. At least 1 if there is a limit, else 0.
  int64_t HeadTimeLeftMs() const;

  // Whether a client that sends no more is still to be served (--half-closed-clients serve).
  bool MayStillRead() const;

  IoThread& thread;
  Socket socket;
  const Endpoint peer;
  const ListenerKind listener_kind;
  const Pipeline& pipeline;                  // its requests go through it
  std::shared_ptr<const Settings> settings;  // of the request at hand, as it began
  Buffer in;                                 // received, not yet consumed
  // Set by Exchange: how the connection continues.
  bool keep = true;     // another request may follow
  bool linger = false;  // request bytes may be unread: discard some before closing, or our response is lost

 private:
  friend class Exchange;
  Connection(
      IoThread& thread, Socket socket, Endpoint peer, ListenerKind listener_kind, const Pipeline& pipeline);
  Task<void> Run();
  Task<bool> StartTls(std::shared_ptr<const TlsContext> tls);
  Task<bool> AwaitBytes();
  Task<bool> AwaitRequest();
  Task<void> Linger();
  void TakeSettings();
  static void OnTimeout(void* connection);

  std::unique_ptr<Exchange> exchange_;
  bool idle_ = false;
  bool evicted_ = false;          // closed for a new connection
  int64_t head_deadline_ns_ = 0;  // of the first request; 0: it has arrived
  Timer timer_;
};

}  // namespace vllm_router
