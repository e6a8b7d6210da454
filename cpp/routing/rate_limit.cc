#include "routing/rate_limit.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/time_units.h"

namespace vllm_router {

void RateLimit::SetRate(uint32_t per_second) {
  ROUTER_CHECK(per_second <= kMostPerSecond, "a rate is at most 1,000,000 per second");
  per_second_.store(per_second, std::memory_order_relaxed);
}

int64_t RateLimit::Take(int64_t now_ns) {
  const int64_t rate = per_second_.load(std::memory_order_relaxed);
  if (rate == 0) return 0;
  if (leases_.load(std::memory_order_relaxed)) {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    int64_t tokens = tokens_.load(std::memory_order_relaxed);
    while (tokens > -1) {
      if (tokens_.compare_exchange_weak(tokens, tokens - 1, std::memory_order_relaxed)) return 0;
    }
    return std::max<int64_t>(1, again_ns_.load(std::memory_order_relaxed));
  }
  const auto [interval_ns, ahead_ns] = PaceOf(rate, routers_.load(std::memory_order_relaxed));
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t from = std::max(due, now_ns);
    if (from - now_ns > ahead_ns) return from - now_ns - ahead_ns;
    if (due_ns_.compare_exchange_weak(due, from + interval_ns, std::memory_order_relaxed)) return 0;
  }
}

RateLimit::Pace RateLimit::PaceOf(int64_t rate, uint32_t routers) {
  const int64_t interval_ns = (kNanosPerSecond * routers + rate - 1) / rate;
  return {interval_ns, interval_ns * (std::max<int64_t>(1, rate / routers) - 1)};
}

int64_t RateLimit::Settle(uint32_t routers) {
  const int64_t rate = per_second_.load(std::memory_order_relaxed);
  wanted_lately_[next_] = wanted_.exchange(0, std::memory_order_relaxed);
  next_ = (next_ + 1) % kRemembered;
  const int64_t wanted = *std::ranges::max_element(wanted_lately_);
  // Half of a second's worth is at hand, in equal parts; the other half is in the bucket.
  const int64_t part = rate / 2 / std::max(1u, routers);
  const int64_t aim = std::clamp<int64_t>(wanted + (wanted + 4) / 5, part, std::max<int64_t>(rate, part));
  int64_t tokens = tokens_.load(std::memory_order_relaxed);
  while (tokens > aim) {
    if (tokens_.compare_exchange_weak(tokens, aim, std::memory_order_relaxed)) break;
  }
  asked_ = aim - tokens;
  return asked_;
}

void RateLimit::Lease(int64_t tokens, int64_t again_ns) {
  again_ns_.store(again_ns, std::memory_order_relaxed);
  // Anything may have written what Redis replied.
  const int64_t got = std::clamp<int64_t>(tokens, 0, std::max<int64_t>(0, std::exchange(asked_, 0)));
  tokens_.fetch_add(got, std::memory_order_relaxed);
  leases_.store(true, std::memory_order_relaxed);
}

void RateLimit::ShareOut(uint32_t routers, int64_t now_ns, double phase) {
  routers = std::max(1u, routers);
  routers_.store(routers, std::memory_order_relaxed);
  if (!leases_.load(std::memory_order_relaxed)) return;
  // The burst is spent already, as far as this router knows. Without a limit there is no pace that a later one has.
  const Pace pace = limits() ? PaceOf(per_second(), routers) : Pace{};
  const auto first_ns = static_cast<int64_t>(static_cast<double>(pace.interval_ns) * phase);
  due_ns_.store(now_ns + pace.ahead_ns + first_ns, std::memory_order_relaxed);
  tokens_.store(0, std::memory_order_relaxed);
  asked_ = 0;
  leases_.store(false, std::memory_order_relaxed);
}

}  // namespace vllm_router
