// BlockCacheTracker: what each worker's prefix cache should hold, inferred from the requests sent to
// it. A worker that processed a prompt has its blocks. Beyond its capacity the least recently used are
// evicted, the later block of a prompt before the earlier, as vLLM does it.
//
//   Record(w1, a b c d)    w1: a b c d
//   Record(w1, a b x)      w1: x and, again, b a are the newest        capacity 4: d has to go
//   FindBest(a b c y)      w1 holds 3 of 4
//
// A request's response fills blocks, too, which no prompt that is known names: they are recorded with the
// prompt as a number, take room and age with it, the first to be evicted of it, and are in no index.
//
// Exact about what was recorded: BlockIndex finds the longest prefix without a gap, whatever was
// evicted. Time is a count of records, so there is no clock. A match refreshes nothing; the record that
// follows a decision does.
//
// Cost: Record some ns per block and 0.1 us per run of the prompt, its share of eviction included;
// FindBest 0.1 to 0.5 us. Memory about 10 bytes per (worker, block).
//
// Thread-safe. Match and FindBest never wait. Changes take a mutex and, while holding it, call the
// index, whose own mutex is the leaf.
//
//   BlockCacheTracker tracker({.block_size = 16, .max_blocks_per_worker = 100'000});
//   const WorkerSlot w1 = tracker.AddWorker().value();
//   tracker.Record(w1, chain);
//   tracker.FindBest(chain, &eligible, &matches);      // BlockMatches, one per thread
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "hashing/block_hash.h"
#include "index/block_index.h"
#include "index/block_matches.h"
#include "index/claim_table.h"
#include "index/index_image.h"
#include "index/segment_lru.h"
#include "index/worker_slot.h"

namespace vllm_router {

struct BlockCacheTrackerOptions {
  uint32_t block_size = 16;  // tokens; the engine's
  // Blocks kept per worker: as many as its cache holds. Too high a value predicts blocks that were
  // evicted; too low a value forgets blocks that are cached.
  uint64_t max_blocks_per_worker = 100'000;
  uint64_t seed = 0;  // of the hashes
};

struct BlockCacheTrackerStats {
  BlockIndexStats index;
  uint64_t recorded_requests = 0;  // also the time: every record is one tick
  uint64_t recorded_blocks = 0;
  uint64_t evicted_blocks = 0;
  uint64_t unnamed_blocks = 0;  // held, of all workers; not in `index`
  uint64_t segments = 0;
  uint64_t lru_bytes = 0;
  uint64_t bytes = 0;  // in all, the index included
  uint64_t worker_blocks() const { return index.pairs + unnamed_blocks; }
};

class BlockCacheTracker {
 public:
  // REQUIRES: 0 < block_size <= kMaxBlockSize.
  explicit BlockCacheTracker(const BlockCacheTrackerOptions& options = {});

  // Everything but claims: what open requests use counts as used. Record() blocks meanwhile; Match()
  // does not.
  void Save(ImageWriter* image);
  // Restores what Save() wrote: it matches and evicts as the saved one would. DataLoss for anything that
  // no tracker writes; the message is to follow the name of the file.
  static StatusOr<std::unique_ptr<BlockCacheTracker>> Load(ImageReader* image) ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Gives `worker` the blocks that `theirs` holds in `other`, in the same order of use, after its own. Unnamed ones are
  // not those that it has already.
  // REQUIRES: both hash alike, and no other thread uses `other`.
  void Adopt(WorkerSlot worker, const BlockCacheTracker& other, WorkerSlot theirs)
      ABSL_NO_THREAD_SAFETY_ANALYSIS;

  const BlockHasher& hasher() const { return hasher_; }

  // A worker that holds nothing. kResourceExhausted when there are kMaxWorkers.
  StatusOr<WorkerSlot> AddWorker();
  // Matched no more from now on; unknown ones: no effect.
  void RemoveWorker(WorkerSlot worker);

  // `worker` gets a request with these blocks, and behind them so many unnamed ones, so it has them now and
  // used them last. Beyond its capacity only the first blocks are kept. Unknown workers: no effect.
  void Record(WorkerSlot worker, std::span<const BlockHash> chain, size_t unnamed = 0);
  // The same for a request that has not ended: until its claim is confirmed, it may be withdrawn. 0: too
  // many claims are open, or the worker already holds all of it permanently.
  uint64_t RecordOpen(WorkerSlot worker, std::span<const BlockHash> chain, size_t unnamed = 0);
  // The request has ended, and the worker holds its blocks. Any thread, without a lock.
  void Confirm(uint64_t claim) { claims_.Confirm(claim); }
  // The worker never processed it: it keeps the blocks that it held before or that another request used
  // and did not withdraw. Blocks that were evicted for it do not come back.
  void Withdraw(uint64_t claim);

  // As BlockIndex's.
  void Match(std::span<const BlockHash> chain, BlockMatches* matches) const { index_.Match(chain, matches); }
  std::optional<BlockMatch> FindBest(
      std::span<const BlockHash> chain, const WorkerSlotSet* eligible, BlockMatches* matches) const {
    return index_.FindBest(chain, eligible, matches);
  }

  // Evicts the worker's oldest blocks until it holds at most `max_blocks`; returns their number.
  uint64_t Evict(WorkerSlot worker, uint64_t max_blocks);
  // Sets the capacity of every worker without one of its own, or of this worker until it is removed
  // (unknown ones: no effect). A worker above its capacity evicts the difference now.
  void SetCapacity(uint64_t max_blocks_per_worker);
  void SetCapacityOf(WorkerSlot worker, uint64_t max_blocks);
  // Forgets every block of every worker.
  void Clear();

  // Does a slice of the clean-up for removed workers; true while there is more.
  bool Sweep(size_t runs) { return index_.Sweep(runs); }

  bool Has(WorkerSlot worker) const;
  size_t slots() const;                          // ids given out so far are below
  uint64_t BlockCount(WorkerSlot worker) const;  // unnamed ones included
  uint64_t capacity() const;
  uint64_t CapacityOf(WorkerSlot worker) const;
  BlockCacheTrackerStats stats() const;
  const BlockIndex& index() const { return index_; }

 private:
  struct Cache {
    SegmentLru recency;
    std::optional<uint64_t> capacity;  // its own
  };
  // The blocks of a claim that were not permanent before.
  struct Claimed {
    WorkerSlot worker{};
    std::vector<uint32_t> runs;
    uint32_t unnamed = 0;  // the segment; 0: none
  };
  struct SavedRun;
  struct SavedSegment;
  // No other thread has the tracker while it is loaded.
  Status LoadSlots(ImageReader* image) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  Status LoadBlocks(ImageReader* image) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  StatusOr<std::vector<SavedSegment>> LoadSegments(ImageReader* image, std::span<const SavedRun> runs) const
      ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void RecordLocked(
      WorkerSlot worker, Cache* cache, std::span<const BlockHash> chain, size_t unnamed, uint64_t claim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Cache* Find(WorkerSlot worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t CapacityOf(const Cache& cache) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return cache.capacity.value_or(capacity_);
  }
  uint64_t HeldBy(WorkerSlot worker, const Cache& cache) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return index_.BlockCount(worker) + cache.recency.unnamed_blocks();
  }
  // Of the `held` blocks of the worker.
  uint64_t EvictLocked(WorkerSlot worker, Cache* cache, uint64_t held, uint64_t max_blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts each worker down to its capacity, or to `max_blocks` if given.
  void EvictAll(std::optional<uint64_t> max_blocks = std::nullopt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const BlockHasher hasher_;
  BlockIndex index_;

  mutable Mutex mutex_;  // taken before the index's own
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Cache>> caches_ ABSL_GUARDED_BY(mutex_);  // by worker; null: unknown
  std::vector<BlockSpan> spans_ ABSL_GUARDED_BY(mutex_);                // scratch space
  ClaimTable<Claimed> claims_;  // its Confirm() needs no lock, the rest does
  uint64_t recorded_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t recorded_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t evicted_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
