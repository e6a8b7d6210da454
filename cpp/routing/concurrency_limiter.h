// ConcurrencyLimiter: a number of permits that all threads share, and a bounded queue of waiters: one
// permit per request under way (--max-concurrent-requests).
//
//   permits   [x x x x x x . .]     6 of 8 are in use
//   queue     front -> a(3) b(1) c(1)     a does not fit yet; b and c would, but none overtakes
//
//   Enter(w, n)     n permits at once, or a place in the queue, or neither (it is full)
//   Release(n)      gives n back; grants permits to waiters in front that fit now, and notifies them
//   Leave(w)        out of the queue; false: too late, the permits were granted and have to be released
//   Requeue(w, n)   gives w's permits back and requeues w at its old position: "granted, but not usable
//                   yet". A waiter that got its permits without queueing came before the whole queue, and
//                   so goes in front of it
//   WakeNext()      gives the waiter in front another attempt
//   SetLimits(n, m) other numbers of permits and of waiters: with more, waiters get some at once; with fewer,
//                   all keep what they have, and no permit is granted until it fits
//
// Rules. First in, first out, over all threads: while there is a queue, no request takes permits past
// it. A release of n grants at most n waiters, so requeued waiters are woken one by one and not all at
// once. If a grant and a leave collide, the first under the mutex wins, and the other learns of it.
// There is no clock: the waiter sets its own timeout.
//
// Thread-safe. Cost: one atomic exchange each for Enter and Release while there is no queue; a mutex (a
// leaf) otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/mutex.h"

namespace vllm_router {

class ConcurrencyLimiter {
 public:
  static constexpr uint64_t kMostPermits = (uint64_t{1} << 40) - 1;
  static constexpr uint32_t kMostWaiters = (uint32_t{1} << 24) - 1;

  enum class Entry : uint8_t {
    kHeld,     // the permits are the caller's
    kWaiting,  // it is in the queue, and will be notified
    kFull,     // the queue is full
    kNever,    // more than there are permits at all
  };

  // A potential waiter. Must not move while it waits.
  class Waiter {
   public:
    // Called once per grant, on the thread that released, without a lock held.
    using Granted = void (*)(void* context);
    Waiter(Granted granted, void* context) : granted_(granted), context_(context) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    friend class ConcurrencyLimiter;
    const Granted granted_;
    void* const context_;
    Waiter* next_ = nullptr;
    Waiter* previous_ = nullptr;
    uint64_t amount_ = 0;
    uint64_t place_ = 0;  // lower ones are served first; 0: it was never queued
    bool waiting_ = false;
  };

  // REQUIRES: 1 <= permits <= kMostPermits, line <= kMostWaiters.
  ConcurrencyLimiter(uint64_t permits, uint32_t line);
  ConcurrencyLimiter(const ConcurrencyLimiter&) = delete;
  ConcurrencyLimiter& operator=(const ConcurrencyLimiter&) = delete;

  void SetLimits(uint64_t permits, uint32_t line);  // REQUIRES: as the constructor

  bool TryAcquire(uint64_t amount);  // at once or not at all
  Entry Enter(Waiter& waiter, uint64_t amount);
  void Release(uint64_t amount);
  // True: it waits no more and holds nothing. False: it is not (or no longer) in the queue.
  bool Leave(Waiter& waiter);
  // REQUIRES: `amount` permits are the waiter's. kFull only for one that was never queued. WakeNext()
  // must be called when the resource that it waits for may be available.
  Entry Requeue(Waiter& waiter, uint64_t amount);
  void WakeNext();
  // This one, if there are permits, wherever it stands in the queue.
  void Wake(Waiter& waiter);

  // True if Enter() of one permit would be rejected now.
  bool full() const;
  uint64_t permits() const { return permits_.load(std::memory_order_relaxed); }
  uint64_t in_use() const { return InUse(word_.load(std::memory_order_relaxed)); }
  uint32_t waiting() const { return Waiting(word_.load(std::memory_order_relaxed)); }

 private:
  // Permits in use and the number of waiters share one word, so that taking without queueing is one
  // exchange of it. While there is a queue, only holders of the mutex write it.
  static constexpr int kShift = 24;
  static constexpr uint64_t kFirstPlace = uint64_t{1} << 63;  // behind all early ones
  static uint64_t InUse(uint64_t word) { return word >> kShift; }
  static uint32_t Waiting(uint64_t word) { return static_cast<uint32_t>(word & kMostWaiters); }
  bool Free(uint64_t word, uint64_t amount) const {
    return Waiting(word) == 0 && InUse(word) + amount <= permits();
  }

  Entry EnterLocked(Waiter& waiter, uint64_t amount) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Link(Waiter& waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlink(Waiter& waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Grants from the front; the granted waiters, linked by next_.
  Waiter* Pass(uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static void Tell(Waiter* granted);

  uint32_t line() const { return line_.load(std::memory_order_relaxed); }

  std::atomic<uint64_t> permits_;
  std::atomic<uint32_t> line_;
  std::atomic<uint64_t> word_{0};
  Mutex mutex_;
  Waiter* front_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Waiter* back_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t early_places_ ABSL_GUARDED_BY(mutex_) =
      0;  // of those that passed without queueing and were requeued
  uint64_t places_ ABSL_GUARDED_BY(mutex_) = kFirstPlace;
};

}  // namespace vllm_router
