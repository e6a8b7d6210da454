// Permit: what one exchange holds of a ConcurrencyLimiter, and how its coroutine waits for it.
//
//   Permit permit(thread.limits.concurrency, thread);
//   if (!permit.TryAcquire(1)) {
//     const Permit::End end = co_await permit.Acquire(1, timeout_ms);   // kHeld, or why not
//   }
//   …                                                                   // until Release() or destruction
//
// A wait ends in a later turn of the loop, after a release on any thread, the timeout or Leave(). A
// grant that came first counts, even if the waiter wanted to leave: the permit is then held and must be
// released. One thread.
#pragma once

#include <cstdint>

#include "net/task.h"
#include "net/timer_wheel.h"
#include "routing/concurrency_limiter.h"

namespace vllm_router {

struct IoThread;

class Permit {
 public:
  enum class End : uint8_t { kHeld, kFull, kNever, kTimeout, kLeft };

  // A waiter with a permit may still lack what the permit is for. While it waits, worth_a_try(thread, context) is
  // polled now and then, and tells who is woken: the first in the queue, or this one if others wait for something
  // else. Null: the permit is all that is awaited.
  enum class Worth : uint8_t { kNobody, kFirst, kThis };
  using WorthTrying = Worth (*)(IoThread& thread, const void* context);
  Permit(
      ConcurrencyLimiter& limiter, IoThread& thread, WorthTrying worth_a_try = nullptr,
      const void* context = nullptr);
  ~Permit() { Release(); }  // REQUIRES: no waiter
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;

  bool held() const { return held_ != 0; }

  // At once or not at all.
  bool TryAcquire(uint64_t amount);
  // Waits for its turn, for at most `timeout_ms`. REQUIRES: nothing is held.
  Task<End> Acquire(uint64_t amount, int64_t timeout_ms);
  // Releases the permit, which was of no use yet, and waits at its old position for the rest of
  // `timeout_ms`. REQUIRES: held, and a worth_a_try.
  Task<End> Requeue(int64_t timeout_ms);
  // The same of a request that was served meanwhile: for all of `timeout_ms`. Nearly always it is the first in the queue.
  Task<End> RequeueServed(int64_t timeout_ms) {
    until_ns_ = 0;
    return Requeue(timeout_ms);
  }
  // Nanoseconds spent in the queue.
  int64_t waited_ns() const { return waited_ns_; }
  // Ends a wait with kLeft.
  void Leave();
  // Wakes the next one in the queue, if there may be room for more than one.
  void WakeNext() { limiter_.WakeNext(); }
  void Release();

 private:
  static constexpr int64_t kTryAgainMs = 100;

  Task<End> Enter(ConcurrencyLimiter::Entry entry, int64_t timeout_ms);
  void EndWait(End end);
  void ArmTimer();
  void TryAgain();
  static void OnGranted(void* permit);
  static void OnTimer(void* permit);

  ConcurrencyLimiter& limiter_;
  IoThread& thread_;
  const WorthTrying worth_a_try_;
  const void* const context_;  // for it
  ConcurrencyLimiter::Waiter waiter_;
  uint64_t amount_ = 0;
  uint64_t held_ = 0;
  bool waiting_ = false;
  Signal ended_;
  End end_ = End::kHeld;
  Timer timer_;
  int64_t until_ns_ = 0;  // deadline of the wait
  int64_t waited_ns_ = 0;
};

}  // namespace vllm_router
