// ClassPools: the classes of a server: their settings, and a ClassPool for each pool of workers that has requests.
//
//   settings     Follow(lines)              what the operator's file says now (admission/admission_settings.h); empty: no classes
//   request      thread.PoolOf(fleet, …)    that of the workers of the view, found in a cache of the thread
//   tick         All(), Tick()              every 100 ms while anything waits (dispatch_service.h)
//
// A pool is a set of workers: those of a model and its adapters, or the whole fleet. When a model's workers change it has
// another pool, and the tick moves those that wait there. A pool that is not used for a minute is retired.
//
// Thread-safe. A mutex only where a thread does not know a pool yet.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "admission/admission_settings.h"
#include "admission/class_pool.h"
#include "admission/evictables.h"
#include "admission/whole_responses.h"
#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "proxy/telemetry/buckets.h"
#include "proxy/telemetry/counters.h"
#include "proxy/thread/place_queues.h"

namespace vllm_router {

class FleetView;
class RequestedModel;
struct IoThread;
struct Request;

class ClassPools final : public PlaceQueues {
 public:
  // What is in force. Null: there are no classes.
  struct Rules {
    std::shared_ptr<const AdmissionSettings> settings;
  };
  using Number = uint64_t;
  // The workers of a pool.
  struct Workers {
    Number number = 0;          // of the set of ids; 0: the whole fleet
    std::vector<WorkerId> ids;  // ascending
  };
  // `fleet`: the whole one or a part of it, as a request has it.
  static Workers WorkersOf(const FleetView& fleet);

  ClassPools() : rules_(std::make_shared<const Rules>()) {}

  // Null for no lines: there are no classes. InvalidArgument as AdmissionSettings::Parse().
  static StatusOr<std::shared_ptr<const AdmissionSettings>> Read(std::string_view lines);
  // InvalidArgument as Read(): then nothing has changed.
  Status Follow(std::string_view lines) ABSL_LOCKS_EXCLUDED(mutex_);
  const Snapshot<Rules>& rules() const { return rules_; }

  // Null: there is none.
  std::shared_ptr<ClassPool> Known(Number number) ABSL_LOCKS_EXCLUDED(mutex_);
  // The pool, which is made if there is none. `model`: for people.
  std::shared_ptr<ClassPool> Find(
      Workers workers, std::string_view model, const std::shared_ptr<const AdmissionSettings>& settings)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<ClassPool>> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool any_waiting() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Those of idle_only classes wait for idle workers, not for more.
  int64_t WaitingFor(std::string_view model) const override ABSL_LOCKS_EXCLUDED(mutex_);
  // Moves who waits for workers that are another pool's now, dispatches what has room, and notes why the others wait, `passed_ns` after the last call. One thread.
  void Tick(IoThread& thread, int64_t passed_ns) ABSL_LOCKS_EXCLUDED(mutex_);

  WholeResponses& whole() { return whole_; }
  const WholeResponses& whole() const { return whole_; }
  Evictables& evictables() { return evictables_; }
  // For how long a class had waiters and no worker with room, by reason.
  int64_t closed_ns(size_t of_class, ClosedBy reason) const {
    return closed_ns_[of_class][static_cast<size_t>(reason)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kKeptNs = 60'000'000'000;
  struct Kept {
    std::shared_ptr<ClassPool> pool;
    int64_t idle_ns = 0;  // how long it has been without waiters
  };

  void MoveStale(const std::shared_ptr<const FleetView>& whole) ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteClosed(const OpenWorkers& open, const ClassPool::Report& report, int64_t passed_ns);

  Snapshot<Rules> rules_;
  WholeResponses whole_;
  Evictables evictables_;
  std::array<std::array<std::atomic<int64_t>, OpenWorkers::kReasons>, kPriorityClasses> closed_ns_{};
  mutable Mutex mutex_;
  std::string lines_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Number, Kept> pools_ ABSL_GUARDED_BY(mutex_);
  // Of the tick.
  uint64_t seen_members_ = 0;
  std::shared_ptr<const void> seen_names_;  // of models
  absl::flat_hash_set<Number> current_;     // pools of the fleet that was seen last
  bool decides_ = false;                    // the workers of a request depended on its model there
};

// A thread's part of them. Used by that thread; any other may read the counters.
struct ThreadClasses {
  enum Rejection : uint8_t { kFull, kDisplaced, kTimeout };
  static constexpr size_t kRejections = 3;
  static constexpr std::array<std::string_view, kRejections> kRejectionNames = {
      "queue_full", "displaced", "queue_timeout"};

  explicit ThreadClasses(ClassPools& pools) : pools(pools), rules(&pools.rules()) {}

  // REQUIRES: there are classes, which `settings` are.
  // `whole`: the fleet of which `fleet` is the part that the request may have.
  const std::shared_ptr<ClassPool>& PoolOf(
      const FleetView& fleet, const FleetView& whole, const RequestedModel* model,
      const std::shared_ptr<const AdmissionSettings>& settings);

  ClassPools& pools;  // the server's
  Snapshot<ClassPools::Rules>::Cached rules;
  // By FleetView::pool() of a part, as long as the members are the same; 0: the whole fleet.
  absl::flat_hash_map<uint64_t, std::shared_ptr<ClassPool>> found;
  uint64_t found_members = 0;
  std::shared_ptr<ClassPool> found_last;  // of a part that has no number

  std::array<std::array<Counter, kDispatchKinds>, kPriorityClasses> dispatched;
  std::array<std::array<Counter, kRejections>, kPriorityClasses> rejected;
  std::array<WorkerWaitHistogram, kPriorityClasses> waits;  // of those that had to
  std::array<Counter, kPriorityClasses> evicted;
};

// An engine may compute for it: a POST for a model, or to a path that is not known here. Workers take other spellings of a
// path for the same ("/v1/%63ompletions"), and have more paths than these.
bool MayCompute(const Request& request);
// Of its prompt: those of its key, if they were `counted`, else a quarter of the bytes of its body. At least 1 of these.
uint64_t PromptTokensOf(const Request& request, bool counted);
// That of the request, by which it waits.
PriorityClass ClassOf(const Request& request);
// The classes that are in force on its thread. Null: there are none.
std::shared_ptr<const AdmissionSettings> ClassSettingsOf(const Request& request);
// What bounds all pools now. What it refers to outlives the call that gets it.
RoomLimits LimitsOf(const ClassPools& pools, const AdmissionSettings& settings, IoThread& thread);

}  // namespace vllm_router
