// Whether a worker is to be passed over for its load as it told it when it was polled: its queue, or the use of its
// KV cache. With hysteresis, so that sessions do not move to and fro around a limit: it is overloaded above the
// limit, and no longer at four fifths of it.
//
//   waiting   12    26    31    33    30    27    26    25        limit 32
//   result    -     -     -     over  over  over  over  -         back at 25
//
// What is not known is no reason. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace vllm_router {

struct OverloadLimits {
  uint32_t waiting = 0;  // requests; 0: none
  double kv_use = 0;     // 0..1; 0: none
};

inline constexpr double kOverloadBack = 0.8;

// `was`: the result before.
inline bool IsOverloaded(
    const OverloadLimits& limits, int64_t waiting, std::optional<double> kv_use, bool was) {
  const double share = was ? kOverloadBack : 1;
  const auto is_above = [share](double value, double limit) { return limit > 0 && value > limit * share; };
  return is_above(static_cast<double>(waiting), limits.waiting) ||
         (kv_use && is_above(*kv_use, limits.kv_use));
}

}  // namespace vllm_router
