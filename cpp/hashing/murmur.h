// The steps of MurmurHash64A and the constants of furc, for hash.cc and for furc_batch.cc. They define
// the hashes and must not change.
#pragma once

#include <cstdint>

namespace vllm_router {

inline constexpr uint64_t kMurmurMultiplier = 0xc6a4a7935bd1e995u;
inline constexpr int kMurmurShift = 47;

inline constexpr uint64_t kFurcSeed = 4193360111u;  // mcrouter's, as all that follows
inline constexpr uint32_t kFurcShift = 23;
inline constexpr uint32_t kFurcMaxDepth = 23;

// Word and state: uint64_t, or a vector of them.
template <typename Word>
[[gnu::always_inline]] inline void MurmurMixWord(Word& word) {
  word *= kMurmurMultiplier;
  word ^= word >> kMurmurShift;
  word *= kMurmurMultiplier;
}

template <typename State>
[[gnu::always_inline]] inline void MurmurMixEnd(State& state) {
  state ^= state >> kMurmurShift;
  state *= kMurmurMultiplier;
  state ^= state >> kMurmurShift;
}

// The initial state of a hash of `size` bytes.
constexpr uint64_t MurmurStart(uint64_t size, uint64_t seed) { return seed ^ (size * kMurmurMultiplier); }

// The word becomes its own hash, with furc's seed: the next word of furc's stream of bits.
template <typename Word>
[[gnu::always_inline]] inline void MurmurNextWord(Word& word) {
  MurmurMixWord(word);
  word ^= MurmurStart(8, kFurcSeed);
  word *= kMurmurMultiplier;
  MurmurMixEnd(word);
}

}  // namespace vllm_router
