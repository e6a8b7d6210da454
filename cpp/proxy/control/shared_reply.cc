#include "proxy/control/shared_reply.h"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "http/via.h"
#include "proxy/client/http_client.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct SharedReply::Waiter {
  Waiter(IoThread& thread, CancelScope& scope) : thread(thread), scope(&scope) {}

  IoThread& thread;
  CancelScope* scope;  // null: it waits no more. Of its thread, as the reply
  Reply reply;
};

SharedReply::SharedReply(IoThread& control, Make make)
    : make_(std::move(make)), control_(control), refresh_(kReplyFreshNs, kReplyUsableNs) {}

SharedReply::~SharedReply() = default;

Task<SharedReply::Reply> SharedReply::Get(IoThread& thread, CancelScope& scope) {
  const auto waiter = std::make_shared<Waiter>(thread, scope);
  const uint64_t fleet = thread.fleet.Get()->membership_version();
  const bool from_router = ReadVia(scope.via(), thread.hop_name).routers > 0;
  SharedRefresh::Next next;
  Reply usable;
  int64_t wait_ns = kReplyWaitNs;
  {
    const int64_t now = thread.clock.NowNanos();
    MutexLock lock(mutex_);
    next = refresh_.Ask(now, fleet);
    if (next == SharedRefresh::Next::kServe) co_return reply_;
    if (refresh_.IsUsable(now)) usable = reply_;
    if (usable != nullptr || from_router) wait_ns = refresh_.begun_ns() + kReplyPatienceNs - now;
    if (wait_ns > 0) waiters_.insert(waiter);
  }
  if (next == SharedRefresh::Next::kStart) control_.loop.Post([this] { Spawn(Refresh()); });
  if (wait_ns <= 0) co_return usable;
  co_await scope.Pause(thread.loop, wait_ns);
  waiter->scope = nullptr;
  if (waiter->reply != nullptr) co_return waiter->reply;
  {
    MutexLock lock(mutex_);
    waiters_.erase(waiter);
  }
  co_return scope.cancelled() ? nullptr : usable;
}

Task<void> SharedReply::Refresh() {
  ++refreshing_;
  CancelScope scope{std::span<const std::string_view>()};
  if (control_.draining) scope.Cancel();
  Reply reply = co_await make_(control_, scope);
  --refreshing_;
  std::unordered_set<std::shared_ptr<Waiter>> waiters;
  {
    MutexLock lock(mutex_);
    refresh_.End(control_.clock.NowNanos());
    reply_ = reply;
    waiters.swap(waiters_);
  }
  for (const std::shared_ptr<Waiter>& waiter : waiters) {
    waiter->thread.loop.Post([waiter, reply] {
      if (waiter->scope == nullptr) return;
      waiter->reply = reply;
      waiter->scope->EndPause();
    });
  }
}

}  // namespace vllm_router
