#include "holdout/holdout_results.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace vllm_router {

void SizeQuantile::Add(uint64_t size) {
  const double position = std::log2(static_cast<double>(std::max<uint64_t>(1, size))) * kParts;
  ++counts_[std::min(static_cast<size_t>(position), kBuckets - 1)];
  ++count_;
}

uint64_t SizeQuantile::At(double share) const {
  const double wanted = share * static_cast<double>(count_);
  uint64_t below = 0;
  size_t bucket = 0;
  for (; bucket + 1 < kBuckets; ++bucket) {
    below += counts_[bucket];
    if (static_cast<double>(below) >= wanted) break;
  }
  return static_cast<uint64_t>(std::exp2(static_cast<double>(bucket + 1) / kParts));
}

HoldoutResults::HoldoutResults(double share)
    : cached_share_(share), saved_tokens_(share), first_turn_(share), later_turns_(share), failures_(share) {}

void HoldoutResults::Add(const ClosedConversation& conversation) {
  const bool is_held_out = conversation.is_held_out;
  ++(is_held_out ? held_out_ : policy_);
  const auto stratum = static_cast<size_t>(std::bit_width(conversation.first_body_bytes));
  const size_t x = std::min(stratum, EffectEstimate::kStrata - 1);
  if (conversation.has_failed) failures_.Add(is_held_out);
  if (conversation.first_turn_log_s) first_turn_.Add(x, is_held_out, *conversation.first_turn_log_s);
  if (conversation.later_turns_log_s) later_turns_.Add(x, is_held_out, *conversation.later_turns_log_s);
  if (conversation.reporting == 0) return;
  const auto prompt = static_cast<double>(conversation.prompt_tokens);
  const double share = static_cast<double>(conversation.cached_tokens) / prompt;
  cached_share_.Add(x, is_held_out, share);
  if (sizes_.count() >= kSizesFirst)
    saved_tokens_.Add(x, is_held_out, share * std::min(prompt, static_cast<double>(sizes_.At(kCutAt))));
  sizes_.Add(conversation.prompt_tokens);
}

std::string_view HoldoutResults::ReasonToStop() const {
  if (held_out_ < kFirstStop) return {};
  if (failures_.At(kStopAlpha).low > kStopRatio) return "failures";
  if (later_turns_.held_out() < kFirstStop) return {};
  const std::optional<Interval> later = later_turns_.At(kStopAlpha);
  return later && later->high < -std::log(kStopRatio) ? "first_token" : "";
}

}  // namespace vllm_router
