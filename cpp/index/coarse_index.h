// CoarseIndex: what all routers of a fleet sent to each worker, in strides of several blocks. A router that knows
// its own decisions to a block, and those of others in strides, knows almost as much as one that made them all,
// and a decision costs its peers a sixteenth of its blocks.
//
//   blocks     b0 b1 b2 b3 | b4 b5 b6 b7 | b8 b9          strides of 4 blocks
//   strides             b3            b7                  a chained hash names everything before it
//
//   own index   w1 has 7 blocks, w2 has 10               what this router sent, exact to a block
//   here        w1 has 2 strides, w2 has 1               what all sent, and what their traffic evicted
//   Refine()    w1: 8 .. 11, so 8    w2: 4 .. 7, so 7    strides set the range, blocks are right within it
//
// Inside is a BlockCacheTracker whose blocks are strides: its order of use sees all the traffic that fills a
// cache, in the order in which it became known. Workers are named by their slots in the index that is refined.
//
// Cost: Refine() 0.1 to 0.3 us, a record 0.1 us and 8 ns per stride. Thread-safe; Refine() never waits. A slot
// must be added before it is recorded for, and changes of slots come from one thread at a time.
//
//   CoarseIndex coarse({.stride_blocks = 16, .tracker = {.max_blocks_per_worker = 100'000}});
//   coarse.Add(slot);
//   const uint64_t claim = coarse.RecordOpen(slot, CoarseIndex::StridesOf(blocks, 16, &strides));
//   coarse.Refine(blocks, &matches);
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hashing/block_hash.h"
#include "index/block_cache_tracker.h"
#include "index/block_matches.h"
#include "index/index_image.h"
#include "index/worker_slot.h"

namespace vllm_router {

struct CoarseIndexOptions {
  uint32_t stride_blocks = 16;
  BlockCacheTrackerOptions tracker;  // of the index that is refined: in blocks
};

class CoarseIndex {
 public:
  // REQUIRES: stride_blocks > 0.
  explicit CoarseIndex(const CoarseIndexOptions& options);

  uint32_t stride_blocks() const { return stride_blocks_; }
  // The strides of a prompt of these blocks: every stride_blocks-th of them, in `strides`.
  static std::span<const BlockHash> StridesOf(
      std::span<const BlockHash> blocks, uint32_t stride_blocks, std::vector<BlockHash>* strides);

  // A worker that holds nothing, and one that left. Waits while matches still read of workers that left.
  void Add(WorkerSlot slot);
  void Remove(WorkerSlot slot);
  // Its cache is empty; of all workers.
  void Forget(WorkerSlot slot);
  void Clear() { tracker_.Clear(); }
  // In blocks, as the index that is refined counts them.
  void SetCapacityOf(WorkerSlot slot, uint64_t blocks);

  // As BlockCacheTracker's, of strides. Slots that were not added: no effect.
  void Record(WorkerSlot slot, std::span<const BlockHash> strides, size_t unnamed = 0);
  uint64_t RecordOpen(WorkerSlot slot, std::span<const BlockHash> strides, size_t unnamed = 0);
  void Confirm(uint64_t claim) { tracker_.Confirm(claim); }
  void Withdraw(uint64_t claim) { tracker_.Withdraw(claim); }

  // Of a snapshot: by slots of its own, each with the slot of the index that is refined. REQUIRES: no change of slots
  // meanwhile.
  void Save(ImageWriter* image) { tracker_.Save(image); }
  size_t saved_slots() const { return tracker_.slots(); }
  std::optional<WorkerSlot> RefinedSlot(size_t saved) const { return SlotIn(slot_of_, saved); }
  // What the saved index has in a slot of its own, as used now. REQUIRES: no other thread uses `saved`.
  void Adopt(WorkerSlot slot, const BlockCacheTracker& saved, WorkerSlot theirs);

  // Brings matches of the prompt of these blocks into the range that its strides allow.
  void Refine(std::span<const BlockHash> blocks, BlockMatches* matches) const;

  uint64_t strides() const { return tracker_.stats().worker_blocks(); }  // of all workers
  uint64_t bytes() const { return tracker_.stats().bytes; }

 private:
  static constexpr uint16_t kNone = UINT16_MAX;

  uint64_t InStrides(uint64_t blocks) const;
  static std::optional<WorkerSlot> SlotIn(
      const std::array<std::atomic<uint16_t>, kMaxWorkers>& slots, size_t at);
  std::optional<WorkerSlot> CoarseSlot(WorkerSlot slot) const {
    return SlotIn(coarse_of_, static_cast<size_t>(slot));
  }

  const uint32_t stride_blocks_;
  BlockCacheTracker tracker_;
  // Slots of the tracker by those of the index that is refined, and back.
  std::array<std::atomic<uint16_t>, kMaxWorkers> coarse_of_;
  std::array<std::atomic<uint16_t>, kMaxWorkers> slot_of_;
};

}  // namespace vllm_router
