// BodyClaim: what one request body holds of the BodyBudget, and how its coroutine waits for more.
//
//   BodyClaim memory(thread.limits.body_memory, thread.loop);
//   if (memory.Grow(to, need) == BodyBudget::Entry::kWaiting) {
//     const BodyClaim::End end = co_await memory.Wait(timeout_ms);   // kHeld, or why not
//   }
//   …
//   memory.Complete(bytes);   // the body has come; it holds no more than this
//   …                         // released by Return(), or with the object
//
// A wait ends in a later turn of the loop, after a release on any thread, the timeout or Leave(). A
// grant that came first counts, even if the waiter wanted to leave. One thread.
#pragma once

#include <cstdint>

#include "net/task.h"
#include "net/timer_wheel.h"
#include "routing/body_budget.h"

namespace vllm_router {

class EventLoop;

class BodyClaim {
 public:
  enum class End : uint8_t { kHeld, kTimeout, kLeft };

  BodyClaim(BodyBudget& budget, EventLoop& loop);
  ~BodyClaim() { Return(); }  // REQUIRES: no wait
  BodyClaim(const BodyClaim&) = delete;
  BodyClaim& operator=(const BodyClaim&) = delete;

  uint64_t held() const { return held_; }

  // What is held already stays held. REQUIRES: held() < to <= need. After kWaiting, Wait() comes next.
  BodyBudget::Entry Grow(uint64_t to, uint64_t need);
  // Waits for its turn, for at most `timeout_ms`.
  Task<End> Wait(int64_t timeout_ms);
  // Ends a wait with kLeft.
  void Leave();
  // For optional memory: at once or not at all. REQUIRES: nothing is held.
  bool TryKeep(uint64_t bytes);
  // At once or not at all, for a body that comes while its request holds another one: while it waited, that one would
  // hold bytes that others wait for. REQUIRES: no Grow() before.
  bool GrowNow(uint64_t to);
  // No more than `bytes` will come, which is at most what is held.
  void Complete(uint64_t bytes);
  void Return();

 private:
  void EndWait(End end);
  static void OnGranted(void* claim);
  static void OnTimeout(void* claim);

  BodyBudget& budget_;
  EventLoop& loop_;
  BodyBudget::Member member_;
  uint64_t held_ = 0;
  uint64_t wanted_ = 0;
  bool waiting_ = false;
  Signal ended_;
  End end_ = End::kHeld;
  Timer timer_;
};

}  // namespace vllm_router
