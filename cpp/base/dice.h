// Dice: the one source of chance. A SplitMix64 stream whose state is a single atomic counter, so any number of
// threads may throw at once without a lock, and a run in one thread with one seed repeats exactly.
//
//   Dice dice(seed);
//   uint64_t worker = dice.Below(3);   // 0, 1 or 2; exactly one draw
//
// Cost: one relaxed fetch_add and three multiplications. Thread-safe.
// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
#pragma once

#include <atomic>
#include <cstdint>

namespace vllm_router {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_.fetch_add(kGamma, std::memory_order_relaxed) + kGamma;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound), bias below bound / 2^64. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return static_cast<uint64_t>((static_cast<Wide>(Next()) * bound) >> 64); }

  // A seed that no other process is likely to have.
  static uint64_t EntropySeed();

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
  alignas(64) std::atomic<uint64_t> state_;
};

}  // namespace vllm_router
