// HitRate: the part of lookups of the last five minutes that found something, in steps of ten seconds.
//
//   lookups    ... | 120 of 200 | 90 of 100 | 3 of 4 | now          30 steps; an older one makes room for the next
//
// Time is passed in. Thread-safe: a leaf lock.
#pragma once

#include <array>
#include <cstdint>

#include "base/mutex.h"

namespace vllm_router {

class HitRate {
 public:
  static constexpr int64_t kStepNs = 10'000'000'000;
  static constexpr int64_t kSteps = 30;

  void Count(bool hit, int64_t now_ns);
  // From 0 to 1; 0 without a lookup.
  double Of(int64_t now_ns) const;

 private:
  struct Step {
    int64_t number = -1;  // since the clock's beginning
    uint64_t hits = 0;
    uint64_t lookups = 0;
  };

  mutable Mutex mutex_;
  std::array<Step, kSteps> steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
