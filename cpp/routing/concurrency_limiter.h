// ConcurrencyLimiter: a number of permits that all threads share, and a bounded line of those who wait for some: one permit
// per request under way (--max-concurrent-requests).
//
//   permits   [x x x x x x . .]     6 of 8 are out
//   line      front -> a(3) b(1) c(1)     a does not fit yet; b and c would, but nobody overtakes
//
//   Enter(w, n)     n permits at once, or a place in the line, or neither (it is full)
//   Release(n)      gives n back; whoever stands in front and fits now is granted its permits, and told
//   Leave(w)        out of the line; false: too late, the permits were granted and have to be released
//   Requeue(w, n)  gives w's permits back and stands where it stood: "granted, but no use to me yet". One that got its
//                   permits without a line came before all who stand in it, and so goes in front of those that entered it
//   WakeNext()         lets the one in front have another try
//
// Rules. First in, first out, over all threads: while anybody waits, nobody takes permits past the line. A release of n
// lets at most n waiters go, so a line of waiters that have stepped back is woken one by one and not all at once.
// A waiter that is granted and one that leaves may collide: whoever is first under the mutex wins, and the other hears
// of it. No clock here: how long one waits is the waiter's business.
//
// Thread-safe. Cost: one atomic exchange each for Enter and Release while nobody waits; a mutex (a leaf) otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>

namespace vllm_router {

class ConcurrencyLimiter {
 public:
  static constexpr uint64_t kMostPermits = (uint64_t{1} << 40) - 1;
  static constexpr uint32_t kMostWaiters = (uint32_t{1} << 24) - 1;

  enum class Entry : uint8_t {
    kHeld,     // the permits are the caller's
    kWaiting,  // it stands in the line, and will be told
    kFull,     // the line is full
    kNever,    // more than there are permits at all
  };

  // One who may wait. Stays where it is while it waits.
  class Waiter {
   public:
    // Called once per grant, on whichever thread released, without a lock held.
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
    uint64_t place_ = 0;  // lower ones are served first; 0: it has never stood in the line
    bool waiting_ = false;
  };

  // REQUIRES: 1 <= permits <= kMostPermits, line <= kMostWaiters.
  ConcurrencyLimiter(uint64_t permits, uint32_t line);
  ConcurrencyLimiter(const ConcurrencyLimiter&) = delete;
  ConcurrencyLimiter& operator=(const ConcurrencyLimiter&) = delete;

  bool TryAcquire(uint64_t amount);  // at once or not at all
  Entry Enter(Waiter& waiter, uint64_t amount);
  void Release(uint64_t amount);
  // True: it does not wait any more and holds nothing. False: it is not (or no longer) in the line.
  bool Leave(Waiter& waiter);
  // REQUIRES: `amount` permits are the waiter's. kFull only for one that never stood in the line. Somebody must WakeNext()
  // when what it waits for may have come.
  Entry Requeue(Waiter& waiter, uint64_t amount);
  void WakeNext();

  // Whether Enter() of one permit would be refused now.
  bool full() const;
  uint64_t permits() const { return permits_; }
  uint64_t in_use() const { return InUse(word_.load(std::memory_order_relaxed)); }
  uint32_t waiting() const { return Waiting(word_.load(std::memory_order_relaxed)); }

 private:
  // Permits in use and waiters share one word, so that taking without a line is one exchange of it. While somebody
  // waits, only holders of the mutex write it.
  static constexpr int kShift = 24;
  static constexpr uint64_t kFirstPlace = uint64_t{1} << 63;  // behind all early ones
  static uint64_t InUse(uint64_t word) { return word >> kShift; }
  static uint32_t Waiting(uint64_t word) { return static_cast<uint32_t>(word & kMostWaiters); }
  bool Free(uint64_t word, uint64_t amount) const {
    return Waiting(word) == 0 && InUse(word) + amount <= permits_;
  }

  // All are called with the mutex held.
  Entry EnterLocked(Waiter& waiter, uint64_t amount);
  void Link(Waiter& waiter);
  void Unlink(Waiter& waiter);
  Waiter* Pass(uint64_t most);  // grants from the front; who was granted, linked by next_

  static void Tell(Waiter* granted);

  const uint64_t permits_;
  const uint32_t line_;
  std::atomic<uint64_t> word_{0};
  std::mutex mutex_;  // guards what follows
  Waiter* front_ = nullptr;
  Waiter* back_ = nullptr;
  uint64_t early_places_ = 0;  // of those that were let through and stepped back
  uint64_t places_ = kFirstPlace;
};

}  // namespace vllm_router
