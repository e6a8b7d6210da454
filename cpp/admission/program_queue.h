// ProgramQueue: the programs of a server (program_table.h), for all threads.
//
//   request    Begin()            its program is active, or it waits and is told once, on any thread, when it is
//   meanwhile  Pump()             by those that wait, a few times a second: room appears in other ways than by ends
//   wait over  Leave(), Force()   false: it was told already, or will be
//   worker     Bind()             where it is under way in fact
//   end        End()
//   control    FollowFleet()      once a second
//
// Thread-safe. One leaf mutex; turns are told without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include <absl/container/flat_hash_map.h>

#include "admission/program_settings.h"
#include "admission/program_table.h"
#include "base/mutex.h"

namespace vllm_router {

class ProgramQueue {
 public:
  using Worker = ProgramTable::Worker;
  using Workers = ProgramTable::Workers;
  using Began = ProgramTable::Began;

  struct Turn : ProgramTable::Turn {
    // Called once without a lock if it waited, on the thread that caused it; the turn may be gone as soon as it returns.
    void (*tell)(Turn* turn) = nullptr;
  };

  // > 0.
  explicit ProgramQueue(size_t max_programs) : table_(max_programs) {}

  // With the mode off those that wait go on.
  void Follow(const ProgramSettings& settings, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);

  Began Begin(Turn* turn, Workers workers, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  void Bind(Turn* turn, WorkerId worker) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(
      Turn* turn, const std::optional<ProgramTable::Use>& use, bool final, Workers workers, int64_t now_ns)
      ABSL_LOCKS_EXCLUDED(mutex_);
  bool Leave(Turn* turn, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Force(Turn* turn, Workers workers, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  // At most once in kPumpNs for each pool, however many ask.
  void Pump(uint64_t pool, Workers workers, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  void FollowFleet(Workers all, int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasRoom(const Turn& turn, const Worker& worker) const ABSL_LOCKS_EXCLUDED(mutex_);

  bool any_waiting() const { return any_waiting_.load(std::memory_order_acquire); }
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);  // programs
  ProgramTable::Report Read() const ABSL_LOCKS_EXCLUDED(mutex_);

  static constexpr int64_t kPumpNs = 100'000'000;

 private:
  static constexpr size_t kMostPumped = 1024;  // pools that are remembered

  template <typename Change>
  auto Do(Change change) ABSL_LOCKS_EXCLUDED(mutex_);

  mutable Mutex mutex_;  // leaf
  ProgramTable table_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, int64_t> pumped_ns_ ABSL_GUARDED_BY(mutex_);  // by pool
  std::atomic<bool> any_waiting_{false};                                      // written with the mutex
};

}  // namespace vllm_router
