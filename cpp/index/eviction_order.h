// EvictionOrder: what a prefix tree evicts first, by the rank: one number per pair of worker and node.
// The smallest rank is evicted first. The rank, for all orders:
//
//   bits 63..44                                   bits 43..0
//   hits (LFU), priority (kPriority), else 0      tick of the last use, or of the insert; negated: MRU, FILO
//
// An insert touches only the last node of its path. Its effect on the nodes above is passed up when a
// node is evicted: its parent inherits the later use, the hits, the higher priority. A parent is never
// evicted before its children, so when a rank is read it is what it would be had every insert touched
// its whole path.
//
//   insert "ab" "ac" "ab"     a: nothing   b: 2 hits, tick 3   c: 1 hit, tick 2
//   c, b evicted              a: 2 + 1 hits, tick 3
//
// 2^44 inserts are 50 years of 10,000 per second. Values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace vllm_router {

enum class EvictionOrder : uint8_t {
  kLru,       // inserted or extended the longest ago
  kLfu,       // passed by the fewest inserts; of equals the one used longest ago
  kFifo,      // added first
  kMru,       // used last
  kFilo,      // added last
  kPriority,  // passed only by inserts of low priority; of equals the one used longest ago
};

class EvictionRanks {
 public:
  static constexpr int32_t kMinPriority = -(1 << 19);
  static constexpr int32_t kMaxPriority = (1 << 19) - 1;

  explicit EvictionRanks(EvictionOrder order) : order_(order) {}

  // Of the last node of an insert, new to its worker.
  uint64_t Ended(uint64_t tick, int32_t priority) const {
    switch (order_) {
      case EvictionOrder::kLfu:
        return (uint64_t{1} << kTickBits) | tick;
      case EvictionOrder::kMru:
      case EvictionOrder::kFilo:
        return ~tick;
      case EvictionOrder::kPriority:
        return High(priority) | tick;
      default:
        return tick;
    }
  }

  // Of a node above it, new to its worker.
  uint64_t Passed(uint64_t tick) const {
    if (order_ == EvictionOrder::kFifo) return tick;
    if (order_ == EvictionOrder::kFilo) return ~tick;
    return Unused();
  }

  // Of the upper part of a node that is split.
  uint64_t Upper(uint64_t rank) const { return KeepsAge() ? rank : Unused(); }

  // Of the last node of an insert, which its worker owned with this rank.
  uint64_t Touched(uint64_t rank, uint64_t tick, int32_t priority) const {
    return Inherited(rank, Ended(tick, priority));
  }

  // Of a node with this rank after a child with that one was evicted.
  uint64_t Inherited(uint64_t rank, uint64_t child) const {
    switch (order_) {
      case EvictionOrder::kLru:
        return std::max(rank, child);
      case EvictionOrder::kMru:
        return std::min(rank, child);
      case EvictionOrder::kLfu:
        return std::min(kMaxHigh, (rank >> kTickBits) + (child >> kTickBits)) << kTickBits |
               LaterTick(rank, child);
      case EvictionOrder::kPriority:
        return std::max(rank >> kTickBits, child >> kTickBits) << kTickBits | LaterTick(rank, child);
      default:
        return rank;
    }
  }

 private:
  static constexpr int kTickBits = 44;
  static constexpr uint64_t kTicks = (uint64_t{1} << kTickBits) - 1;
  static constexpr uint64_t kMaxHigh = (uint64_t{1} << (64 - kTickBits)) - 1;

  static uint64_t High(int32_t priority) {
    const int32_t clamped = std::clamp(priority, kMinPriority, kMaxPriority);
    return static_cast<uint64_t>(clamped - kMinPriority) << kTickBits;
  }
  static uint64_t LaterTick(uint64_t a, uint64_t b) { return std::max(a & kTicks, b & kTicks); }

  bool KeepsAge() const { return order_ == EvictionOrder::kFifo || order_ == EvictionOrder::kFilo; }
  uint64_t Unused() const { return order_ == EvictionOrder::kMru ? std::numeric_limits<uint64_t>::max() : 0; }

  EvictionOrder order_;
};

}  // namespace vllm_router
