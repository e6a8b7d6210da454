// DispatchRate: how much cost is dispatched per second, and from that when a rejected client may come again.
//
//   rate       sum of cost * exp(-age / 30 s) / 30 s, which is the mean of a steady stream
//   seconds    ceil(cost queued in front / rate), 1 to 60, and up to a quarter more at random, so that clients which are
//              rejected together do not come back together
//
// Unknown at first: then 1 s, as nothing says that the queue is slow. Pure; one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace vllm_router {

class DispatchRate {
 public:
  static constexpr double kMemoryNs = 30e9;
  static constexpr double kMostSeconds = 60;
  static constexpr double kMostJitter = 0.25;

  void Add(uint64_t cost, int64_t now_ns) {
    Decay(now_ns);
    sum_ += static_cast<double>(cost);
  }
  // One that was added a moment ago was not dispatched after all.
  void Remove(uint64_t cost, int64_t now_ns) {
    Decay(now_ns);
    sum_ = std::max(0.0, sum_ - static_cast<double>(cost));
  }
  // Cost per second; 0: unknown.
  double At(int64_t now_ns) const { return sum_ * Kept(now_ns) / (kMemoryNs / 1e9); }

 private:
  double Kept(int64_t now_ns) const {
    return std::exp(-static_cast<double>(std::max<int64_t>(0, now_ns - at_ns_)) / kMemoryNs);
  }
  void Decay(int64_t now_ns) {
    sum_ *= Kept(now_ns);
    at_ns_ = std::max(at_ns_, now_ns);
  }

  double sum_ = 0;
  int64_t at_ns_ = 0;
};

// Nanoseconds. `random`: 0 to 1.
inline int64_t RetryAfterNs(uint64_t cost_before, double rate, double random) {
  const double seconds =
      rate > 0
          ? std::clamp(std::ceil(static_cast<double>(cost_before) / rate), 1.0, DispatchRate::kMostSeconds)
          : 1.0;
  return static_cast<int64_t>(seconds * (1 + DispatchRate::kMostJitter * std::clamp(random, 0.0, 1.0)) * 1e9);
}

}  // namespace vllm_router
