// BodyBudget: the memory for request bodies that are held whole (--body-memory-mb), claimed as their
// bytes arrive. A length is only announced; the bytes that arrived count. So a body grows through
// several claims and holds the earlier ones while it waits for the next. Bodies that grow at once must
// not deadlock.
//
//   total   [ complete | growing: p ....  a ..  b .... | room ]
//                                 ^ the privileged one may use whatever is free, up to all that it needs
//
// Invariant: for each growing body, its whole need and the holdings of the other growing bodies fit
// into the total together. The first to claim is privileged. A claim of another is granted if, with it,
// the largest need still fits beside the holdings of all but the privileged one. So the privileged body
// can always complete (once those that are complete have ended, which they do by themselves), and so can
// its successor. Any number of bodies of 8 MiB run through a budget of 8 MiB, one after the other; 32 at
// once through 256 MiB, as if each had claimed its whole length at the start.
//
//   Grow(m, to, need)   m holds `to` bytes now; or waits: bodies that have grown before those that have not, each kind
//                       in order of arrival; or never, when `need` is more than the total. A body that was complete
//                       grows on at once or never: while it waited, it would hold bytes that others wait for
//   TryKeep(m, bytes)   for an optional body: at once and below half of the total, or not at all
//   GrowNow(m, to)      for a body that comes while its request holds another one: at once or not at all, and complete
//   Complete(m, bytes)  no more will come; gives back the bytes beyond `bytes`
//   Leave(m)            out of the queue; false: it was granted before
//   Release(m)          gives back everything
//
// Needs are rounded up to powers of two for the invariant, so that the largest is known at once. There
// is no clock: the waiter sets its own timeout. Thread-safe: one mutex, a leaf. Cost: O(1), 30 ns; a
// call that grants k others, O(k).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/mutex.h"

namespace vllm_router {

class BodyBudget {
 public:
  enum class Entry : uint8_t { kHeld, kWaiting, kNever };

  // One body. Must not move while it holds or waits for bytes.
  class Member {
   public:
    // Called once per grant that was waited for, on the thread that gave bytes back, without a lock
    // held.
    using Granted = void (*)(void* context);
    Member(Granted granted, void* context) : granted_(granted), context_(context) {}
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

   private:
    friend class BodyBudget;
    enum class State : uint8_t { kOutside, kGrowing, kComplete };
    const Granted granted_;
    void* const context_;
    Member* next_ = nullptr;
    Member* previous_ = nullptr;
    uint64_t held_ = 0;
    uint64_t wanted_ = 0;  // target while it waits
    uint64_t need_ = 0;
    State state_ = State::kOutside;
    bool waiting_ = false;
  };

  explicit BodyBudget(uint64_t total) : total_(total) {}
  BodyBudget(const BodyBudget&) = delete;
  BodyBudget& operator=(const BodyBudget&) = delete;

  // REQUIRES: it does not wait, `to` is more than it holds and at most `need`, which is the same in each
  // call.
  Entry Grow(Member& member, uint64_t to, uint64_t need);
  // REQUIRES: it holds nothing and does not wait.
  bool TryKeep(Member& member, uint64_t bytes);
  // REQUIRES: it is not growing, and `to` is more than it holds.
  bool GrowNow(Member& member, uint64_t to);
  // REQUIRES for these: it does not wait. `bytes` is at most what it holds.
  void Complete(Member& member, uint64_t bytes);
  void Release(Member& member);
  bool Leave(Member& member);

  uint64_t total() const { return total_; }
  uint64_t in_use() const;
  uint32_t waiting() const;

 private:
  static constexpr size_t kClasses = 64;

  struct Queue {
    Member* front = nullptr;
    Member* back = nullptr;
    uint32_t size = 0;
  };

  bool Grantable(const Member& member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grant(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t LargestNeed(uint64_t need) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Grants from the fronts; those granted, linked by next_.
  Member* Pass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Queue& QueueOf(const Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return member.state_ == Member::State::kGrowing ? growers_ : newcomers_;
  }
  static void Link(Queue& queue, Member& member);
  static void Unlink(Queue& queue, Member& member);
  void StopGrowing(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static void Tell(Member* granted);

  const uint64_t total_;
  mutable Mutex mutex_;  // guards what members hold, too
  uint64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t growing_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes that growing bodies hold
  // How many growing bodies need up to 2^i bytes.
  std::array<uint32_t, kClasses> needs_ ABSL_GUARDED_BY(mutex_) = {};
  uint64_t classes_ ABSL_GUARDED_BY(mutex_) = 0;  // bit i: needs_[i] is not 0
  Member* privileged_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Queue growers_ ABSL_GUARDED_BY(mutex_);
  Queue newcomers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
