// Random: the one source of random numbers. A SplitMix64 stream whose state is a single atomic counter,
// so any number of threads may draw at once without a lock, and a run in one thread with one seed
// repeats exactly.
//
//   Random random(seed);
//   uint64_t worker = random.Below(3);   // 0, 1 or 2; exactly one draw
//
// Cost: one relaxed fetch_add and three multiplications. Thread-safe.
// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace vllm_router {

// The last steps of SplitMix64, a bijection: each bit of `z` decides over all of the result.
constexpr uint64_t Mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix64(state_.fetch_add(kGamma, std::memory_order_relaxed) + kGamma); }

  // Uniform in [0, bound), bias below bound / 2^64. REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) { return static_cast<uint64_t>((static_cast<Wide>(Next()) * bound) >> 64); }

  // A seed that differs between processes with near certainty.
  static uint64_t EntropySeed();

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
  friend class DecisionRandom;
  alignas(64) std::atomic<uint64_t> state_;
};

// The random numbers of one decision: the policy's own source or, for a dry run, a copy of it in the
// same state. So a dry run draws what the next decision will draw, and changes nothing.
//
//   DecisionRandom random(random_, key.dry_run);
//   uint64_t worker = random->Below(3);
class DecisionRandom {
 public:
  DecisionRandom(Random& own, bool dry_run) : random_(&own) {
    if (dry_run) [[unlikely]]
      random_ = &copy_.emplace(own.state_.load(std::memory_order_relaxed));
  }
  DecisionRandom(const DecisionRandom&) = delete;
  DecisionRandom& operator=(const DecisionRandom&) = delete;

  Random* operator->() { return random_; }
  Random& operator*() { return *random_; }

 private:
  Random* random_;
  std::optional<Random> copy_;
};

}  // namespace vllm_router
