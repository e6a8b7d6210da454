#include "admission/tenant_limits.h"

#include "base/time_units.h"

namespace vllm_router {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kNanosPerMinute = 60 * static_cast<uint64_t>(kNanosPerSecond);

RatePace PaceOf(uint64_t per_minute, const TenantLimits& limits) {
  return {.per_minute = per_minute, .burst_ns = limits.burst_ms * kNanosPerMs, .parts = limits.parts};
}

// What the others have heard of it too much is paid once the bucket is full.
uint64_t FindIn(std::atomic<int64_t>* untold, const RateBucket& bucket, int64_t now_ns) {
  const int64_t amount = untold->load(std::memory_order_relaxed);
  if (amount >= 0) return static_cast<uint64_t>(amount);
  if (bucket.Used(now_ns).nanos == 0) untold->fetch_sub(amount, std::memory_order_relaxed);
  return 0;
}

uint64_t TakeFrom(std::atomic<int64_t>* untold) {
  const int64_t amount = untold->load(std::memory_order_relaxed);
  if (amount <= 0) return 0;
  untold->fetch_sub(amount, std::memory_order_relaxed);
  return static_cast<uint64_t>(amount);
}

}  // namespace

RatePace PaceOfRequests(const TenantLimits& limits) { return PaceOf(limits.requests_per_minute, limits); }
RatePace PaceOfTokens(const TenantLimits& limits) { return PaceOf(limits.tokens_per_minute, limits); }

TenantLimits PartOf(const TenantLimits& limits, uint32_t parts) {
  TenantLimits part = limits;
  part.parts = parts;
  if (limits.concurrency != 0) part.concurrency = std::max<uint64_t>(1, limits.concurrency / parts);
  return part;
}

int64_t RatePace::NanosOf(uint64_t amount) const {
  const Wide nanos = (Wide{amount} * kNanosPerMinute * parts + per_minute - 1) / per_minute;
  return nanos < Wide{static_cast<uint64_t>(kMostNs)} ? static_cast<int64_t>(nanos) : kMostNs;
}

uint64_t RatePace::AmountIn(int64_t nanos) const {
  return static_cast<uint64_t>(
      Wide{static_cast<uint64_t>(nanos)} * per_minute / (Wide{kNanosPerMinute} * parts));
}

int64_t RateUsed::At(const RatePace& pace) const {
  if (per_minute == 0 || per_minute == pace.per_minute) return nanos;
  const Wide same = Wide{static_cast<uint64_t>(nanos)} * per_minute / pace.per_minute;
  // A larger debt under a former burst stays.
  const int64_t most = std::max(nanos, pace.capacity_ns() + RateBucket::kMostDebtNs);
  return same < Wide{static_cast<uint64_t>(most)} ? static_cast<int64_t>(same) : most;
}

RateLevel LevelOf(const RatePace& pace, const RateUsed& used) {
  const int64_t capacity = pace.capacity_ns();
  const int64_t used_ns = used.At(pace);
  return {
      .limit = pace.AmountIn(capacity),
      .remaining = pace.AmountIn(std::max<int64_t>(0, capacity - used_ns)),
      .reset_ns = used_ns};
}

// Two paces may meet while requests of both are under way. Each thread that changes the pace reckons `due` anew by the
// change that it made, and the order of these does not matter; until all have done so an amount may pass or wait in error.
void RateBucket::Follow(const RatePace& pace, int64_t now_ns) {
  const uint64_t before = per_minute_.exchange(pace.per_minute, std::memory_order_relaxed);
  if (before == 0 || before == pace.per_minute) return;
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    if (due <= now_ns) return;
    const int64_t until = now_ns + RateUsed{.nanos = due - now_ns, .per_minute = before}.At(pace);
    if (due_ns_.compare_exchange_weak(due, until, std::memory_order_relaxed)) return;
  }
}

int64_t RateBucket::Take(const RatePace& pace, uint64_t amount, int64_t now_ns) {
  if (per_minute_.load(std::memory_order_relaxed) != pace.per_minute) Follow(pace, now_ns);
  const int64_t nanos = pace.NanosOf(amount);
  const int64_t capacity = pace.capacity_ns();
  if (nanos > capacity) {
    RatePace whole = pace;
    whole.parts = 1;
    if (whole.NanosOf(amount) > whole.capacity_ns()) return kNever;
  }
  const int64_t needed = std::min(nanos, capacity);
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t from = std::max(due, now_ns);
    const int64_t wait = from + needed - now_ns - capacity;
    if (wait > 0) return wait;
    if (due_ns_.compare_exchange_weak(due, from + nanos, std::memory_order_relaxed)) return 0;
  }
}

void RateBucket::Settle(const RatePace& pace, uint64_t taken, uint64_t actual, int64_t now_ns) {
  RatePace own = pace;
  if (const uint64_t per_minute = per_minute_.load(std::memory_order_relaxed)) own.per_minute = per_minute;
  const int64_t more = own.NanosOf(actual) - own.NanosOf(taken);
  if (more == 0) return;
  const int64_t most = now_ns + own.capacity_ns() + kMostDebtNs;
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    if (more < 0 && due <= now_ns) return;  // it is full
    const int64_t from = std::max(due, now_ns);
    // A larger debt under a former burst stays.
    const int64_t until = more < 0 ? from + more : std::max(from, std::min(from + more, most));
    if (due_ns_.compare_exchange_weak(due, until, std::memory_order_relaxed)) return;
  }
}

void RateBucket::Charge(const RatePace& pace, uint64_t amount, int64_t at_ns, int64_t now_ns) {
  if (per_minute_.load(std::memory_order_relaxed) != pace.per_minute) Follow(pace, now_ns);
  const int64_t most = now_ns + pace.capacity_ns() + kMostPeerDebtNs;
  int64_t due = due_ns_.load(std::memory_order_relaxed);
  for (;;) {
    const int64_t until = std::min(std::max(due, at_ns) + pace.NanosOf(amount), most);
    if (until <= due || due_ns_.compare_exchange_weak(due, until, std::memory_order_relaxed)) return;
  }
}

std::optional<TenantRejected> TenantMeter::Begin(const TenantLimits& limits, int64_t now_ns) {
  uint64_t open = open_.load(std::memory_order_relaxed);
  do {
    if (limits.concurrency != 0 && open + peers_open() >= limits.concurrency)
      return TenantRejected{.reason = TenantRejection::kConcurrency};
  } while (!open_.compare_exchange_weak(open, open + 1, std::memory_order_relaxed));
  const RatePace pace = PaceOfRequests(limits);
  const int64_t wait = pace.limits() ? requests_.Take(pace, 1, now_ns) : 0;
  if (wait == 0) {
    if (pace.limits()) untold_requests_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  End();
  return TenantRejected{.reason = TenantRejection::kRequests, .wait_ns = wait};
}

void TenantMeter::ReturnRequest(const TenantLimits& limits, int64_t now_ns) {
  const RatePace pace = PaceOfRequests(limits);
  if (!pace.limits()) return;
  requests_.Settle(pace, 1, 0, now_ns);
  untold_requests_.fetch_sub(1, std::memory_order_relaxed);
}

std::optional<TenantRejected> TenantMeter::TakeTokens(
    const TenantLimits& limits, uint64_t amount, int64_t now_ns) {
  const RatePace pace = PaceOfTokens(limits);
  if (!pace.limits()) return std::nullopt;
  const int64_t wait = tokens_.Take(pace, amount, now_ns);
  if (wait == 0) {
    untold_tokens_.fetch_add(static_cast<int64_t>(amount), std::memory_order_relaxed);
    return std::nullopt;
  }
  return TenantRejected{.reason = TenantRejection::kTokens, .wait_ns = wait};
}

void TenantMeter::SettleTokens(const TenantLimits& limits, uint64_t taken, uint64_t actual, int64_t now_ns) {
  const RatePace pace = PaceOfTokens(limits);
  if (!pace.limits()) return;
  tokens_.Settle(pace, taken, actual, now_ns);
  const uint64_t most = std::max(taken, kMaxTenantTokens);  // a worker may say anything
  untold_tokens_.fetch_add(
      static_cast<int64_t>(std::min(actual, most)) - static_cast<int64_t>(taken), std::memory_order_relaxed);
}

// ---- several routers

TenantMeter::Untold TenantMeter::FindUntold(int64_t now_ns) {
  return {
      .requests = FindIn(&untold_requests_, requests_, now_ns),
      .tokens = FindIn(&untold_tokens_, tokens_, now_ns)};
}

TenantMeter::Untold TenantMeter::TakeUntold() {
  return {.requests = TakeFrom(&untold_requests_), .tokens = TakeFrom(&untold_tokens_)};
}

void TenantMeter::DropUntold() {
  untold_requests_.store(0, std::memory_order_relaxed);
  untold_tokens_.store(0, std::memory_order_relaxed);
}

void TenantMeter::ChargePeers(const TenantLimits& limits, const Untold& used, int64_t at_ns, int64_t now_ns) {
  const RatePace requests = PaceOfRequests(limits);
  if (requests.limits() && used.requests != 0) requests_.Charge(requests, used.requests, at_ns, now_ns);
  const RatePace tokens = PaceOfTokens(limits);
  if (tokens.limits() && used.tokens != 0) tokens_.Charge(tokens, used.tokens, at_ns, now_ns);
}

}  // namespace vllm_router
