// RedisHealth: whether Redis may be used, and when to look again while it may not.
//
//                first connection            failures in a row
//   CONNECTING ─────────────────────▶ UP ──────────────────────▶ DOWN ◀─ failed ─┐
//        │                            ▲                           │ due          │
//        │ failed                     └────────── worked ────── PROBING ─────────┘
//        └──────────────────────────────────────────────────────▶ DOWN
//
// A probe is due 1 s after Redis went down; each that fails is followed by another after 2, 4, 8, 16 s and
// then 30 s, or never later than the longest delay. A Redis that fails again within a minute goes on where it was. What connections report while it
// is down is of the past and has no effect. Time is passed in. One thread at a time.
#pragma once

#include <cstdint>

namespace vllm_router {

class RedisHealth {
 public:
  static constexpr int64_t kFirstDelayNanos = 1'000'000'000;
  static constexpr int64_t kLongestDelayNanos = 30'000'000'000;
  static constexpr int64_t kSteadyNanos = 60'000'000'000;

  enum class State : uint8_t { kConnecting, kUp, kDown, kProbing };

  // So many failures in a row end UP; at least 1. `longest_delay_ns`: at least kFirstDelayNanos.
  explicit RedisHealth(uint32_t failures, int64_t longest_delay_ns = kLongestDelayNanos)
      : failures_(failures), longest_delay_ns_(longest_delay_ns) {}

  State state() const { return state_; }
  bool may_be_used() const { return state_ == State::kConnecting || state_ == State::kUp; }

  void Opened(int64_t now_ns);  // a connection
  void Worked();                // a command
  void Failed(int64_t now_ns);  // a command, or an attempt to connect

  // True: a probe is due, and begins.
  bool BeginProbe(int64_t now_ns);
  void EndProbe(bool worked, int64_t now_ns);
  // REQUIRES: DOWN.
  int64_t next_probe_ns() const { return next_probe_ns_; }

 private:
  void GoUp(int64_t now_ns);
  void GoDown(int64_t now_ns);

  const uint32_t failures_;
  const int64_t longest_delay_ns_;
  State state_ = State::kConnecting;
  uint32_t failed_ = 0;  // in a row
  int64_t up_since_ns_ = 0;
  int64_t next_probe_ns_ = 0;
  int64_t delay_ns_ = kFirstDelayNanos;  // before the next probe but one
};

}  // namespace vllm_router
