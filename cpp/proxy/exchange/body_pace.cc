#include "proxy/exchange/body_pace.h"

namespace vllm_router {

void BodyPace::Waited(int64_t nanos) {
  if (rate_ == 0 || state_ == Rate::kTooSlow) return;
  waited_ns_ += nanos;
  while (waited_ns_ >= step_ns_) {
    waited_ns_ -= step_ns_;
    state_ = step_bytes_ < StepLeast() ? Rate::kSlow : Rate::kMoving;
    all_steps_ = std::min(all_steps_ + 1, kDoublingSteps * kMostDoublings);
    window_bytes_ += step_bytes_;
    step_bytes_ = 0;
    if (++steps_ < kSteps) continue;
    if (window_bytes_ < Least(step_ns_ * kSteps)) {
      state_ = Rate::kTooSlow;
      return;
    }
    steps_ = 0;
    window_bytes_ = 0;
  }
}

int64_t BodyPace::ms_to_next_step() const {
  if (rate_ == 0) return 0;
  return std::max<int64_t>(1, (step_ns_ - waited_ns_ + kNanosPerMs - 1) / kNanosPerMs);
}

}  // namespace vllm_router
