// ClassQueues: the waiting requests of one pool of workers, in the order of their priority classes.
//
//   Enqueue(w, now)      a place in the queue of its class, perhaps another's (see below); or the queue is full
//   Next(workers, now)   the next waiter, charged; `workers`: with room, by class
//   Passed(c)            a request of that class got its worker without waiting
//   Requeue(w)           what it was charged is given back, and w gets its old place
//   Remove(w)            it waits no more
//   Settle(w, actual)    what it cost in the end, in place of its charge
//
//   interactive   [a a b]              a FairQueue by tenants each (fair_queue.h)
//   default       [c d d d]
//   batch         [e e e e e e]        -> newest: displaced first
//
// Strict order: the highest class that has a waiter and a worker with room. A class whose oldest waiter has waited for
// age_after_ms, and longer than all of the class above, counts as that one: for each request of that class one of it is
// dispatched, by the order of its own tenants, on a worker with room for the class above. No more are, since a class for
// which every worker has room would lend it that, and nothing would bound them.
//
// Weighted order: of the classes that have both, the one with the lowest virtual time, which is the cost that was dispatched
// over the weight; a class whose queue was empty begins at the time that was dispatched last. There nothing ages, since no
// class starves.
//
// A full queue: the newcomer takes the place of the newest waiter of the lowest class below its own that has one. If there is
// none, that of the newest of the tenant with the most waiters in its class, if that tenant still has as many as its own
// afterwards. Else it is rejected. So there are never more waiters than the sum of the queues' sizes, but for those of Requeue()
// and those that go in front.
//
// The caller guards it. Cost: O(log tenants), twice for a full queue. No callback, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "admission/admission_settings.h"
#include "admission/fair_queue.h"
#include "admission/priority_class.h"

namespace vllm_router {

// How a request came to its worker: at once, from the queue, or from the queue one class higher.
enum class DispatchKind : uint8_t { kDirect, kQueued, kAged };
inline constexpr int kDispatchKinds = 3;
std::string_view DispatchKindName(DispatchKind kind);

class ClassQueues {
 public:
  // Must not move until it is settled or removed.
  struct Waiter : FairQueue::Waiter {
    PriorityClass of_class = PriorityClass::kDefault;
    int64_t queued_ns = 0;  // when it came
    // It had a worker, and was evicted there: before its tenant's others. Neither the queue's size rejects it nor does a
    // newcomer displace it, and it has a permit.
    bool in_front = false;
    // Of the queues.
    uint64_t arrival = 0;  // 0: it was never queued
    Waiter* before = nullptr;
    Waiter* behind = nullptr;
  };
  // By class, in ascending order; an empty one: none has room.
  using Workers = std::array<std::span<const uint32_t>, kPriorityClasses>;

  explicit ClassQueues(std::shared_ptr<const AdmissionSettings> settings);

  // From the next call on. Those that wait already stay.
  void Follow(std::shared_ptr<const AdmissionSettings> settings) { settings_ = std::move(settings); }
  const AdmissionSettings& settings() const { return *settings_; }

  struct Entered {
    bool queued = false;
    Waiter* displaced = nullptr;  // it waits no more
  };
  Entered Enqueue(Waiter* waiter, int64_t now_ns);
  struct Dispatched {
    Waiter* waiter = nullptr;  // null: none can be taken
    DispatchKind kind = DispatchKind::kQueued;
  };
  Dispatched Next(const Workers& workers, int64_t now_ns);
  void Passed(PriorityClass of_class) { queues_[Index(of_class)].aged_last = false; }
  // REQUIRES: Next() returned it, and it is not settled.
  void Requeue(Waiter* waiter);
  // False: it is not in a queue.
  bool Remove(Waiter* waiter);
  // REQUIRES: as Requeue().
  void Settle(const Waiter& waiter, uint64_t actual);

  // The oldest waiter of the highest class, which waits no more; null: there is none.
  Waiter* RemoveOldest();

  size_t waiters(PriorityClass of_class) const { return queues_[Index(of_class)].fair.waiters(); }
  bool empty() const;
  // Bit i: class i has waiters.
  uint32_t mask() const;
  const Waiter* oldest(PriorityClass of_class) const { return queues_[Index(of_class)].oldest; }
  // Costs of the waiters that a newcomer of the class would wait for.
  uint64_t QueuedCost(PriorityClass of_class) const;

 private:
  struct Queue {
    explicit Queue(const FairQueue::Options& options) : fair(options) {}
    FairQueue fair;
    Waiter* oldest = nullptr;
    Waiter* newest = nullptr;
    std::set<std::pair<size_t, uint64_t>> backlogs;  // how many waiters a tenant has, and the tenant
    uint64_t cost = 0;                               // of all waiters
    double time = 0;                                 // virtual, of the weighted order
    bool aged_last = false;                          // the last one that went as one of this class was not
  };

  static constexpr uint64_t kInFront = 1;  // an arrival before all others

  static size_t Index(PriorityClass of_class) { return static_cast<size_t>(of_class); }
  Queue& QueueOf(const Waiter& waiter) { return queues_[Index(waiter.of_class)]; }
  // The tenant has one waiter more or less now.
  static void FollowBacklog(Queue* queue, uint64_t tenant, size_t before);
  static void Link(Queue* queue, Waiter* waiter);
  static void Unlink(Queue* queue, Waiter* waiter);
  // Into the queue, or out of it, besides its FairQueue. `before`: waiters of the tenant.
  static void Joined(Queue* queue, Waiter* waiter, size_t before);
  static void Left(Queue* queue, Waiter* waiter, size_t before);
  Waiter* FindDisplaced(const Waiter& newcomer) const;
  // The class below counts as this one.
  bool AgesInto(size_t upper, int64_t now_ns) const;
  Waiter* NextOf(size_t of_class, std::span<const uint32_t> workers);
  Dispatched NextStrict(const Workers& workers, int64_t now_ns);
  Dispatched NextWeighted(const Workers& workers);
  void ChargeClass(const Waiter& waiter, double cost);

  std::shared_ptr<const AdmissionSettings> settings_;
  std::array<Queue, kPriorityClasses> queues_;
  uint64_t last_arrival_ = kInFront;
  double virtual_time_ = 0;  // of the class that was dispatched last
};

}  // namespace vllm_router
