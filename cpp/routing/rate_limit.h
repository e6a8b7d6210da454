// RateLimit: a maximum number of requests per second, over all threads, besides a burst of one second's
// worth.
//
// The state is one number: the time at which all admitted requests would have started at evenly spaced
// intervals. A request passes while that is less than a second ahead:
//
//   due   |----|----|----|----X            4 passed at once; each moved `due` on by one interval
//         now                 due          the next passes as soon as due <= now + a second less one interval
//
// which is a token bucket without the bucket (the "generic cell rate algorithm" of ATM Forum TM 4.0,
// 1996). The interval is whole nanoseconds, rounded up: a rate of 700,000 becomes 699,790. Thread-safe;
// one division and one atomic exchange.
#pragma once

#include <atomic>
#include <cstdint>

namespace vllm_router {

class RateLimit {
 public:
  static constexpr uint32_t kMostPerSecond = 1'000'000;
  explicit RateLimit(uint32_t per_second) { SetRate(per_second); }

  // 0: no limit. What was admitted under another rate counts by that rate. REQUIRES: per_second <=
  // kMostPerSecond.
  void SetRate(uint32_t per_second);
  bool limits() const { return per_second_.load(std::memory_order_relaxed) != 0; }

  // 0: admitted. Otherwise the nanoseconds after which another attempt may succeed.
  int64_t Take(int64_t now_ns);

 private:
  std::atomic<uint32_t> per_second_{0};
  std::atomic<int64_t> due_ns_{INT64_MIN};
};

}  // namespace vllm_router
