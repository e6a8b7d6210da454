// SharedReply: the response of an own endpoint that needs the workers (the model list, their loads). It
// is made at most once a second and shared by all requests for it, on any thread.
//
//   threads          GET ──fresh?──> reply
//                      └─ no ──> wait ◄───────────── reply, posted to each thread
//   control thread                  one refresh ──polls every worker─┘
//
// So a client costs the workers nothing, however often it requests the reply and whether or not it
// stays. A client that leaves ends its own wait, and the refresh continues for the others. Once a
// refresh has taken longer than kReplyPatienceNs, the last reply is served if it is no older than
// kReplyUsableNs (shared_refresh.h). A request from another router waits no longer than that in any
// case: our refresh may be waiting for that router. Get() on any thread; the refresh runs on the control
// thread. Cost of a fresh reply: a lock and a copy of it.
#pragma once

#include <functional>
#include <memory>
#include <unordered_set>

#include "base/mutex.h"
#include "net/task.h"
#include "proxy/control/shared_refresh.h"

namespace vllm_router {

class CancelScope;
struct AdminReply;
struct IoThread;

class SharedReply {
 public:
  using Reply = std::shared_ptr<const AdminReply>;
  // Called on the control thread; ends soon after the scope is cancelled or the thread's HTTP calls are.
  using Make = std::function<Task<Reply>(IoThread& control, CancelScope& scope)>;

  // `control` outlives it.
  SharedReply(IoThread& control, Make make);
  ~SharedReply();

  // Null: none, since the scope was cancelled or the server is stopping.
  Task<Reply> Get(IoThread& thread, CancelScope& scope);

  // On the control thread: no refresh runs.
  bool ended() const { return refreshing_ == 0; }

 private:
  struct Waiter;
  Task<void> Refresh();

  const Make make_;
  IoThread& control_;
  int refreshing_ = 0;  // of the control thread

  Mutex mutex_;  // leaf
  SharedRefresh refresh_ ABSL_GUARDED_BY(mutex_);
  Reply reply_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<std::shared_ptr<Waiter>> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
