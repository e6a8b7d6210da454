#include "admission/tenant_limits.h"

#include "base/time_units.h"

namespace vllm_router {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kNanosPerMinute = 60 * static_cast<uint64_t>(kNanosPerSecond);

RatePace PaceOf(uint64_t per_minute, const TenantLimits& limits) {
  return {.per_minute = per_minute, .burst_ns = limits.burst_ms * kNanosPerMs};
}

}  // namespace

RatePace PaceOfRequests(const TenantLimits& limits) { return PaceOf(limits.requests_per_minute, limits); }
RatePace PaceOfTokens(const TenantLimits& limits) { return PaceOf(limits.tokens_per_minute, limits); }

int64_t RatePace::NanosOf(uint64_t amount) const {
  const Wide nanos = (Wide{amount} * kNanosPerMinute + per_minute - 1) / per_minute;
  return nanos < Wide{static_cast<uint64_t>(kMostNs)} ? static_cast<int64_t>(nanos) : kMostNs;
}

uint64_t RatePace::AmountIn(int64_t nanos) const {
  return static_cast<uint64_t>(Wide{static_cast<uint64_t>(nanos)} * per_minute / kNanosPerMinute);
}

RateLevel LevelOf(const RatePace& pace, int64_t used_ns) {
  const int64_t capacity = pace.capacity_ns();
  return {
      .limit = pace.AmountIn(capacity),
      .remaining = pace.AmountIn(std::max<int64_t>(0, capacity - used_ns)),
      .reset_ns = used_ns};
}

int64_t RateBucket::Take(const RatePace& pace, uint64_t amount, int64_t now_ns) {
  const int64_t nanos = pace.NanosOf(amount);
  const int64_t capacity = pace.capacity_ns();
  if (nanos > capacity) return kNever;
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t until = std::max(due, now_ns) + nanos;
    const int64_t wait = until - now_ns - capacity;
    if (wait > 0) return wait;
    if (due_ns_.compare_exchange_weak(due, until, std::memory_order_relaxed)) return 0;
  }
}

void RateBucket::Settle(const RatePace& pace, uint64_t taken, uint64_t actual, int64_t now_ns) {
  const int64_t more = pace.NanosOf(actual) - pace.NanosOf(taken);
  if (more == 0) return;
  const int64_t most = now_ns + pace.capacity_ns() + kMostDebtNs;
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    if (more < 0 && due <= now_ns) return;  // it is full
    const int64_t from = std::max(due, now_ns);
    // A larger debt under a former burst stays.
    const int64_t until = more < 0 ? from + more : std::max(from, std::min(from + more, most));
    if (due_ns_.compare_exchange_weak(due, until, std::memory_order_relaxed)) return;
  }
}

std::optional<TenantRejected> TenantMeter::Begin(const TenantLimits& limits, int64_t now_ns) {
  uint64_t open = open_.load(std::memory_order_relaxed);
  do {
    if (limits.concurrency != 0 && open >= limits.concurrency)
      return TenantRejected{.reason = TenantRejection::kConcurrency};
  } while (!open_.compare_exchange_weak(open, open + 1, std::memory_order_relaxed));
  const RatePace pace = PaceOfRequests(limits);
  const int64_t wait = pace.limits() ? requests_.Take(pace, 1, now_ns) : 0;
  if (wait == 0) return std::nullopt;
  End();
  return TenantRejected{.reason = TenantRejection::kRequests, .wait_ns = wait};
}

void TenantMeter::ReturnRequest(const TenantLimits& limits, int64_t now_ns) {
  const RatePace pace = PaceOfRequests(limits);
  if (pace.limits()) requests_.Settle(pace, 1, 0, now_ns);
}

std::optional<TenantRejected> TenantMeter::TakeTokens(
    const TenantLimits& limits, uint64_t amount, int64_t now_ns) {
  const RatePace pace = PaceOfTokens(limits);
  const int64_t wait = pace.limits() ? tokens_.Take(pace, amount, now_ns) : 0;
  if (wait == 0) return std::nullopt;
  return TenantRejected{.reason = TenantRejection::kTokens, .wait_ns = wait};
}

void TenantMeter::SettleTokens(const TenantLimits& limits, uint64_t taken, uint64_t actual, int64_t now_ns) {
  const RatePace pace = PaceOfTokens(limits);
  if (pace.limits()) tokens_.Settle(pace, taken, actual, now_ns);
}

}  // namespace vllm_router
