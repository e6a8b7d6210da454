// DistinctCount: estimates the number of distinct items seen, in 16 KiB, whatever their number.
//
//   hash   0000 0000 0000 11 | 0 0 0 1 …        the first 14 bits choose a register; it keeps the greatest number of
//                        reg 3 | 3 zeros + 1    leading zeros that it has seen, plus one
//
// n items leave about log2(n / registers) zeros in a register. The estimate from all registers has a
// standard error of 0.8 %, below 10,000 items 0.5 %. HyperLogLog by Flajolet and others (2007); the
// estimator, which needs no table of corrections, by Ertl ("New cardinality estimation algorithms for
// HyperLogLog sketches", 2017).
//
// Cost: Add() one load, hardly ever a store; Estimate() 20 us. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vllm_router {

class DistinctCount {
 public:
  // `hash` of an item: 64 uniformly distributed bits.
  void Add(uint64_t hash);
  uint64_t Estimate() const;

 private:
  static constexpr int kIndexBits = 14;
  static constexpr int kRankBits = 64 - kIndexBits;

  std::array<std::atomic<uint8_t>, size_t{1} << kIndexBits> registers_{};
};

}  // namespace vllm_router
