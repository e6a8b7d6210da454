#include "routing/rate_limit.h"

#include <algorithm>

#include "base/check.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

int64_t Interval(uint32_t per_second) {
  ROUTER_CHECK(
      per_second >= 1 && per_second <= RateLimit::kMostPerSecond, "a rate is 1 to 1,000,000 per second");
  return (kNanosPerSecond + per_second - 1) / per_second;
}

}  // namespace

RateLimit::RateLimit(uint32_t per_second)
    : interval_ns_(Interval(per_second)), ahead_ns_(interval_ns_ * (per_second - 1)) {}

int64_t RateLimit::Take(int64_t now_ns) {
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t from = std::max(due, now_ns);
    if (from - now_ns > ahead_ns_) return from - now_ns - ahead_ns_;
    if (due_ns_.compare_exchange_weak(due, from + interval_ns_, std::memory_order_relaxed)) return 0;
  }
}

}  // namespace vllm_router
