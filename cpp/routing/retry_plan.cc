#include "routing/retry_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/limits.h"
#include "base/time_units.h"

namespace vllm_router {
bool IsRetryableStatus(int status) {
  return status == 408 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

std::optional<int64_t> ParseRetryAfter(std::string_view value) {
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return int64_t{seconds} * 1000;
}

std::optional<int64_t> RetryPlan::Next(const FailedAttempt& failed, int64_t now_ns, Random& random) {
  ++failures_;
  if (failed.how != AttemptFailure::kConnect && !failed.repeatable) return std::nullopt;
  if (failed.how == AttemptFailure::kStatus && !IsRetryableStatus(failed.status)) return std::nullopt;
  // The request has waited for minutes already; another worker would need as many again.
  if (failed.how == AttemptFailure::kFirstByteTimeout &&
      now_ns - failed.first_sent_ns > kRetryTimeoutWithinNs)
    return std::nullopt;
  if (options_->disabled) return std::nullopt;
  if (failures_ >= options_->max_attempts) {
    exhausted_ = options_->max_attempts > 1;
    return std::nullopt;
  }
  if (failed.how == AttemptFailure::kLost || failed.how == AttemptFailure::kBadResponse) {
    if (lost_left_ == 0) return std::nullopt;
    --lost_left_;
  }
  if (failed.untried_left && failed.how != AttemptFailure::kStatus && failures_ == 1) return 0;
  const int64_t pause = Backoff(random);
  if (failed.untried_left || !failed.retry_after_ms) return pause;
  if (*failed.retry_after_ms > kMaxRetryAfterMs) return std::nullopt;  // the client can wait as well as we
  return std::max(pause, *failed.retry_after_ms * kNanosPerMs);
}

int64_t RetryPlan::Backoff(Random& random) const {
  const double grown = static_cast<double>(options_->initial_backoff_ms) *
                       std::pow(options_->backoff_multiplier, static_cast<double>(failures_ - 1));
  const double most = static_cast<double>(options_->max_backoff_ms);
  constexpr uint64_t kSteps = uint64_t{1} << 32;
  const double drawn = static_cast<double>(random.Below(kSteps)) / static_cast<double>(kSteps);  // [0, 1)
  const double factor = 1 + options_->jitter_factor * (2 * drawn - 1);
  return static_cast<int64_t>(std::min(grown, most) * factor * static_cast<double>(kNanosPerMs));
}

}  // namespace vllm_router
