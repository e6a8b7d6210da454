// KeepLeast: the workers with the minimum value; many may be equal.
//
//   positions   0  2  3  5        values   7  4  9  4        kept   2  5
//
// No branch depends on a value: in an idle fleet all are equal, in a busy one the next is
// unpredictable. The minimum is taken in SIMD lanes, so that no comparison depends on the one before it.
// Of doubles, whose lanes are the processor's, only the blocks of rows are searched whose minimum it is.
// Cost: under 1 ns per value. Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/limits.h"

namespace vllm_router {

// REQUIRES: not empty, nothing among them is NaN.
template <typename Value>
Value LeastOf(std::span<const Value> values) {
  constexpr size_t kLanes = 8;
  std::array<Value, kLanes> least;
  least.fill(values[0]);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const Value value = values[i + lane];
      least[lane] = value < least[lane] ? value : least[lane];
    }
  }
  for (; i < values.size(); ++i) least[0] = values[i] < least[0] ? values[i] : least[0];
  return *std::min_element(least.begin(), least.end());
}

// `kept` gets those of `positions`, in their order; it may be where they are. REQUIRES: as many values
// as positions, no more than kMaxWorkers.
template <typename Value>
void KeepLeast(
    std::span<const Value> values, std::span<const uint32_t> positions, std::vector<uint32_t>* kept) {
  if (kept->size() < positions.size()) kept->resize(positions.size());
  uint32_t* const to = kept->data();
  size_t count = 0;
  const auto keep = [&](Value least, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      to[count] = positions[i];
      count += least < values[i] ? 0 : 1;  // an equality of doubles would test for NaN as well
    }
  };
  if constexpr (std::is_floating_point_v<Value>) {
    constexpr size_t kBlock = 32;
    std::array<Value, (kMaxWorkers + kBlock - 1) / kBlock> least_of;
    size_t blocks = 0;
    for (size_t begin = 0; begin < values.size(); begin += kBlock)
      least_of[blocks++] = LeastOf(values.subspan(begin, std::min(kBlock, values.size() - begin)));
    const Value least = LeastOf(std::span<const Value>(least_of).first(blocks));
    for (size_t block = 0; block < blocks; ++block) {
      if (least < least_of[block]) continue;
      keep(least, block * kBlock, std::min((block + 1) * kBlock, values.size()));
    }
  } else {
    keep(LeastOf(values), 0, values.size());
  }
  kept->resize(count);
}

}  // namespace vllm_router
