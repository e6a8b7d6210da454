// SharedReply: the response of an own endpoint that only the workers can make (the model list, their loads), made at most once
// a second and shared by all who ask, on any thread.
//
//   threads          GET ──fresh?──> reply
//                      └─ no ──> wait ◄───────────── reply, posted to each thread
//   control thread                  one refresh ──asks every worker──┘
//
// A client costs the workers nothing, then, however often it asks and whether or not it stays: one that leaves ends its own
// wait, and the refresh goes on for the others. Once a refresh has taken longer than kReplyPatienceNs, the last reply is
// served, if it is no older than kReplyUsableNs (shared_refresh.h). A router that asks waits no longer than that in any case:
// ours may be waiting for it. Get() on any thread; what refreshes runs on the control thread. Cost where the reply is
// fresh: a lock and a copy of the reply.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "net/task.h"
#include "proxy/control/shared_refresh.h"

namespace vllm_router {

class CancelScope;
struct AdminReply;
struct IoThread;

class SharedReply {
 public:
  using Reply = std::shared_ptr<const AdminReply>;
  // Called on the control thread; ends soon after the scope is cancelled or the thread's fetches are.
  using Make = std::function<Task<Reply>(IoThread& control, CancelScope& scope)>;

  explicit SharedReply(Make make);
  ~SharedReply();

  // Before the threads run. `control` must outlive it.
  void set_control(IoThread* control) { control_ = control; }

  // Null: there is none, since the scope was cancelled or the server stops.
  Task<Reply> Get(IoThread& thread, CancelScope& scope);

  // On the control thread: nothing of it runs.
  bool ended() const { return refreshing_ == 0; }

 private:
  struct Waiter;
  Task<void> Refresh();

  const Make make_;
  IoThread* control_ = nullptr;
  int refreshing_ = 0;  // of the control thread

  std::mutex mutex_;  // leaf; guards what follows
  SharedRefresh refresh_;
  Reply reply_;
  std::unordered_set<std::shared_ptr<Waiter>> waiters_;
};

}  // namespace vllm_router
