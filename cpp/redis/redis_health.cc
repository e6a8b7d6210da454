#include "redis/redis_health.h"

#include <algorithm>

namespace vllm_router {

void RedisHealth::Opened(int64_t now_ns) {
  if (state_ == State::kConnecting) GoUp(now_ns);
}

void RedisHealth::Worked() { failed_ = 0; }

void RedisHealth::Failed(int64_t now_ns) {
  if (state_ == State::kConnecting) return GoDown(now_ns);
  if (state_ != State::kUp || ++failed_ < failures_) return;
  if (now_ns - up_since_ns_ >= kSteadyNanos) delay_ns_ = kFirstDelayNanos;
  GoDown(now_ns);
}

bool RedisHealth::BeginProbe(int64_t now_ns) {
  if (state_ != State::kDown || now_ns < next_probe_ns_) return false;
  state_ = State::kProbing;
  return true;
}

void RedisHealth::EndProbe(bool worked, int64_t now_ns) {
  if (state_ != State::kProbing) return;
  if (worked) return GoUp(now_ns);
  GoDown(now_ns);
}

void RedisHealth::GoUp(int64_t now_ns) {
  state_ = State::kUp;
  failed_ = 0;
  up_since_ns_ = now_ns;
}

void RedisHealth::GoDown(int64_t now_ns) {
  state_ = State::kDown;
  next_probe_ns_ = now_ns + delay_ns_;
  delay_ns_ = std::min(2 * delay_ns_, longest_delay_ns_);
}

}  // namespace vllm_router
