// BytesPerToken: mean bytes of a prompt per token, learned from the token counts that workers report
// for prompts of known size.
//
//   9,000 bytes, 2,000 tokens by the response's usage   ->   that prompt has 4.5; the mean moves towards it
//
// A moving mean, weighted by tokens: the last kMemory tokens count. The initial value weighs as much as
// kPrior tokens, so that a short prompt, which is mostly a chat template, moves the mean little.
// Thread-safe; one atomic word. One of two concurrent reports may be lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace vllm_router {

class BytesPerToken {
 public:
  static constexpr float kAtFirst = 4;
  static constexpr float kLeast = 1;
  static constexpr float kMost = 16;
  static constexpr uint32_t kPrior = 1024;
  static constexpr uint32_t kMemory = 65536;

  double value() const { return Mean(state_.load(std::memory_order_relaxed)); }

  // If either is 0, nothing is learned.
  void Learn(uint64_t bytes, uint64_t tokens) {
    if (bytes == 0 || tokens == 0) return;
    const float found = std::clamp(static_cast<float>(bytes) / static_cast<float>(tokens), kLeast, kMost);
    const uint64_t before = state_.load(std::memory_order_relaxed);
    const auto counted = static_cast<uint32_t>(before);
    const auto added = static_cast<uint32_t>(std::min<uint64_t>(tokens, kMemory));
    const float weight = static_cast<float>(added) / static_cast<float>(counted + added);
    const float mean = Mean(before) + (found - Mean(before)) * weight;
    state_.store(
        uint64_t{std::bit_cast<uint32_t>(mean)} << 32 | std::min(counted + added, kMemory),
        std::memory_order_relaxed);
  }

 private:
  static float Mean(uint64_t state) { return std::bit_cast<float>(static_cast<uint32_t>(state >> 32)); }

  // The mean in the upper half, its weight in tokens in the lower one.
  std::atomic<uint64_t> state_{uint64_t{std::bit_cast<uint32_t>(kAtFirst)} << 32 | kPrior};
};

}  // namespace vllm_router
