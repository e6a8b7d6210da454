#include "routing/rate_limit.h"

#include <algorithm>

#include "base/check.h"
#include "base/time_units.h"

namespace vllm_router {

void RateLimit::SetRate(uint32_t per_second) {
  ROUTER_CHECK(per_second <= kMostPerSecond, "a rate is at most 1,000,000 per second");
  per_second_.store(per_second, std::memory_order_relaxed);
}

int64_t RateLimit::Take(int64_t now_ns) {
  const int64_t per_second = per_second_.load(std::memory_order_relaxed);
  if (per_second == 0) return 0;
  const int64_t interval_ns = (kNanosPerSecond + per_second - 1) / per_second;
  const int64_t ahead_ns = interval_ns * (per_second - 1);  // how far `due` may be ahead
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t from = std::max(due, now_ns);
    if (from - now_ns > ahead_ns) return from - now_ns - ahead_ns;
    if (due_ns_.compare_exchange_weak(due, from + interval_ns, std::memory_order_relaxed)) return 0;
  }
}

}  // namespace vllm_router
