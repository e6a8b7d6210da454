// MovingMean: the mean of recent values: of all values up to kMemory of them; from then on each new
// value moves the mean by 1/kMemory of the difference.
//
// Thread-safe; one atomic word. One of two concurrent values may be lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace vllm_router {

class MovingMean {
 public:
  static constexpr uint32_t kMemory = 100;

  // 0 before the first one.
  double value() const { return Mean(state_.load(std::memory_order_relaxed)); }

  void Learn(double seen) {
    const uint64_t before = state_.load(std::memory_order_relaxed);
    const uint32_t count = std::min(static_cast<uint32_t>(before) + 1, kMemory);
    const double mean = Mean(before);
    const auto next = static_cast<float>(mean + (seen - mean) / count);
    state_.store(uint64_t{std::bit_cast<uint32_t>(next)} << 32 | count, std::memory_order_relaxed);
  }

 private:
  static double Mean(uint64_t state) { return std::bit_cast<float>(static_cast<uint32_t>(state >> 32)); }

  std::atomic<uint64_t> state_{0};  // the mean in the upper half, the number of values in the lower one
};

}  // namespace vllm_router
