// LoadBound: the maximum load of each worker if none may have more than f times its fair share
// (docs/reference/policies.md, "Room").
//
//   cap of w = ceil(f * (total + 1) * weight of w / total weight)        f 1.25, 4 equal, total 10: ceil(13.75 / 4) = 4
//
// The caps sum to more than the total, so while loads do not change at least one worker is below its
// cap. Integers in thousandths, no floating point: f up to 11 and weights up to 100 are exact for totals
// up to 10^10. A value; any thread.
#pragma once

#include <cstdint>

#include "base/limits.h"

namespace vllm_router {

class LoadBound {
 public:
  static constexpr uint32_t kMaxFactor = 11'000;  // thousandths
  static constexpr uint64_t kMaxTotal = 10'000'000'000;

  // REQUIRES: total <= kMaxTotal; total_weight > 0, in thousandths like the factor, which is
  // 1000..kMaxFactor.
  LoadBound(uint64_t total, uint64_t total_weight, uint32_t factor)
      : share_(factor * (total + 1)), weight_(total_weight * kWeightOne) {}

  int64_t Cap(uint32_t weight) const {
    return static_cast<int64_t>((share_ * weight + weight_ - 1) / weight_);
  }

 private:
  uint64_t share_;   // f * (total + 1)
  uint64_t weight_;  // total weight, as f in thousandths
};

}  // namespace vllm_router
