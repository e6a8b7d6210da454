// HoldoutResults: what a hold-out has shown so far, of closed conversations:
//
//   cached share         of the prompt tokens of a conversation's turns, as engines report it
//   first token          mean of ln seconds over the streams of later turns; the first turn by itself
//   saved tokens         cached tokens of a conversation, whose prompt tokens are cut at a quantile of those before
//   failures             a turn ended by a worker's fault, or with a status of 500 or more
//
// A stratum is a power of two of the bytes of a conversation's first request. Effects are the policy's value minus the held
// out's; each interval is at 95 % by itself. The hold-out is to stop when the held-out conversations are certainly (at 99 %)
// worse by more than kStopRatio.
//
// Pure; no clock. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "holdout/conversation_table.h"
#include "holdout/effect_estimate.h"

namespace vllm_router {

// A quantile of sizes, from counts per sixteenth of a power of two: at most 4.5 % above the true one.
class SizeQuantile {
 public:
  void Add(uint64_t size);
  uint64_t count() const { return count_; }
  // REQUIRES: a size. An upper bound of the `share` smallest.
  uint64_t At(double share) const;

 private:
  static constexpr size_t kParts = 16;
  static constexpr size_t kBuckets = 40 * kParts;

  std::array<uint32_t, kBuckets> counts_{};
  uint64_t count_ = 0;
};

class HoldoutResults {
 public:
  static constexpr double kAlpha = 0.05;
  static constexpr double kStopAlpha = 0.01;
  static constexpr double kStopRatio = 2;
  static constexpr uint64_t kFirstStop = 200;   // held-out conversations
  static constexpr double kCutAt = 0.995;       // of prompt tokens of conversations
  static constexpr uint64_t kSizesFirst = 200;  // conversations whose sizes alone are taken

  explicit HoldoutResults(double share);

  void Add(const ClosedConversation& conversation);

  uint64_t policy() const { return policy_; }
  uint64_t held_out() const { return held_out_; }
  uint64_t reporting() const { return cached_share_.policy() + cached_share_.held_out(); }
  const EffectEstimate& cached_share() const { return cached_share_; }
  const EffectEstimate& saved_tokens() const { return saved_tokens_; }
  const EffectEstimate& first_turn() const { return first_turn_; }    // ln seconds
  const EffectEstimate& later_turns() const { return later_turns_; }  // likewise
  const FailureRatio& failures() const { return failures_; }

  // Why no more conversations are to be held out: failures, first_token; empty: nothing says so.
  std::string_view ReasonToStop() const;

 private:
  uint64_t policy_ = 0;
  uint64_t held_out_ = 0;
  EffectEstimate cached_share_;
  EffectEstimate saved_tokens_;
  EffectEstimate first_turn_;
  EffectEstimate later_turns_;
  FailureRatio failures_;
  SizeQuantile sizes_;
};

}  // namespace vllm_router
