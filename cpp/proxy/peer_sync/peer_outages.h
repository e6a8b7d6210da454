// PeerOutages: whether this router and the others hear each other, by the rounds that work (peer_rounds.h), and for how
// long they did not. A round that hears all and one that tells are needed. A value without a clock; on the control thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time_units.h"

namespace vllm_router {

class PeerOutages {
 public:
  static constexpr int64_t kLostNanos = 1'000'000'000;  // or four intervals, if those are longer

  explicit PeerOutages(uint32_t interval_ms)
      : lost_ns_(std::max(kLostNanos, 4 * int64_t{interval_ms} * kNanosPerMs)) {}

  void Begin(int64_t now_ns) { begun_ns_ = now_ns; }
  void Received(int64_t now_ns) { received_ns_ = now_ns; }  // with nothing left to hear
  void Sent(int64_t now_ns) { sent_ns_ = now_ns; }

  // Whether they hear each other now.
  bool Update(int64_t now_ns) {
    const bool connected = now_ns - std::min(received_ns_, sent_ns_) < lost_ns_;
    if (!connected && !under_way()) since_ns_ = last_ns();
    if (connected && under_way()) {
      past_ms_ += (now_ns - since_ns_) / kNanosPerMs;
      since_ns_ = -1;
    }
    return connected;
  }
  // When they last did, or the start.
  int64_t last_ns() const { return std::max(begun_ns_, std::min(received_ns_, sent_ns_)); }
  bool under_way() const { return since_ns_ >= 0; }
  bool up() const { return !under_way() && sent_ns_ > kNever; }
  // All since the start.
  int64_t total_ms(int64_t now_ns) const {
    return past_ms_ + (under_way() ? (now_ns - since_ns_) / kNanosPerMs : 0);
  }

 private:
  static constexpr int64_t kNever = INT64_MIN / 2;

  const int64_t lost_ns_;
  int64_t begun_ns_ = 0;
  int64_t received_ns_ = kNever;
  int64_t sent_ns_ = kNever;
  int64_t since_ns_ = -1;  // of the outage
  int64_t past_ms_ = 0;
};

}  // namespace vllm_router
