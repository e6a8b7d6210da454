// TenantLimits: what one tenant may use: requests at a time, and requests and tokens per minute. TenantMeter: what it has
// used of them. Neither knows the tenant's name.
//
//   meter.Begin(limits, now)                       a request: one more at a time, and one of those per minute
//   meter.TakeTokens(limits, 812, now)             its tokens as estimated, before it waits for a worker
//   meter.SettleTokens(limits, 812, 2'310, now)    what it has used instead
//   meter.End()
//
// A rate is a token bucket as one number (GCRA, as in routing/rate_limit.h): the time until which all that was taken
// lasts at an even pace.
//
//   now        due          now + burst
//    |----------|---------------|            remaining = now + burst - due, as amounts
//
// An amount passes if it ends within the burst; at least one does. A settled amount may end behind the burst: that is a
// debt, an hour at most, and nothing passes until it is paid. A bucket whose `due` has passed is full, and is the same as a
// new one. At another pace, as after a reload, the same amount was used, and `due` is reckoned anew. Times of amounts are
// rounded up to whole nanoseconds.
//
// Several routers may share a limit (fleet_limits.h). What each used and has not told the others is counted beside the
// buckets; what others told is charged at the time when it was used, and their requests at a time count as its own. A router
// that cannot hear the others has a part of each limit: an amount then lasts so many times as long.
//
// Thread-safe; atomics only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace vllm_router {

inline constexpr uint64_t kMaxTenantConcurrency = 1'000'000;
inline constexpr uint64_t kMaxTenantRequests = 60'000'000;     // per minute
inline constexpr uint64_t kMaxTenantTokens = 100'000'000'000;  // likewise
inline constexpr int64_t kMaxTenantBurstMs = 86'400'000;

struct TenantLimits {
  uint64_t concurrency = 0;  // requests at a time; 0: no limit, as in the rates
  uint64_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;  // of prompts and responses
  int64_t burst_ms = 10'000;       // how much of a rate may be used at once; > 0
  uint32_t parts = 1;              // of the rates only one of so many is this router's; > 0

  bool any() const { return concurrency != 0 || requests_per_minute != 0 || tokens_per_minute != 0; }
  bool operator==(const TenantLimits&) const = default;
};

// What one of `parts` routers has of the limits: of requests at a time one at least.
TenantLimits PartOf(const TenantLimits& limits, uint32_t parts);

// Of one bucket.
struct RatePace {
  uint64_t per_minute = 0;  // 0: no limit
  int64_t burst_ns = 0;
  uint32_t parts = 1;  // TenantLimits'

  bool limits() const { return per_minute != 0; }
  // What the amount takes, rounded up, and at most kMostNs. REQUIRES: limits().
  int64_t NanosOf(uint64_t amount) const;
  // That of the burst, and of one at least. REQUIRES: limits().
  int64_t capacity_ns() const { return std::max(burst_ns, NanosOf(1)); }
  // The whole amounts in it. REQUIRES: limits(), nanos >= 0.
  uint64_t AmountIn(int64_t nanos) const;

  static constexpr int64_t kMostNs = INT64_MAX / 8;
};
RatePace PaceOfRequests(const TenantLimits& limits);
RatePace PaceOfTokens(const TenantLimits& limits);

// For people and programs.
struct RateLevel {
  uint64_t limit = 0;  // at once, from a full bucket
  uint64_t remaining = 0;
  int64_t reset_ns = 0;  // until it is full

  bool operator==(const RateLevel&) const = default;
};
// What was taken and is not there again: how long that lasts at a pace.
struct RateUsed {
  int64_t nanos = 0;        // 0: the bucket is full
  uint64_t per_minute = 0;  // the pace; 0: nothing was ever taken

  // How long the same amount lasts at this pace. No debt becomes longer than an hour by it. REQUIRES: pace.limits().
  int64_t At(const RatePace& pace) const;
  bool operator==(const RateUsed&) const = default;
};
// REQUIRES: pace.limits().
RateLevel LevelOf(const RatePace& pace, const RateUsed& used);

class RateBucket {
 public:
  static constexpr int64_t kNever = INT64_MAX;
  static constexpr int64_t kMostDebtNs = 3'600'000'000'000;
  static constexpr int64_t kMostPeerDebtNs = 60'000'000'000;  // that a word of another router makes

  // 0: taken. kNever: it is more than the whole burst. An amount above a part of it waits for a full bucket. Else the time until it would pass if nothing else were taken.
  // The bucket has this pace from now on. REQUIRES: pace.limits().
  int64_t Take(const RatePace& pace, uint64_t amount, int64_t now_ns);
  // Puts `actual` in the place of what was taken. The bucket keeps the pace that it has. REQUIRES: pace.limits().
  void Settle(const RatePace& pace, uint64_t taken, uint64_t actual, int64_t now_ns);
  // Another router took it at `at_ns`, which may be past. REQUIRES: pace.limits(), at_ns <= now_ns.
  void Charge(const RatePace& pace, uint64_t amount, int64_t at_ns, int64_t now_ns);

  RateUsed Used(int64_t now_ns) const {
    const int64_t due = due_ns_.load(std::memory_order_relaxed);
    const uint64_t per_minute = per_minute_.load(std::memory_order_relaxed);
    return {.nanos = due <= now_ns ? 0 : due - now_ns, .per_minute = per_minute};
  }

 private:
  void Follow(const RatePace& pace, int64_t now_ns);

  std::atomic<int64_t> due_ns_{0};
  std::atomic<uint64_t> per_minute_{0};  // RateUsed's, of due_ns_
};

enum class TenantRejection : uint8_t { kRequests, kTokens, kConcurrency };
inline constexpr size_t kTenantRejections = 3;
// Those of the errors (proxy/api/error_response.h).
inline constexpr std::array<std::string_view, kTenantRejections> kTenantRejectionCodes = {
    "tenant_rate_limited", "tenant_tokens_limited", "tenant_concurrency"};

struct TenantRejected {
  TenantRejection reason;
  int64_t wait_ns = 0;  // RateBucket::kNever: no wait helps; 0: until another request ends

  bool operator==(const TenantRejected&) const = default;
};

class TenantMeter {
 public:
  // nullopt: it has begun. What is rejected has taken nothing.
  std::optional<TenantRejected> Begin(const TenantLimits& limits, int64_t now_ns);
  // It counts as none per minute any more. Of one that has begun, once.
  void ReturnRequest(const TenantLimits& limits, int64_t now_ns);
  // Of one that has begun.
  void End() { open_.fetch_sub(1, std::memory_order_relaxed); }
  // nullopt: taken, or there is no limit of tokens.
  std::optional<TenantRejected> TakeTokens(const TenantLimits& limits, uint64_t amount, int64_t now_ns);
  void SettleTokens(const TenantLimits& limits, uint64_t taken, uint64_t actual, int64_t now_ns);

  // What this router used of the rates and has not told. Less than nothing, since more was returned than used, waits for what
  // is used next, as long as the bucket is not full: no word of a router ever gives something back.
  struct Untold {
    uint64_t requests = 0;
    uint64_t tokens = 0;

    bool operator==(const Untold&) const = default;
  };
  Untold FindUntold(int64_t now_ns);
  // It is not told again.
  Untold TakeUntold();
  void DropUntold();
  // What another router used at `at_ns`.
  void ChargePeers(const TenantLimits& limits, const Untold& used, int64_t at_ns, int64_t now_ns);
  // Of all other routers together.
  void SetPeersOpen(uint64_t open) { peers_open_.store(open, std::memory_order_relaxed); }

  uint64_t open() const { return open_.load(std::memory_order_relaxed); }
  uint64_t peers_open() const { return peers_open_.load(std::memory_order_relaxed); }
  const RateBucket& requests() const { return requests_; }
  const RateBucket& tokens() const { return tokens_; }
  // Whether it is the same as a new one.
  bool IsUnused(int64_t now_ns) const {
    return open() == 0 && peers_open() == 0 && requests_.Used(now_ns).nanos == 0 &&
           tokens_.Used(now_ns).nanos == 0;
  }

 private:
  std::atomic<uint64_t> open_{0};
  std::atomic<uint64_t> peers_open_{0};
  RateBucket requests_;
  RateBucket tokens_;
  std::atomic<int64_t> untold_requests_{0};
  std::atomic<int64_t> untold_tokens_{0};
};

}  // namespace vllm_router
