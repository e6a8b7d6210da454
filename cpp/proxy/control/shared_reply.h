// SharedReply: the response of an own endpoint that only the workers can make (the model list, their loads), made at most once
// a second and shared by all who ask, on any thread.
//
//   lanes          GET ──fresh?──> reply
//                      └─ no ──> wait ◄───────────── reply, posted to each lane
//   control lane                  one refresh ──asks every worker──┘
//
// A client costs the workers nothing, then, however often it asks and whether or not it stays: one that leaves ends its own
// wait, and the refresh goes on for the others. Once a refresh has taken longer than kReplyPatienceNs, the last reply is
// served, if it is no older than kReplyUsableNs (shared_refresh.h). A router that asks waits no longer than that in any case:
// ours may be waiting for it. Get() on any lane; what refreshes runs on the control lane. Cost where the reply is
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
struct Lane;

class SharedReply {
 public:
  using Reply = std::shared_ptr<const AdminReply>;
  // Called on the control lane; ends soon after the errand is cancelled or the lane's fetches are.
  using Make = std::function<Task<Reply>(Lane& control, CancelScope& errand)>;

  explicit SharedReply(Make make);
  ~SharedReply();

  // Before the lanes run. `control` must outlive it.
  void set_control(Lane* control) { control_ = control; }

  // Null: there is none, since the errand was cancelled or the server stops.
  Task<Reply> Get(Lane& lane, CancelScope& errand);

  // On the control lane: nothing of it runs.
  bool ended() const { return refreshing_ == 0; }

 private:
  struct Waiter;
  Task<void> Refresh();

  const Make make_;
  Lane* control_ = nullptr;
  int refreshing_ = 0;  // of the control lane

  std::mutex mutex_;  // leaf; guards what follows
  SharedRefresh refresh_;
  Reply reply_;
  std::unordered_set<std::shared_ptr<Waiter>> waiters_;
};

}  // namespace vllm_router
