// BodyPace: how fast a client sends its request body while the router waits for it
// (--client-min-body-rate).
//
//   waiting      |-- 1 s --|-- 1 s --|-- … --|       a step ends each second: did it bring the rate's bytes?
//                |------------ 30 s ---------|       a window, each thirty: did it, on average?
//
//   BodyPace pace(1024, 30'000);
//   pace.Arrived(bytes);                  when some came
//   pace.Waited(ns);                      how long that took, or has taken so far
//   pace.rate()                           kMoving; kSlow since a slow step; kTooSlow after a slow window
//
// Only time spent waiting for the client counts, not for a worker or for memory. Slow is no error yet:
// such an upload is the first to be cut if others have no room (slow_uploads.h). The minimum of a step
// doubles every five steps. Otherwise clients just above the rate could hold what others wait for as
// long as they like. At 1 KiB/s, an upload of 1 MiB/s is slow after 50 s of waiting.
//
// Values in, values out; no clock. One thread. Cost: two additions per call.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time_units.h"

namespace vllm_router {

class BodyPace {
 public:
  enum class Rate : uint8_t { kMoving, kSlow, kTooSlow };

  // `bytes_per_second` 0: everything moves. REQUIRES: at most 2^27.
  BodyPace(uint64_t bytes_per_second, int64_t window_ms)
      : rate_(bytes_per_second), step_ns_(window_ms * kNanosPerMs / kSteps) {}

  void Arrived(uint64_t bytes) {
    step_bytes_ += bytes;
    if (state_ == Rate::kSlow && step_bytes_ >= StepLeast()) state_ = Rate::kMoving;
  }
  void Waited(int64_t nanos);
  Rate rate() const { return state_; }
  // Milliseconds of waiting until rate() may change; 0: never.
  int64_t ms_to_next_step() const;

  static constexpr int kSteps = 30;  // per window

 private:
  static constexpr int kDoublingSteps = 5;
  static constexpr int kMostDoublings = 24;  // no upload over a network is so fast
  // The bytes that the rate brings in so much time.
  uint64_t Least(int64_t nanos) const {
    return rate_ * static_cast<uint64_t>(nanos) / uint64_t{kNanosPerSecond};
  }

  // The minimum of this step.
  uint64_t StepLeast() const {
    return Least(step_ns_) << std::min(all_steps_ / kDoublingSteps, kMostDoublings);
  }

  uint64_t rate_;
  int64_t step_ns_;
  int64_t waited_ns_ = 0;  // in this step
  uint64_t step_bytes_ = 0;
  uint64_t window_bytes_ = 0;  // in the window's steps before this one
  int steps_ = 0;              // of this window
  int all_steps_ = 0;          // up to where the doubling ends
  Rate state_ = Rate::kMoving;
};

}  // namespace vllm_router
