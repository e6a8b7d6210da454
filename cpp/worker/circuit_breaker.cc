#include "worker/circuit_breaker.h"

#include <algorithm>
#include <array>

#include "base/time_units.h"

namespace vllm_router {
std::string_view BreakerStateName(BreakerState state) {
  constexpr std::array<std::string_view, kBreakerStateCount> kNames = {"closed", "open", "half_open"};
  return kNames[static_cast<size_t>(state)];
}

BreakerResult VerdictOf(int status, bool has_retry_after) {
  if (status == 408 || status == 429 || (status == 503 && has_retry_after)) return BreakerResult::kNeutral;
  if (status == 501 || status == 505) return BreakerResult::kNeutral;
  return status >= 500 ? BreakerResult::kServerError : BreakerResult::kSuccess;
}

BreakerPass& BreakerPass::operator=(BreakerPass&& other) noexcept {
  if (this == &other) return *this;
  Return();
  breaker_ = std::exchange(other.breaker_, nullptr);
  epoch_ = other.epoch_;
  probe_ = other.probe_;
  return *this;
}

void BreakerPass::Return() {
  if (breaker_ == nullptr || !probe_) return;
  MutexLock lock(breaker_->mutex_);
  if (breaker_->epoch_.load(std::memory_order_relaxed) == epoch_) {
    breaker_->probing_.store(false, std::memory_order_relaxed);
    breaker_->held_since_ns_ = CircuitBreaker::kNotHeld;
  }
  probe_ = false;
}

std::optional<BreakerChange> BreakerPass::Settle(
    const BreakerOptions& options, BreakerResult verdict, int64_t now_ns, bool may_open) {
  CircuitBreaker& breaker = *breaker_;
  if (verdict == BreakerResult::kSuccess) breaker.out_of_reach_.store(false, std::memory_order_relaxed);
  const bool nothing_to_say =
      verdict == BreakerResult::kNeutral ||
      (verdict == BreakerResult::kSuccess && breaker.state() == BreakerState::kClosed &&
       !breaker.failing_.load(std::memory_order_relaxed));
  if (nothing_to_say) {
    Return();
    return std::nullopt;
  }
  MutexLock lock(breaker.mutex_);
  if (breaker.epoch_.load(std::memory_order_relaxed) != epoch_) return std::nullopt;
  if (std::exchange(probe_, false)) {
    breaker.probing_.store(false, std::memory_order_relaxed);
    breaker.held_since_ns_ = CircuitBreaker::kNotHeld;
  }
  if (verdict == BreakerResult::kFailure) {
    return breaker.Fail(&breaker.failures_, options, now_ns, may_open);
  }
  if (breaker.state() == BreakerState::kOpen) {  // served in panic mode
    return breaker.MoveTo(BreakerState::kHalfOpen, now_ns);
  }
  if (breaker.state() == BreakerState::kHalfOpen) {
    if (++breaker.successes_ < options.success_threshold) return std::nullopt;
    return breaker.MoveTo(BreakerState::kClosed, now_ns);
  }
  breaker.failures_.clear();
  breaker.failing_.store(false, std::memory_order_relaxed);
  return std::nullopt;
}

std::optional<BreakerChange> BreakerPass::SettleEnd(
    const BreakerOptions& options, bool broke_off, int64_t now_ns, bool may_open) {
  CircuitBreaker& breaker = *breaker_;
  if (!broke_off && !breaker.breaking_off_.load(std::memory_order_relaxed)) return std::nullopt;
  MutexLock lock(breaker.mutex_);
  if (breaker.epoch_.load(std::memory_order_relaxed) != epoch_) return std::nullopt;
  if (broke_off) return breaker.Fail(&breaker.broken_off_, options, now_ns, may_open);
  breaker.broken_off_.clear();
  breaker.breaking_off_.store(false, std::memory_order_relaxed);
  return std::nullopt;
}

void BreakerPass::Hold(int64_t now_ns) {
  if (!probe_) return;
  MutexLock lock(breaker_->mutex_);
  if (breaker_->epoch_.load(std::memory_order_relaxed) == epoch_) breaker_->held_since_ns_ = now_ns;
}

std::optional<BreakerPass> CircuitBreaker::TryPass(const BreakerOptions& options) {
  // The epoch is read first: a pass with an epoch older than its state is void, which is harmless.
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  if (state() == BreakerState::kClosed || options.disabled) return BreakerPass(this, epoch, false);
  MutexLock lock(mutex_);
  const uint64_t now = epoch_.load(std::memory_order_relaxed);
  if (state() == BreakerState::kClosed) return BreakerPass(this, now, false);
  if (state() == BreakerState::kOpen || probing()) return std::nullopt;
  probing_.store(true, std::memory_order_relaxed);
  return BreakerPass(this, now, true);
}

std::optional<BreakerChange> CircuitBreaker::ComeDue(const BreakerOptions& options, int64_t now_ns) {
  if (state() == BreakerState::kClosed) return std::nullopt;
  MutexLock lock(mutex_);
  const int64_t open_ns = options.open_ms * kNanosPerMs;
  if (state() == BreakerState::kOpen && now_ns - opened_ns() >= open_ns) {
    return MoveTo(BreakerState::kHalfOpen, now_ns);
  }
  if (held_since_ns_ != kNotHeld && now_ns - held_since_ns_ >= open_ns) {
    held_since_ns_ = kNotHeld;
    probing_.store(false, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);  // so that its pass is void
  }
  return std::nullopt;
}

bool CircuitBreaker::IsHeldClosed(const BreakerOptions& options) {
  MutexLock lock(mutex_);
  return state() == BreakerState::kClosed &&
         std::max(failures_.size(), broken_off_.size()) >= options.failure_threshold;
}

std::optional<BreakerChange> CircuitBreaker::Reached() {
  if (!out_of_reach_.exchange(false, std::memory_order_relaxed)) return std::nullopt;
  MutexLock lock(mutex_);
  if (state() != BreakerState::kOpen) return std::nullopt;
  return MoveTo(BreakerState::kHalfOpen, opened_ns());
}

std::optional<BreakerChange> CircuitBreaker::Fail(
    std::deque<int64_t>* row, const BreakerOptions& options, int64_t now_ns, bool may_open) {
  if (state() == BreakerState::kHalfOpen) return MoveTo(BreakerState::kOpen, now_ns);
  if (state() == BreakerState::kOpen) opened_ns_.store(now_ns, std::memory_order_relaxed);
  if (options.disabled || state() != BreakerState::kClosed) return std::nullopt;
  row->push_back(now_ns);
  while (now_ns - row->front() > options.window_ms * kNanosPerMs || row->size() > options.failure_threshold) {
    row->pop_front();
  }
  if (row->size() >= options.failure_threshold && may_open) return MoveTo(BreakerState::kOpen, now_ns);
  failing_.store(!failures_.empty(), std::memory_order_relaxed);
  breaking_off_.store(!broken_off_.empty(), std::memory_order_relaxed);
  return std::nullopt;
}

BreakerChange CircuitBreaker::MoveTo(BreakerState state, int64_t now_ns) {
  const BreakerChange change{this->state(), state};
  failures_.clear();
  broken_off_.clear();
  failing_.store(false, std::memory_order_relaxed);
  breaking_off_.store(false, std::memory_order_relaxed);
  successes_ = 0;
  probing_.store(false, std::memory_order_relaxed);
  held_since_ns_ = kNotHeld;
  if (state == BreakerState::kOpen) opened_ns_.store(now_ns, std::memory_order_relaxed);
  state_.store(state, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  return change;
}

}  // namespace vllm_router
