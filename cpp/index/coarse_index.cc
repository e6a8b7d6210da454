#include "index/coarse_index.h"

#include <algorithm>
#include <thread>

#include "base/check.h"

namespace vllm_router {
namespace {

BlockCacheTrackerOptions InStrides(const CoarseIndexOptions& options) {
  ROUTER_CHECK(options.stride_blocks > 0, "a stride has at least one block");
  BlockCacheTrackerOptions strides = options.tracker;
  strides.max_blocks_per_worker =
      std::max<uint64_t>(1, options.tracker.max_blocks_per_worker / options.stride_blocks);
  return strides;
}

}  // namespace

CoarseIndex::CoarseIndex(const CoarseIndexOptions& options)
    : stride_blocks_(options.stride_blocks), tracker_(vllm_router::InStrides(options)) {
  for (auto& slot : coarse_of_) slot.store(kNone, std::memory_order_relaxed);
  for (auto& slot : slot_of_) slot.store(kNone, std::memory_order_relaxed);
}

std::span<const BlockHash> CoarseIndex::StridesOf(
    std::span<const BlockHash> blocks, uint32_t stride_blocks, std::vector<BlockHash>* strides) {
  strides->clear();
  for (size_t end = stride_blocks; end <= blocks.size(); end += stride_blocks)
    strides->push_back(blocks[end - 1]);
  return *strides;
}

uint64_t CoarseIndex::InStrides(uint64_t blocks) const {
  return std::max<uint64_t>(1, blocks / stride_blocks_);
}

void CoarseIndex::Add(WorkerSlot slot) {
  for (;;) {
    const StatusOr<WorkerSlot> added = tracker_.AddWorker();
    if (added.ok()) {
      slot_of_[static_cast<size_t>(*added)].store(static_cast<uint16_t>(slot), std::memory_order_relaxed);
      coarse_of_[static_cast<size_t>(slot)].store(static_cast<uint16_t>(*added), std::memory_order_relaxed);
      return;
    }
    std::this_thread::yield();  // a fleet has at most kMaxWorkers: only workers that left are in the way
  }
}

void CoarseIndex::Remove(WorkerSlot slot) {
  const uint16_t coarse = coarse_of_[static_cast<size_t>(slot)].exchange(kNone, std::memory_order_relaxed);
  if (coarse == kNone) return;
  slot_of_[coarse].store(kNone, std::memory_order_relaxed);
  tracker_.RemoveWorker(static_cast<WorkerSlot>(coarse));
  while (tracker_.Sweep(BlockIndex::kSweepRuns)) {
  }
}

void CoarseIndex::Forget(WorkerSlot slot) {
  if (const std::optional<WorkerSlot> coarse = CoarseSlot(slot)) tracker_.Evict(*coarse, 0);
}

void CoarseIndex::SetCapacityOf(WorkerSlot slot, uint64_t blocks) {
  if (const std::optional<WorkerSlot> coarse = CoarseSlot(slot))
    tracker_.SetCapacityOf(*coarse, InStrides(blocks));
}

void CoarseIndex::Record(WorkerSlot slot, std::span<const BlockHash> strides, size_t unnamed) {
  const std::optional<WorkerSlot> coarse = CoarseSlot(slot);
  if (coarse && strides.size() + unnamed != 0) tracker_.Record(*coarse, strides, unnamed);
}

uint64_t CoarseIndex::RecordOpen(WorkerSlot slot, std::span<const BlockHash> strides, size_t unnamed) {
  const std::optional<WorkerSlot> coarse = CoarseSlot(slot);
  return coarse && strides.size() + unnamed != 0 ? tracker_.RecordOpen(*coarse, strides, unnamed) : 0;
}

std::optional<WorkerSlot> CoarseIndex::SlotIn(
    const std::array<std::atomic<uint16_t>, kMaxWorkers>& slots, size_t at) {
  const uint16_t slot = slots[at].load(std::memory_order_relaxed);
  return slot != kNone ? std::optional(WorkerSlot{slot}) : std::nullopt;
}

void CoarseIndex::Adopt(WorkerSlot slot, const BlockCacheTracker& saved, WorkerSlot theirs) {
  if (const std::optional<WorkerSlot> coarse = CoarseSlot(slot)) tracker_.Adopt(*coarse, saved, theirs);
}

void CoarseIndex::Refine(std::span<const BlockHash> blocks, BlockMatches* matches) const {
  struct Scratch {
    std::vector<BlockHash> strides;
    BlockMatches matches;
  };
  thread_local Scratch own_scratch;
  Scratch& scratch = own_scratch;
  tracker_.Match(StridesOf(blocks, stride_blocks_, &scratch.strides), &scratch.matches);

  // Blocks beyond the last stride that all routers know of may be this router's own, up to the next stride.
  for (BlockMatch& match : matches->entries()) {
    const std::optional<WorkerSlot> coarse = CoarseSlot(match.owner);
    const BlockMatch* const known = coarse ? std::as_const(scratch.matches).Find(*coarse) : nullptr;
    const uint32_t least = known != nullptr ? known->longest() * stride_blocks_ : 0;
    for (uint32_t& held : match.blocks) held = std::clamp(held, least, least + stride_blocks_ - 1);
  }
  for (const BlockMatch& known : std::as_const(scratch.matches).entries()) {
    const std::optional<WorkerSlot> slot = RefinedSlot(static_cast<size_t>(known.owner));
    if (!slot) continue;
    const uint32_t least = known.longest() * stride_blocks_;
    matches->Raise(*slot, {least, least, least});
  }
}

}  // namespace vllm_router
