// Evictables: requests of lower classes that wait at their workers for a first token, and may be evicted there so that one of
// the highest class need not wait for their prompts.
//
//   Add()      its worker is chosen                             Remove()   its worker responds, or has it no more
//   EvictAt()  one of the highest class goes to the worker  ──▶ `evict` of one of them is called, and it is listed no more
//
// Which one: of those with more than 8,000 tokens of their prompt left, which were evicted fewer than twice, one of the lowest
// class; of these the one that was evicted the fewest times, then the one with the most tokens left, then the one that came
// last. How often: one per worker and second.
//
// What is left of a prompt is what its worker had to compute, less what it computes in the time since it was chosen, as if it
// computed nothing else. So rather more is left than less. A worker whose pace is not known counts as fast.
//
// Thread-safe. One leaf mutex; `evict` is called without it. While nothing is listed, EvictAt() costs a comparison.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "admission/admission_settings.h"
#include "admission/priority_class.h"
#include "base/mutex.h"
#include "worker/worker.h"

namespace vllm_router {

struct Evictable {
  PriorityClass of_class = PriorityClass::kBatch;
  uint32_t tokens = 0;     // of its prompt, that its worker had to compute
  int64_t chosen_ns = 0;   // when the worker was chosen
  uint32_t evictions = 0;  // so far
};

// At least, by the worker's pace; 0 or less: not known.
int64_t TokensLeft(const Evictable& request, double tokens_per_second, int64_t now_ns);

class Evictables {
 public:
  static constexpr int64_t kLeastTokens = 8'000;
  static constexpr uint32_t kMostEvictions = 2;
  static constexpr int64_t kPauseNs = 1'000'000'000;  // of a worker
  static constexpr double kFastPace = 30'000;         // tokens per second, of an engine of 2025

  using Number = uint64_t;

  // `evict`: called at most once, on the thread of EvictAt(); it may be called while Remove() runs.
  Number Add(WorkerId worker, const Evictable& request, std::function<void()> evict)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // No effect on one that is listed no more.
  void Remove(WorkerId worker, Number number) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of those whose classes the settings evict. False: none.
  bool EvictAt(WorkerId worker, const AdmissionSettings& settings, double tokens_per_second, int64_t now_ns)
      ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Listed {
    Number number;
    Evictable request;
    std::function<void()> evict;
  };
  using AtWorkers = absl::flat_hash_map<WorkerId, std::vector<Listed>>;

  void Erase(AtWorkers::iterator worker, std::vector<Listed>::iterator listed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<size_t> size_{0};
  Mutex mutex_;  // leaf
  AtWorkers at_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<WorkerId, int64_t> evicted_ns_
      ABSL_GUARDED_BY(mutex_);  // the last time, if that was lately
  Number last_number_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
