// CircuitBreaker: whether one worker gets requests, by the results of earlier ones. After enough
// consecutive failures it gets none; after a while one request at a time probes whether it serves again.
//
//            failure_threshold failures in a row, none older than window
//   CLOSED ----------------------------------------------------------------> OPEN <----------------.
//      ^                                                                       | open_ns have        | a failure
//      |  success_threshold successes in a row                                 | passed, or the      |
//      `--------------------------------------------- HALF-OPEN <--------------' worker is back -----'
//                                                     one request at a time
//
//   std::optional<BreakerPass> pass = breaker.TryPass(options);            // nullopt: not this worker
//   pass->Settle(options, BreakerResult::kFailure, now);                  // at the response's head, or without it
//
// A pass that is destroyed unsettled, as when the client left, records nothing and admits the next
// probe. A request that was sent before the state changed does not count in the new state. Responses
// that break off are counted separately, since the success of their heads would reset the count.
//
// A 5xx is no verdict yet, since the request may be to blame (outlier_detector.h). Its pass is held
// until that is known. A held probe stays the probe, since the worker more likely failed than not, but
// for at most open_ms.
//
// If no breaker of the fleet admits a request, one of them passes it all the same (panic mode,
// PassInPanic). A success then makes an open breaker half-open at once; a failure makes it the one
// opened last.
//
// Thread-safe. While no request fails, a pass and its success cost two relaxed loads; otherwise a short
// mutex. M. Nygard, "Release It!" (2007).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mutex.h"

namespace vllm_router {

struct BreakerOptions {
  bool disabled = false;  // it never opens
  uint32_t failure_threshold = 10;
  uint32_t success_threshold = 3;
  int64_t open_ms = 60'000;
  int64_t window_ms = 120'000;
};

enum class BreakerState : uint8_t { kClosed, kOpen, kHalfOpen };
inline constexpr int kBreakerStateCount = 3;
std::string_view BreakerStateName(BreakerState state);  // closed, open, half_open

enum class BreakerResult : uint8_t {
  kNeutral,
  kSuccess,
  kFailure,
  kServerError,  // not to be settled: the cause is not known yet
};

// The verdict on a worker by its response's status. None for 408 and 429, and for a 503 with
// Retry-After: the worker is busy. None for 501 and 505: the request wants something unsupported. Other
// 5xx: kServerError. Any other status shows that the worker serves.
BreakerResult VerdictOf(int status, bool has_retry_after);

struct BreakerChange {
  BreakerState from;
  BreakerState to;
};

class CircuitBreaker;

class BreakerPass {
 public:
  BreakerPass(BreakerPass&& other) noexcept
      : breaker_(std::exchange(other.breaker_, nullptr)), epoch_(other.epoch_), probe_(other.probe_) {}
  BreakerPass& operator=(BreakerPass&& other) noexcept;
  ~BreakerPass() { Return(); }

  bool probe() const { return probe_; }

  // Each at most once; the second only after the first and only if that was a success. Returns the state
  // change that it caused, if any. Without `may_open` a failure is counted, but a closed breaker stays
  // closed. REQUIRES: `verdict` is not kServerError.
  std::optional<BreakerChange> Settle(
      const BreakerOptions& options, BreakerResult verdict, int64_t now_ns, bool may_open = true);
  std::optional<BreakerChange> SettleEnd(
      const BreakerOptions& options, bool broke_off, int64_t now_ns, bool may_open = true);
  // It will be settled later.
  void Hold(int64_t now_ns);

 private:
  friend class CircuitBreaker;
  BreakerPass(CircuitBreaker* breaker, uint64_t epoch, bool probe)
      : breaker_(breaker), epoch_(epoch), probe_(probe) {}
  void Return();

  CircuitBreaker* breaker_;  // null: moved from
  uint64_t epoch_;           // the breaker's, when it gave this pass
  bool probe_;               // the one request of half-open, until settled
};

class CircuitBreaker {
 public:
  BreakerState state() const { return state_.load(std::memory_order_relaxed); }

  // nullopt: it is open, or half-open with a probe under way. Call ComeDue() first. The pass must not
  // outlive the breaker.
  std::optional<BreakerPass> TryPass(const BreakerOptions& options);
  // For a request that must go to this worker, since no other breaker admits it either.
  BreakerPass PassInPanic() { return BreakerPass(this, epoch_.load(std::memory_order_acquire), false); }
  // When it opened last; 0: never. The smallest of the fleet is the first to serve in panic mode.
  int64_t opened_ns() const { return opened_ns_.load(std::memory_order_relaxed); }
  // True if it has enough consecutive failures to open, but was not allowed to.
  bool IsHeldClosed(const BreakerOptions& options);
  // True if TryPass() would return a pass. For choosing; another thread may be faster.
  bool Admits() const {
    return state() == BreakerState::kClosed || (state() == BreakerState::kHalfOpen && !probing());
  }

  // OPEN -> HALF-OPEN, if it has been open for long enough. A probe that was held for as long is no
  // longer the probe.
  std::optional<BreakerChange> ComeDue(const BreakerOptions& options, int64_t now_ns);

  // The worker could not be reached at all; it passed a health check. The second after the first makes
  // an open breaker half-open at once: failures of a process that was not there do not count against one
  // that is.
  void NotReached() { out_of_reach_.store(true, std::memory_order_relaxed); }
  std::optional<BreakerChange> Reached();

 private:
  friend class BreakerPass;
  bool probing() const { return probing_.load(std::memory_order_relaxed); }

  std::optional<BreakerChange> Fail(
      std::deque<int64_t>* row, const BreakerOptions& options, int64_t now_ns, bool may_open)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  BreakerChange MoveTo(BreakerState state, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<BreakerState> state_{BreakerState::kClosed};
  std::atomic<bool> probing_{false};
  std::atomic<bool> out_of_reach_{false};
  std::atomic<uint64_t> epoch_{0};         // changes with the state
  std::atomic<bool> failing_{false};       // `failures_` is not empty
  std::atomic<bool> breaking_off_{false};  // `broken_off_` is not empty
  std::atomic<int64_t> opened_ns_{0};

  Mutex mutex_;  // leaf; held for all writes of what precedes, too
  // Times of consecutive failures while closed, oldest first; the second, of responses that broke off.
  std::deque<int64_t> failures_ ABSL_GUARDED_BY(mutex_);
  std::deque<int64_t> broken_off_ ABSL_GUARDED_BY(mutex_);
  uint32_t successes_ ABSL_GUARDED_BY(mutex_) = 0;            // consecutive; while half-open
  int64_t held_since_ns_ ABSL_GUARDED_BY(mutex_) = kNotHeld;  // of the current probe
  static constexpr int64_t kNotHeld = -1;
};

}  // namespace vllm_router
