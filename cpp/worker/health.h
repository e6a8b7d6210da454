// HealthTracker: turns single observations into a verdict that does not flap.
//
//   healthy --failure_threshold failures in a row--> unhealthy --success_threshold successes in a row--> healthy
//
// Pure; one thread. A worker starts healthy, as in the reference.
#pragma once

#include <cstdint>

namespace vllm_router {

class HealthTracker {
 public:
  HealthTracker(uint32_t failure_threshold, uint32_t success_threshold)
      : failure_threshold_(failure_threshold), success_threshold_(success_threshold) {}

  // Returns true when this observation changed the verdict.
  bool Observe(bool success) {
    if (success == healthy_) {
      against_ = 0;
      return false;
    }
    if (++against_ < (healthy_ ? failure_threshold_ : success_threshold_)) return false;
    healthy_ = success;
    against_ = 0;
    return true;
  }
  bool healthy() const { return healthy_; }

 private:
  uint32_t failure_threshold_;
  uint32_t success_threshold_;
  uint32_t against_ = 0;  // observations in a row that contradict the verdict
  bool healthy_ = true;
};

}  // namespace vllm_router
