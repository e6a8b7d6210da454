// Backoff: whether to call a host again after failures. Each failure in a row doubles the pause, from 1
// s to 60 s. The pause is 60 s at once if the endpoint does not exist; by then another program may run
// there. A good response ends the back-off.
//
//   rest.Failed(now);  rest.over(now + 0.5 s)   ->   false
//                      rest.over(now + 1 s)     ->   true
//
// For our own calls, on which no client's request depends. The caller passes the time. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vllm_router {

class Backoff {
 public:
  static constexpr int64_t kFirstNanos = 1'000'000'000;
  static constexpr int64_t kLongestNanos = 60'000'000'000;

  bool over(int64_t now) const { return now >= until_; }
  void Worked() {
    until_ = INT64_MIN;
    pause_ = kFirstNanos;
  }
  void Failed(int64_t now) {
    if (!over(now)) return;  // concurrent with another failed call: one failure
    until_ = now + pause_;
    pause_ = std::min(pause_ * 2, kLongestNanos);
  }
  void Unknown(int64_t now) { until_ = now + kLongestNanos; }

 private:
  int64_t until_ = INT64_MIN;
  int64_t pause_ = kFirstNanos;
};

}  // namespace vllm_router
