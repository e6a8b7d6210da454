// Run: a stretch of consecutive blocks of a chain, stored once as an array, and for each owner only the
// number of leading ones that it holds. The parts of a run that readers see.
//
//   cell   [ blocks | length 8 | holders 3 ]      one cache line with up to five holders
//              |        [ w1: 8 8 8 ]             w1 holds all eight blocks on its GPU
//              |        [ w2: 5 5 5 ]             w2 the first five
//              |        [ w3: 2 6 6 ]             w3 two on the GPU, and up to the sixth on the GPU or in host memory
//              v
//           [ a  ab  abc  abcd  ... ]             chained hashes
//
// A holder is one 64-bit word, so it changes by one store and is never seen half changed. cut(t) counts
// the leading blocks on tier t or a faster one; cuts ascend. Blocks behind a gap are known to the
// writer only (coverage.h): they do not lengthen a prefix.
//
// One writer; readers pinned (base/epoch.h). An array element that a reader may see is never written
// again.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hashing/block_hash.h"
#include "index/worker_slot.h"

namespace vllm_router {

// Longer chains continue in another run. Bounds the cost of one change: copying an array, or the holes
// in one run.
inline constexpr uint32_t kMaxRunBlocks = 16'384;

// Leading blocks by tier, ascending.
using Cuts = std::array<uint16_t, kTierCount>;

class Holder {
 public:
  Holder() = default;
  explicit Holder(uint64_t word) : word_(word) {}
  Holder(WorkerSlot owner, const Cuts& cuts)
      : word_(
            (static_cast<uint64_t>(owner) + 1) | static_cast<uint64_t>(cuts[0]) << 16 |
            static_cast<uint64_t>(cuts[1]) << 32 | static_cast<uint64_t>(cuts[2]) << 48) {}

  bool empty() const { return word_ == 0; }
  bool Is(WorkerSlot owner) const { return (word_ & 0xffff) == static_cast<uint64_t>(owner) + 1; }
  WorkerSlot owner() const { return static_cast<WorkerSlot>((word_ & 0xffff) - 1); }
  uint32_t cut(int tier) const { return (word_ >> (16 + 16 * tier)) & 0xffff; }
  uint32_t longest() const { return cut(kTierCount - 1); }
  uint64_t word() const { return word_; }

 private:
  uint64_t word_ = 0;  // owner + 1, then the cuts, 16 bits each
};

// The part that readers find. Followed in memory by space for `holder_capacity` holders.
struct RunCell {
  BlockHash* blocks;
  uint32_t run;  // number of the run
  std::atomic<uint32_t> length{0};
  uint16_t block_capacity;
  uint16_t holder_capacity;
  std::atomic<uint16_t> holder_count{0};  // words in use; the empty ones among them are skipped
  std::atomic<uint16_t> departures{0};    // words emptied so far: while it stays, no owner can be met twice

  std::atomic<uint64_t>* holders() { return reinterpret_cast<std::atomic<uint64_t>*>(this + 1); }
  const std::atomic<uint64_t>* holders() const {
    return reinterpret_cast<const std::atomic<uint64_t>*>(this + 1);
  }
  Holder holder(uint32_t i) const { return Holder(holders()[i].load(std::memory_order_acquire)); }

  static constexpr size_t Bytes(uint32_t holder_capacity);
};
static_assert(sizeof(RunCell) % alignof(std::atomic<uint64_t>) == 0);
static_assert(sizeof(RunCell) == 24, "five holders fit into the cell's cache line");

constexpr size_t RunCell::Bytes(uint32_t holder_capacity) {
  return sizeof(RunCell) + holder_capacity * sizeof(std::atomic<uint64_t>);
}

// How many of the first n elements are equal. In two chains "equal" is true up to one point and false
// behind it, so the last element is compared first and the point is found by bisection.
inline size_t CommonPrefix(const BlockHash* a, const BlockHash* b, size_t n) {
  if (n == 0 || a[n - 1] == b[n - 1]) return n;
  size_t equal = 0;       // elements below are equal
  size_t differ = n - 1;  // this one is not
  while (equal < differ) {
    const size_t middle = equal + (differ - equal) / 2;
    if (a[middle] == b[middle]) {
      equal = middle + 1;
    } else {
      differ = middle;
    }
  }
  return equal;
}

}  // namespace vllm_router
