// Warmth: a worker that comes back from the dead has empty caches and a cold start before it, so its share of the
// load grows over a while instead of jumping back.
//
//   share   10 % ----.-´´´´ 100 %
//              0        window        since it came back
//
// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/limits.h"

namespace vllm_router {

// In thousandths of the worker's weight. A window of 0: all of it at once.
constexpr uint32_t SlowStartFactorAt(int64_t since_ns, int64_t window_ns) {
  if (window_ns <= 0 || since_ns >= window_ns) return kWeightOne;
  const int64_t grown = (kWeightOne - kSlowStartFirst) * std::max<int64_t>(0, since_ns) / window_ns;
  return kSlowStartFirst + static_cast<uint32_t>(grown);
}

}  // namespace vllm_router
