// BlockIndex: for a prompt given as a chain of block hashes, which owners hold how many of its leading
// blocks.
//
// Most blocks of a chain change together: a prompt is stored whole, its tail is evicted, its tail
// grows. So a stretch of a chain is stored once, as a run, and for each owner only the number of leading
// blocks that it holds:
//
//   prompt P = a b c d e f g h      owner 1 holds all 8 blocks, owner 2 the first 5
//   prompt Q = a b c x y            owner 2 holds all 5                   ("abc" = the chained hash after block c)
//
//   directory                 runs                                                     holders (owner: cut)
//     h(a)    ---> run 7   [ a  ab  abc  abcd  abcde  ..f  ..g  ..h ]  length 8        1: 8   2: 5
//                                     \                                                .
//     h(abcx) ---> run 9              [ abcx  abcxy ]                  length 2        2: 2
//
// A run needs no pointer to its parent, since the hash of its first block names the whole path; it may
// follow any block of any run, so nothing is ever split. Matching looks into the directory once per run
// on the prompt's path (one or two for chats), finds how far prompt and run agree, and reads the run's
// holders.
//
// Invariants. A block lies in one run at one place, which is its own until the run is gone. An owner's
// cut is at most the length; the length is the furthest block that any owner holds; a run that no owner
// holds does not exist. A block whose parent is not in the index is the first of its run.
//
// Cost: Match 0.1 to 0.5 us for chats, 1.5 us for a prefix that 1,024 owners hold. Insert and Remove
// some ns per block and 50 to 100 ns per run. Memory per block: 8 bytes, and about 120 per run.
//
// Thread-safe. Match and FindBest never wait; changes take a mutex (a leaf). A match sees each owner's
// part of each run as it was at some time during the call, and in full what did not change.
//
//   BlockIndex index;
//   const WorkerSlot w1 = index.AddOwner().value();
//   std::vector<BlockRef> refs(chain.size());
//   index.Insert(w1, Tier::kGpu, BlockRef(), chain, refs.data());
//   index.Match(prompt, &matches);             // BlockMatches, one per thread
//   index.Remove(w1, Tier::kGpu, refs);
//
// Details: docs/explanation/block_index.md.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/epoch.h"
#include "base/mutex.h"
#include "base/status.h"
#include "hashing/block_hash.h"
#include "index/block_matches.h"
#include "index/block_ref.h"
#include "index/coverage.h"
#include "index/memory_pool.h"
#include "index/run.h"
#include "index/run_directory.h"
#include "index/worker_slot.h"

namespace vllm_router {

struct BlockIndexOptions {
  // Maximum number of distinct blocks known at once; 9 to 20 bytes each with runs of usual length.
  // Insert rejects new ones beyond it. Raise it for fleets whose engines hold more; lower it to bound
  // memory.
  uint64_t max_blocks = 100'000'000;

  // True if no owner ever gives up a block before those behind it. Then the children of a new block are
  // new too, and need no lookup. True for recorded requests, false for events of engines.
  bool prefix_closed = false;
};

enum class InsertStatus : uint8_t {
  kInserted,
  kUnknownParent,  // the parent's ref is stale; nothing was changed
  kUnknownOwner,   // not in the index, or removed; nothing was changed
  kFull,           // max_blocks reached; the first `inserted` blocks were taken
};

struct InsertResult {
  InsertStatus status = InsertStatus::kInserted;
  size_t inserted = 0;        // leading blocks of the call that the owner now holds
  uint64_t owner_blocks = 0;  // held by it in all, on any tier
};

struct BlockIndexStats {
  uint64_t owners = 0;  // that may be matched
  uint64_t runs = 0;    //
  uint64_t blocks = 0;  // distinct blocks in runs
  uint64_t pairs = 0;   // (owner, block), on any tier
  uint64_t pairs_on[kTierCount] = {};
  uint64_t irregular = 0;  // (owner, run) with gaps or blocks off the GPU
  // Memory in use, by part, and retired memory that readers may still see.
  uint64_t directory_bytes = 0;
  uint64_t run_bytes = 0;    // cells and records
  uint64_t block_bytes = 0;  // arrays of hashes
  uint64_t irregular_bytes = 0;
  uint64_t backlog_bytes = 0;
  uint64_t bytes = 0;  // all of it
  // Events since the start.
  uint64_t inserted_blocks = 0;  // pairs added to a tier
  uint64_t removed_blocks = 0;   // pairs removed, those of removed owners included
  uint64_t stale_refs = 0;       // given to Remove, of blocks that no owner holds any more
  uint64_t not_held = 0;         // given to Remove by an owner that does not hold the block on that tier
  uint64_t unknown_parents = 0;
  uint64_t refused_blocks = 0;  // because of max_blocks
  double bytes_per_pair() const {
    return pairs == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(pairs);
  }
};

class BlockIndex {
 public:
  explicit BlockIndex(const BlockIndexOptions& options = {});
  ~BlockIndex();
  BlockIndex(const BlockIndex&) = delete;
  BlockIndex& operator=(const BlockIndex&) = delete;

  // A new owner that holds nothing. kResourceExhausted when there are kMaxWorkers, those not yet swept
  // included.
  StatusOr<WorkerSlot> AddOwner();

  // The owner is matched no more, at once. Its blocks are swept later, a few runs with every change or
  // by Sweep(). Meanwhile its id takes no blocks; afterwards it may be given to a new owner. Unknown
  // ids: no effect.
  void RemoveOwner(WorkerSlot owner);

  // Visits up to `runs` runs for the owners that were removed. True while there is more to do.
  static constexpr size_t kSweepRuns = 64;  // some 20 us
  bool Sweep(size_t runs);

  // `owner` now holds `blocks` on `tier`, the first of them behind `parent`. Known and new blocks may be
  // mixed; those that the owner has already change nothing. Fills refs[0 .. inserted) unless `refs` is
  // null.
  InsertResult Insert(
      WorkerSlot owner, Tier tier, BlockRef parent, std::span<const BlockHash> blocks, BlockRef* refs);
  // The same with the places as spans, appended in order.
  InsertResult Insert(
      WorkerSlot owner, Tier tier, BlockRef parent, std::span<const BlockHash> blocks,
      std::vector<BlockSpan>* spans);

  // `owner` no longer holds these blocks on `tier`. Any order is allowed, but neighbours given one after
  // the other, in either direction, cost one change together: hand over a whole message at once. Blocks
  // that it does not hold are counted and ignored.
  void Remove(WorkerSlot owner, Tier tier, std::span<const BlockRef> blocks);
  void Remove(WorkerSlot owner, Tier tier, std::span<const BlockSpan> spans);

  // The block at a place; nullopt if no owner holds it (a gap in a run excepted).
  std::optional<BlockHash> HashAt(BlockRef ref) const;

  // Appends the blocks of the run of `ref`, as far as any owner holds them; of a stale ref none.
  void CopyRun(BlockRef ref, std::vector<BlockHash>* blocks) const;
  // Ids of owners that were removed and swept, in the order in which AddOwner() gives them out again.
  std::vector<WorkerSlot> FreeOwners() const;

  // All owners that hold the first block of `chain`, and how many they hold in a row.
  void Match(std::span<const BlockHash> chain, BlockMatches* matches) const;

  // The best of them under `eligible` (null: all), see BlockMatches::Best; nullopt if none holds the
  // first block. `matches` is scratch space.
  std::optional<BlockMatch> FindBest(
      std::span<const BlockHash> chain, const WorkerSlotSet* eligible, BlockMatches* matches) const;

  // Blocks that `owner` holds, on any tier.
  uint64_t BlockCount(WorkerSlot owner) const;
  // And on each tier; a block may be on several.
  std::array<uint64_t, kTierCount> TierCounts(WorkerSlot owner) const;
  BlockIndexStats stats() const;

  // Empty, or a sentence about the first invariant found broken. Slow; for tests.
  std::string CheckInvariants() const;

 private:
  // The writer's part of a run.
  struct Run {
    RunCell* cell = nullptr;  // null: the number is free
    uint16_t generation = 1;
    uint16_t high_water = 0;  // elements ever written; places below are never written again
    uint16_t holders = 0;     // words in use that are not empty
    uint16_t irregular = 0;   // owners with a Coverage
  };
  struct Irregular {
    WorkerSlot owner;
    Coverage coverage;
  };
  enum class OwnerState : uint8_t { kFree, kActive, kRemoved };
  struct Owner {
    OwnerState state = OwnerState::kFree;
    uint64_t blocks = 0;
    uint64_t on[kTierCount] = {};
  };
  struct Place {  // of an owner among a run's holders
    uint32_t index = UINT32_MAX;
    Holder holder;
  };
  struct FreedId {
    WorkerSlot owner;
    uint64_t moment;  // readers that started before may still see words of the former owner
  };

  static constexpr uint32_t kMaxRuns = uint32_t{1} << 28;
  static constexpr uint32_t kRunsPerPage = 4096;
  static constexpr size_t kRunsSweptPerChange = 8;

  Run& run(uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pages_[id / kRunsPerPage][id % kRunsPerPage];
  }
  const Run& run(uint32_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pages_[id / kRunsPerPage][id % kRunsPerPage];
  }
  BlockRef RefOf(uint32_t id, uint32_t offset) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {id, run(id).generation, offset};
  }
  bool IsActive(WorkerSlot owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The holders of one run, for a match that has reached `position` and agrees with the run for `common`
  // blocks. True if any owner holds all of those.
  bool MatchFirst(const RunCell& cell, uint32_t common, BlockMatches* matches) const;
  static bool MatchNext(const RunCell& cell, uint32_t position, uint32_t common, BlockMatches* matches);
  // The run of a ref whose block is in the index; 0 otherwise.
  uint32_t RunOf(BlockRef ref) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  template <typename Emit>
  InsertResult InsertLocked(
      WorkerSlot owner, Tier tier, BlockRef parent, std::span<const BlockHash> blocks, Emit emit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(WorkerSlot owner, Tier tier, BlockRef first, uint32_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Appends as many of `blocks`, none of them in the index, as fit and may be added to the run; returns
  // their number.
  uint32_t Append(uint32_t id, std::span<const BlockHash> blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t NewRun(std::span<const BlockHash> blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HoldsLast(uint32_t id, WorkerSlot owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Adds [begin, end) of a run to the owner, or removes it.
  void Cover(uint32_t id, WorkerSlot owner, Tier tier, uint32_t begin, uint32_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Uncover(uint32_t id, WorkerSlot owner, Tier tier, uint32_t begin, uint32_t end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(uint32_t id, WorkerSlot owner, const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static Place FindHolder(const RunCell& cell, WorkerSlot owner);
  void PutHolder(uint32_t id, WorkerSlot owner, const Place& place, const Cuts& cuts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Coverage* FindIrregular(uint32_t id, WorkerSlot owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Coverage* FindIrregular(uint32_t id, WorkerSlot owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Coverage& AddIrregular(uint32_t id, WorkerSlot owner, Coverage coverage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropIrregular(uint32_t id, WorkerSlot owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After the change of an irregular owner: publishes its cuts, or makes it regular again.
  void PublishIrregular(uint32_t id, WorkerSlot owner, const Place& place, const Coverage& coverage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Shortens the run to what is held, or frees it.
  void Trim(uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeRun(uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A new cell with the live holders, capacity for `more` of them, and `blocks` as its array.
  void ReplaceCell(uint32_t id, uint32_t more, BlockHash* blocks, uint16_t block_capacity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RunCell* NewCell(uint32_t id, uint32_t holders) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetireCell(RunCell* cell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  BlockHash* NewBlocks(uint32_t count, uint16_t* capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetireBlocks(BlockHash* blocks, uint32_t capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // How many blocks from the first on are not in the index, given that the first is not.
  size_t CountNew(std::span<const BlockHash> blocks) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool sweep_pending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sweep_next_ != 0 || waiting_.any();
  }
  bool SweepLocked(size_t runs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepRun(uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const BlockIndexOptions options_;

  mutable Mutex mutex_;  // leaf
  MemoryPool pool_ ABSL_GUARDED_BY(mutex_);
  EpochReclaimer reclaimer_;
  RunDirectory directory_;
  std::array<std::atomic<uint64_t>, kMaxWorkers / 64> active_{};  // bit per owner

  std::vector<std::unique_ptr<Run[]>> pages_ ABSL_GUARDED_BY(mutex_);
  uint32_t run_count_ ABSL_GUARDED_BY(mutex_) = 1;  // numbers given out; 0 is none
  std::deque<uint32_t> free_runs_ ABSL_GUARDED_BY(mutex_);
  // By run; owners ascend.
  absl::flat_hash_map<uint32_t, std::vector<Irregular>> irregular_ ABSL_GUARDED_BY(mutex_);

  std::vector<Owner> owners_ ABSL_GUARDED_BY(mutex_);
  std::deque<FreedId> freed_ids_ ABSL_GUARDED_BY(mutex_);
  WorkerSlotSet waiting_ ABSL_GUARDED_BY(mutex_);    // removed, not yet in a sweep
  WorkerSlotSet sweeping_ ABSL_GUARDED_BY(mutex_);   // removed, in the sweep under way
  uint32_t sweep_next_ ABSL_GUARDED_BY(mutex_) = 0;  // next run of the sweep; 0: none under way

  BlockIndexStats counts_ ABSL_GUARDED_BY(mutex_);  // counters of events
};

}  // namespace vllm_router
