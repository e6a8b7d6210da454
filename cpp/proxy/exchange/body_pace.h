// BodyPace: how fast a client sends its request body, in the time in which it is waited for (--client-min-body-rate).
//
//   waited for   |-- 1 s --|-- 1 s --|-- … --|       a step ends each second: did it bring the rate's bytes?
//                |------------ 30 s ---------|       a window, each thirty: did it, on average?
//
//   BodyPace pace(1024, 30'000);
//   pace.Arrived(bytes);                  when some came
//   pace.Waited(ns);                      how long that took, or has taken so far
//   pace.rate()                           kMoving; kSlow since a step brought too little; kTooSlow after such a window
//
// Only waiting for the client counts, not the time in which a worker or memory is waited for. Slow is no error yet; it means
// that this upload is the first to go when there is no room for others (slow_uploads.h). What a step must bring, not to be
// slow, doubles every five steps, or clients that send just above the rate could hold what others wait for as long as they
// like: at 1 KiB/s, an upload of 1 MiB/s is slow once it has been waited for for 50 s.
//
// Values in, values out; no clock. One thread. Cost: two additions per call.
#pragma once

#include <algorithm>
#include <cstdint>

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
  // Of waiting, until rate() may be another; 0: never.
  int64_t ms_to_next_step() const;

  static constexpr int kSteps = 30;  // of a window

 private:
  static constexpr int64_t kNanosPerMs = 1'000'000;
  static constexpr uint64_t kNanosPerSecond = 1'000'000'000;
  static constexpr int kDoublingSteps = 5;
  static constexpr int kMostDoublings = 24;  // no upload over a network brings so much
  // What the rate brings in so much time.
  uint64_t Least(int64_t nanos) const { return rate_ * static_cast<uint64_t>(nanos) / kNanosPerSecond; }

  // Of this step.
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
