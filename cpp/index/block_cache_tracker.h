// BlockCacheTracker: what each worker's prefix cache should hold, guessed from the requests sent to it. A worker that
// worked on a prompt has its blocks; the ones it used longest ago go when it has more than its capacity, the later
// block of a prompt before the earlier, as vLLM does it.
//
//   Record(w1, a b c d)    w1: a b c d
//   Record(w1, a b x)      w1: x and, again, b a are the newest        capacity 4: d has to go
//   FindBest(a b c y)      w1 holds 3 of 4
//
// Exact about what was recorded: BlockIndex finds the longest prefix without a gap, whatever was evicted. Time is a
// count of records, so there is no clock; asking refreshes nothing, the record that follows a decision does.
//
// Cost: Record some ns per block and 0.1 us per run of the prompt, its share of eviction included; FindBest 0.1 to 0.5 us.
// Memory about 10 bytes per (worker, block).
//
// Thread-safe. Match and FindBest never wait. What changes it takes a mutex, and with it held calls the index, whose
// own mutex is the leaf.
//
//   BlockCacheTracker tracker({.block_size = 16, .max_blocks_per_worker = 100'000});
//   const OwnerId w1 = tracker.AddWorker().value();
//   tracker.Record(w1, chain);
//   tracker.FindBest(chain, &eligible, &matches);      // BlockMatches, one per thread
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "hashing/block_hash.h"
#include "index/block_index.h"
#include "index/block_matches.h"
#include "index/claim_table.h"
#include "index/index_image.h"
#include "index/owner_id.h"
#include "index/segment_lru.h"

namespace vllm_router {

struct BlockCacheTrackerOptions {
  uint32_t block_size = 16;  // tokens; the engine's
  // Blocks kept per worker: as many as its cache holds. Too high promises what is gone, too low forgets what is there.
  uint64_t max_blocks_per_worker = 100'000;
  uint64_t seed = 0;  // of the hashes
};

struct BlockCacheTrackerStats {
  BlockIndexStats index;
  uint64_t recorded_requests = 0;  // also the time: every record is one tick
  uint64_t recorded_blocks = 0;
  uint64_t evicted_blocks = 0;
  uint64_t segments = 0;
  uint64_t lru_bytes = 0;
  uint64_t bytes = 0;  // all of it, the index's too
};

class BlockCacheTracker {
 public:
  // REQUIRES: 0 < block_size <= kMaxBlockSize.
  explicit BlockCacheTracker(const BlockCacheTrackerOptions& options = {});

  // All of it but claims: what open requests use counts as used. Who records waits meanwhile; who matches does not.
  void Save(ImageWriter* image);
  // What Save() wrote: it answers and gives up blocks as that one would. DataLoss, in words that go behind the name of the
  // file, for anything that no tracker writes.
  static StatusOr<std::unique_ptr<BlockCacheTracker>> Load(ImageReader* image);

  // `worker` used what `theirs` holds in `other`, in the same order, after whatever it has used so far. REQUIRES: both hash
  // alike, and no other thread uses `other`.
  void Adopt(OwnerId worker, const BlockCacheTracker& other, OwnerId theirs);

  const BlockHasher& hasher() const { return hasher_; }

  // A worker that holds nothing. kResourceExhausted when there are kMaxWorkers.
  StatusOr<OwnerId> AddWorker();
  // Matched no more from now on; unknown ones: nothing.
  void RemoveWorker(OwnerId worker);

  // `worker` gets a request with these blocks, so it has them now and used them last. Of more blocks than it may hold
  // only the first ones stay. Unknown workers: nothing.
  void Record(OwnerId worker, std::span<const BlockHash> chain);
  // The same for a request that has not ended: until its claim is confirmed, it may be withdrawn. 0: too many are open, or
  // the worker holds all of it for good.
  uint64_t RecordOpen(OwnerId worker, std::span<const BlockHash> chain);
  // The request has ended, and the worker holds its blocks. Any thread, without a lock.
  void Confirm(uint64_t claim) { claims_.Confirm(claim); }
  // The worker never worked on it: it holds those of its blocks that it held before or that another request used, which
  // was not withdrawn. What was given up to make room does not come back.
  void Withdraw(uint64_t claim);

  // As BlockIndex's.
  void Match(std::span<const BlockHash> chain, BlockMatches* matches) const { index_.Match(chain, matches); }
  std::optional<BlockMatch> FindBest(
      std::span<const BlockHash> chain, const OwnerSet* eligible, BlockMatches* matches) const {
    return index_.FindBest(chain, eligible, matches);
  }

  // Gives up the worker's oldest blocks until it holds at most `max_blocks`; how many those were.
  uint64_t Evict(OwnerId worker, uint64_t max_blocks);
  // Another capacity for every worker that has none of its own, and one of its own for this worker, until it is removed
  // (unknown ones: nothing). Who has more gives up the difference now.
  void SetCapacity(uint64_t max_blocks_per_worker);
  void SetCapacityOf(OwnerId worker, uint64_t max_blocks);
  // Forgets every block of every worker.
  void Clear();

  // A slice of the work that removed workers left; true while there is more.
  bool Sweep(size_t runs) { return index_.Sweep(runs); }

  bool Has(OwnerId worker) const;
  size_t slots() const;  // ids given out so far are below
  uint64_t BlockCount(OwnerId worker) const { return index_.BlockCount(worker); }
  uint64_t capacity() const;
  uint64_t CapacityOf(OwnerId worker) const;
  BlockCacheTrackerStats stats() const;
  const BlockIndex& index() const { return index_; }

 private:
  struct Cache {
    SegmentLru recency;
    std::optional<uint64_t> capacity;  // its own
  };
  // Where a claim's blocks are that did not last before.
  struct Claimed {
    OwnerId worker{};
    std::vector<uint32_t> runs;
  };
  struct SavedRun;
  struct SavedSegment;
  Status LoadSlots(ImageReader* image);
  Status LoadBlocks(ImageReader* image);
  StatusOr<std::vector<SavedSegment>> LoadSegments(ImageReader* image, std::span<const SavedRun> runs) const;
  void RecordLocked(OwnerId worker, Cache* cache, std::span<const BlockHash> chain, uint64_t claim);
  Cache* Find(OwnerId worker) const;
  uint64_t CapacityOf(const Cache& cache) const { return cache.capacity.value_or(capacity_); }
  // Of the `held` blocks of the worker.
  uint64_t EvictLocked(OwnerId worker, Cache* cache, uint64_t held, uint64_t max_blocks);
  // Each worker down to its capacity, or to `max_blocks` if that is given.
  void EvictAll(std::optional<uint64_t> max_blocks = std::nullopt);

  const BlockHasher hasher_;
  BlockIndex index_;

  mutable std::mutex mutex_;  // taken before the index's own; guards what follows
  uint64_t capacity_;
  std::vector<std::unique_ptr<Cache>> caches_;  // by worker; null: unknown
  std::vector<BlockSpan> spans_;                // room to work in
  ClaimTable<Claimed> claims_;
  uint64_t recorded_requests_ = 0;
  uint64_t recorded_blocks_ = 0;
  uint64_t evicted_blocks_ = 0;
};

}  // namespace vllm_router
