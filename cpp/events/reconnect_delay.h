// ReconnectDelay: how long to wait before a stream is opened again.
//
//   first 1 s      1  2  4  8  16  32  60  60 …  s, each times a share of 0.5 to 1 that the caller draws
//   rejected       60 s at once: what is there is not, or not for us, what was configured
//   connection that lasted 60 s       as if it were the first again
//
// Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time_units.h"

namespace vllm_router {

class ReconnectDelay {
 public:
  static constexpr int64_t kLongestNanos = 60 * kNanosPerSecond;
  static constexpr int64_t kGoodNanos = 60 * kNanosPerSecond;

  explicit ReconnectDelay(int64_t first_ns) : first_ns_(first_ns) {}

  // The server's wish (`retry:`), within 1 s and 60 s.
  void SetFirst(int64_t first_ns) { first_ns_ = std::clamp(first_ns, kNanosPerSecond, kLongestNanos); }

  // After a connection that was good for `good_ns`; 0: it never was. `share` in [0, 1).
  int64_t Next(int64_t good_ns, bool rejected, double share) {
    if (good_ns >= kGoodNanos) doublings_ = 0;
    int64_t delay = kLongestNanos;
    if (!rejected) {
      delay = first_ns_;
      for (int i = 0; i < doublings_ && delay < kLongestNanos; ++i) delay *= 2;
      delay = std::min(delay, kLongestNanos);
      if (delay < kLongestNanos) ++doublings_;
    }
    return delay / 2 + static_cast<int64_t>(share * static_cast<double>(delay / 2));
  }

 private:
  int64_t first_ns_;
  int doublings_ = 0;
};

}  // namespace vllm_router
