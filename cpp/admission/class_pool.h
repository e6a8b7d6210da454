// ClassPool: the waiting requests of one pool of workers, for all threads of a server (admission/class_queues.h).
//
//   request    TryPass()    usual case: nothing of its class or above waits, a worker has room: one word, no lock
//              Enqueue()    else; it is told once what became of it, on any thread
//   chosen     Chosen()     its worker's load counts it from now on
//   end        Pump()       as at the first token, at every tick, and after Chosen() while others wait
//
// A request that is dispatched and has not chosen its worker yet is in no worker's load, so no more are under way to their
// choice than workers with room have places (pool_room.h). It chooses on its own thread by its policy.
//
// Thread-safe. One leaf mutex; waiters are told without it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "admission/admission_settings.h"
#include "admission/class_queues.h"
#include "admission/dispatch_rate.h"
#include "admission/pool_room.h"
#include "base/mutex.h"
#include "worker/worker.h"

namespace vllm_router {

class FleetView;

// What a request costs, in tokens: those of the prompt that are computed, and twice those of the response, each of which
// takes a step.
constexpr uint64_t CostOf(uint64_t uncached_prompt, uint64_t output) { return uncached_prompt + 2 * output; }

// What became of a waiter.
// kMoved: its workers are another pool's now.
enum class WaitEnd : uint8_t { kDispatched, kFull, kDisplaced, kTimeout, kLeft, kMoved };

class ClassPool {
 public:
  struct Waiter : ClassQueues::Waiter {
    // Called once without a lock, on the thread that caused it; the waiter may be gone as soon as it returns.
    void (*tell)(Waiter* waiter, WaitEnd end) = nullptr;
    DispatchKind kind = DispatchKind::kDirect;
    bool idle_only = false;      // it was dispatched as one of such a class
    int64_t retry_after_ns = 0;  // of one that waits no more without being dispatched
  };

  using Holders = std::array<FairQueue::Holder, 4>;

  // `model`: for people. `workers`: their ids, ascending; empty: all of the fleet.
  ClassPool(
      std::string model, std::shared_ptr<const AdmissionSettings> settings,
      std::vector<WorkerId> workers = {});

  const std::string& model() const { return model_; }
  // The part of the fleet that is the pool's.
  std::shared_ptr<const FleetView> ViewIn(const std::shared_ptr<const FleetView>& whole)
      ABSL_LOCKS_EXCLUDED(view_mutex_);

  // A request of a class that is not idle_only has come.
  void HigherCame(int64_t now_ns);
  // Dispatches one at once. False: it has to wait.
  bool TryPass(PriorityClass of_class, const FleetView& fleet, const RoomLimits& limits, int64_t now_ns);
  struct Entered {
    bool queued = false;
    bool retired = false;  // the pool is not used any more: find it anew
    int64_t retry_after_ns = 0;
  };
  // `random`: 0 to 1. Pump() has to follow if it is queued.
  Entered Enqueue(Waiter* waiter, double random, int64_t now_ns);
  // False: it was told already, or will be.
  bool Leave(Waiter* waiter, double random, int64_t now_ns);
  // True while the workers that hold its prompt may decide when it is dispatched (FairQueue::IsSearched()).
  bool IsSearched(const Waiter& waiter) const;
  // What they hold now. No effect on one that waits no more.
  void SetHolders(Waiter* waiter, const Holders& holders);
  // Of one that was dispatched from the queue and has to wait on: at its old place. REQUIRES: it is not settled. False: the
  // pool is not used any more, and it is settled now.
  bool Requeue(Waiter* waiter, int64_t now_ns);
  // A dispatched request has chosen its worker, or will choose none.
  void Chosen() { choosing_.fetch_sub(1, std::memory_order_acq_rel); }
  // A request of an idle_only class was dispatched; it has its first token, or has ended.
  void EndPrefill() { prefills_.fetch_sub(1, std::memory_order_relaxed); }
  // What a dispatched waiter has cost.
  void Settle(const Waiter& waiter, uint64_t actual);

  // Dispatches what has room. Returns the workers that had it.
  OpenWorkers Pump(const FleetView& fleet, const RoomLimits& limits, int64_t now_ns);
  // All, whatever has room: there are no classes any more.
  void DispatchAll(int64_t now_ns);
  bool any_waiting() const { return waiting_.load(std::memory_order_acquire) != 0; }
  // Something of the class, or of one above, waits.
  bool MustWait(PriorityClass of_class) const {
    return (waiting_.load(std::memory_order_acquire) & ((2u << static_cast<unsigned>(of_class)) - 1)) != 0;
  }
  void Follow(std::shared_ptr<const AdmissionSettings> settings);
  // True: nobody uses it, and it takes no waiter any more.
  bool Retire(int64_t now_ns);
  // It takes no waiter any more; those that it has are told kMoved, in their order.
  void MoveAll();
  bool retired() const { return retired_.load(std::memory_order_acquire); }

  struct Report {
    std::array<uint64_t, kPriorityClasses> waiting{};
    std::array<int64_t, kPriorityClasses> oldest_ns{};  // how long; 0: none waits
    std::array<double, kPriorityClasses> rate{};  // tokens per second that were dispatched from the queue
    int64_t choosing = 0;                         // requests under way to their choice
  };
  Report Read(int64_t now_ns) const;
  PoolRoom RoomNow(const FleetView& fleet, const RoomLimits& limits, int64_t now_ns) const;

 private:
  void Begin(ClassGate gate);
  void TellPassed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr int64_t kActiveNs = 30'000'000'000;
  static constexpr int64_t kCameStepNs = 1'000'000'000;

  const std::string model_;
  const std::vector<WorkerId> workers_;
  Mutex view_mutex_;                                                     // leaf
  std::shared_ptr<const FleetView> whole_ ABSL_GUARDED_BY(view_mutex_);  // of which view_ is
  std::shared_ptr<const FleetView> view_ ABSL_GUARDED_BY(view_mutex_);
  std::atomic<uint32_t> waiting_{0};  // ClassQueues::mask()
  std::atomic<uint32_t> passed_{0};   // bit i: one of class i did not wait, since the last Pump()
  std::atomic<int64_t> choosing_{0};
  std::atomic<int64_t> prefills_{0};
  std::atomic<int64_t> higher_came_ns_{-kActiveNs};  // the last request of a class that is not idle_only
  std::atomic<bool> retired_{false};                 // written with the mutex
  mutable Mutex mutex_;                              // leaf
  ClassQueues queues_ ABSL_GUARDED_BY(mutex_);
  std::array<DispatchRate, kPriorityClasses> rates_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
