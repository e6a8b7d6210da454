// Slow start: a worker that recovers has empty caches and starts cold, so its share of the load grows
// over a window instead of jumping back.
//
//   share   10 % ----.-´´´´ 100 %
//              0        window        since it recovered
//
// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/limits.h"

namespace vllm_router {

// In thousandths of the worker's weight. With a window of 0 it is 1000 at once.
constexpr uint32_t SlowStartFactorAt(int64_t since_ns, int64_t window_ns) {
  if (window_ns <= 0 || since_ns >= window_ns) return kWeightOne;
  const int64_t grown = (kWeightOne - kSlowStartFirst) * std::max<int64_t>(0, since_ns) / window_ns;
  return kSlowStartFirst + static_cast<uint32_t>(grown);
}

}  // namespace vllm_router
