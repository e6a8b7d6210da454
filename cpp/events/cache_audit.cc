#include "events/cache_audit.h"

#include <algorithm>

namespace vllm_router {

bool CacheAudit::Check(uint64_t known, uint64_t usable, uint64_t gaps, int64_t now_ns) {
  due_ns_ = now_ns + kPeriodNanos;
  if (gaps != gaps_) {
    gaps_ = gaps;
    is_settled_ = false;
    full_since_ns_.reset();
  }
  is_over_ = usable != 0 && known * 50 > usable * 51;
  is_settled_ = CoversCache(known, usable, now_ns);
  if (!is_over_ || (dropped_ns_ && now_ns - *dropped_ns_ < pause_ns_)) return false;
  const bool is_first = !dropped_ns_ || now_ns - *dropped_ns_ >= kForgetNanos;
  pause_ns_ = is_first ? kPeriodNanos : std::min(2 * pause_ns_, kMaxPauseNanos);
  dropped_ns_ = now_ns;
  return true;
}

bool CacheAudit::CoversCache(uint64_t known, uint64_t usable, int64_t now_ns) {
  if (is_settled_ && !is_over_ && usable != 0 && known * 10 >= usable * 9) return true;
  if (is_over_ || usable == 0 || known * 50 < usable * 49) {
    full_since_ns_.reset();
    return false;
  }
  if (!full_since_ns_) full_since_ns_ = now_ns;
  return now_ns - *full_since_ns_ >= kSettleNanos;
}

KvTrust CacheAudit::Limit(KvTrust trust, uint64_t gaps) const {
  if (is_over_ && IsComplete(trust)) return KvTrust::kPartial;
  return trust == KvTrust::kPartial && is_settled_ && gaps == gaps_ ? KvTrust::kSettled : trust;
}

}  // namespace vllm_router
