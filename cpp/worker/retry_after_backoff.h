// RetryAfterBackoff: the back-off that a worker requested by a Retry-After with its 429 or 503. While
// it lasts other workers are preferred. If there are none, the worker gets requests all the same, since
// a 429 may have been about one client only.
//
//   Begin(now, 5 s)                 End(now) == true, for one caller
//   |------------- active() ------|
//
// Thread-safe, without a lock: one time in an atomic. A caller that gets `true` publishes the fleet
// anew, so that choosing costs nothing while no worker is in back-off.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/limits.h"

namespace vllm_router {

class RetryAfterBackoff {
 public:
  // Backs off until `now_ns + for_ns`, at most kMaxRetryAfterBackoffNs, or until the present end if that
  // is later. True: no back-off was active.
  bool Begin(int64_t now_ns, int64_t for_ns) {
    const int64_t until = now_ns + std::min(for_ns, kMaxRetryAfterBackoffNs);
    int64_t before = until_ns_.load(std::memory_order_relaxed);
    while (before < until && !until_ns_.compare_exchange_weak(before, until, std::memory_order_relaxed)) {
    }
    return before == kNever;
  }

  // True until End() has returned true.
  bool active() const { return until_ns_.load(std::memory_order_relaxed) != kNever; }

  // By the clock alone.
  bool ActiveAt(int64_t now_ns) const { return now_ns < until_ns_.load(std::memory_order_relaxed); }

  // True: it has just ended.
  bool End(int64_t now_ns) {
    int64_t until = until_ns_.load(std::memory_order_relaxed);
    return until != kNever && now_ns >= until &&
           until_ns_.compare_exchange_strong(until, kNever, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kNever = 0;
  std::atomic<int64_t> until_ns_{kNever};
};

}  // namespace vllm_router
