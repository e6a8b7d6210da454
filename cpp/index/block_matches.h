// BlockMatches: the result of a match, which owners hold how much of a prompt, in a buffer that its
// user keeps and reuses.
//
//   entries   { w7: 4 4 4 }  { w2: 2 4 4 }  { w9: 0 0 3 }      in no order, each owner once
//   place_      w2 -> 1, w7 -> 0, w9 -> 2, others anything     valid only if the entry there is of that owner
//
// blocks(t) is the number of leading blocks on tier t or a faster one without a gap; they ascend.
// Clearing touches nothing, since every place is checked when it is read (Briggs and Torczon, "An
// efficient representation for sparse sets", 1993). 72 KiB, touched as far as used. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/limits.h"
#include "index/worker_slot.h"

namespace vllm_router {

struct BlockMatch {
  WorkerSlot owner{};
  std::array<uint32_t, kTierCount> blocks{};

  uint32_t on(Tier tier) const { return blocks[static_cast<size_t>(tier)]; }
  uint32_t longest() const { return blocks[kTierCount - 1]; }
};

class BlockMatches {
 public:
  BlockMatches()
      : entries_(std::make_unique_for_overwrite<BlockMatch[]>(kMaxWorkers)),
        place_(std::make_unique<uint16_t[]>(kMaxWorkers)) {}

  std::span<const BlockMatch> entries() const { return {entries_.get(), size_}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Null if it holds nothing of the prompt.
  const BlockMatch* Find(WorkerSlot owner) const {
    const size_t place = place_[static_cast<size_t>(owner)];
    return place < size_ && entries_[place].owner == owner ? &entries_[place] : nullptr;
  }
  BlockMatch* Find(WorkerSlot owner) { return const_cast<BlockMatch*>(std::as_const(*this).Find(owner)); }

  // The entry with most blocks among those of `eligible` (null: all). Of equals the one with more on
  // faster tiers, then the smallest owner. Null if there is none.
  const BlockMatch* Best(const WorkerSlotSet* eligible = nullptr) const;

  // For the code that fills it. Counts of an entry may be lowered, and must still ascend.
  std::span<BlockMatch> entries() { return {entries_.get(), size_}; }
  void Clear() { size_ = 0; }
  // Adds entries, and counts them when it ends: between atomic loads the compiler would read and write
  // the members anew for each.
  class Adder {
   public:
    explicit Adder(BlockMatches* matches)
        : matches_(*matches),
          entries_(matches->entries_.get()),
          place_(matches->place_.get()),
          size_(matches->size_) {}
    ~Adder() { matches_.size_ = size_; }
    Adder(const Adder&) = delete;
    Adder& operator=(const Adder&) = delete;

    void Add(WorkerSlot owner, const std::array<uint32_t, kTierCount>& blocks) {
      place_[static_cast<size_t>(owner)] = static_cast<uint16_t>(size_);
      entries_[size_++] = {owner, blocks};
    }

   private:
    BlockMatches& matches_;
    BlockMatch* const entries_;
    uint16_t* const place_;
    size_t size_;
  };
  // The larger of what the entry has and `blocks`, by tier; an entry if there was none.
  void Raise(WorkerSlot owner, const std::array<uint32_t, kTierCount>& blocks) {
    BlockMatch* const entry = Find(owner);
    if (entry == nullptr) return Adder(this).Add(owner, blocks);
    for (size_t tier = 0; tier < kTierCount; ++tier)
      entry->blocks[tier] = std::max(entry->blocks[tier], blocks[tier]);
  }
  // Of entries of one owner only the last stays.
  void DropRepeated() {
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i) {
      uint16_t& place = place_[static_cast<size_t>(entries_[i].owner)];
      if (place != i) continue;
      place = static_cast<uint16_t>(kept);
      entries_[kept++] = entries_[i];
    }
    size_ = kept;
  }

 private:
  const std::unique_ptr<BlockMatch[]> entries_;
  const std::unique_ptr<uint16_t[]> place_;
  size_t size_ = 0;
};

inline const BlockMatch* BlockMatches::Best(const WorkerSlotSet* eligible) const {
  const BlockMatch* best = nullptr;
  for (const BlockMatch& entry : entries()) {
    if (best != nullptr && entry.longest() < best->longest()) continue;
    if (eligible != nullptr && !eligible->test(static_cast<size_t>(entry.owner))) continue;
    if (best != nullptr && entry.longest() == best->longest()) {
      const uint64_t faster = static_cast<uint64_t>(entry.blocks[0]) << 32 | entry.blocks[1];
      const uint64_t best_faster = static_cast<uint64_t>(best->blocks[0]) << 32 | best->blocks[1];
      if (faster < best_faster || (faster == best_faster && entry.owner > best->owner)) continue;
    }
    best = &entry;
  }
  return best;
}

}  // namespace vllm_router
