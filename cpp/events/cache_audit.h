// CacheAudit: the blocks that one source's events say are in its GPU cache, compared with those that the
// cache can hold.
//
//   known / usable    above 102 %              removals were lost: all is dropped and asked for again
//                     98 % and more for 60 s   a partial source is settled: hardly any other block fits in
//                     below 90 %               no longer
//
// The two bounds of settled differ because blocks that are being filled have no name yet: under load a cache
// that is known well falls below 98 % and returns, and nothing is lost by it. Below 90 % the capacity may be
// that of another engine. A lost batch ends it at once, and 60 s begin anew: blocks of it are missing or were
// removed, and it takes turnover to be right again. So at most some 4 % of what a settled source claims are
// wrong: 2 % that are unknown, and what the audit tolerates beyond the cache.
//
// Distinct blocks count, not copies. A check every 10 s, between batches: within one, stores come before
// removals. If dropping all does not help, the next attempts follow after 10 s, doubling to 300 s, and ten
// minutes without one begin with 10 s again; while too many blocks are known, the source is partial.
//
// Cost: none between checks. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "index/kv_trust.h"

namespace vllm_router {

class CacheAudit {
 public:
  static constexpr int64_t kPeriodNanos = 10'000'000'000;
  static constexpr int64_t kSettleNanos = 60'000'000'000;
  static constexpr int64_t kMaxPauseNanos = 300'000'000'000;
  static constexpr int64_t kForgetNanos = 2 * kMaxPauseNanos;

  bool IsDue(int64_t now_ns) const { return now_ns >= due_ns_; }
  // `usable`: 0 if unknown. `gaps`: another number once more batches may be missing. True: all that is known
  // is to be dropped.
  bool Check(uint64_t known, uint64_t usable, uint64_t gaps, int64_t now_ns);

  // What remains of the trust that the sequence of batches deserves.
  KvTrust Limit(KvTrust trust, uint64_t gaps) const;

 private:
  bool CoversCache(uint64_t known, uint64_t usable, int64_t now_ns);

  int64_t due_ns_ = 0;
  bool is_over_ = false;
  bool is_settled_ = false;
  uint64_t gaps_ = 0;  // at the last check
  std::optional<int64_t> full_since_ns_;
  std::optional<int64_t> dropped_ns_;  // last
  int64_t pause_ns_ = 0;               // after it
};

}  // namespace vllm_router
