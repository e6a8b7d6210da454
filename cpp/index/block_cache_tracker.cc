#include "index/block_cache_tracker.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "base/limits.h"

namespace vllm_router {
namespace {

constexpr size_t kRunsPerSweep = 1000;

// The state of a worker's slot in an image.
enum SlotState : uint8_t { kFreeSlot = 0, kCommonCapacity = 1, kOwnCapacity = 2 };

// The run of a segment of unnamed blocks in an image.
constexpr uint32_t kNoRun = UINT32_MAX;

}  // namespace

BlockCacheTracker::BlockCacheTracker(const BlockCacheTrackerOptions& options)
    : hasher_(options.block_size, options.seed),
      index_({.prefix_closed = true}),
      capacity_(options.max_blocks_per_worker) {}

StatusOr<WorkerSlot> BlockCacheTracker::AddWorker() {
  const MutexLock lock(mutex_);
  StatusOr<WorkerSlot> worker = index_.AddOwner();
  if (!worker.ok()) {
    // Slots of removed workers are free again when their blocks have been swept.
    while (index_.Sweep(kRunsPerSweep)) {
    }
    worker = index_.AddOwner();
    if (!worker.ok()) return worker;
  }
  const auto number = static_cast<size_t>(*worker);
  if (number >= caches_.size()) caches_.resize(number + 1);
  caches_[number] = std::make_unique<Cache>();
  return worker;
}

BlockCacheTracker::Cache* BlockCacheTracker::Find(WorkerSlot worker) const {
  const auto number = static_cast<size_t>(worker);
  return number < caches_.size() ? caches_[number].get() : nullptr;
}

void BlockCacheTracker::RemoveWorker(WorkerSlot worker) {
  const MutexLock lock(mutex_);
  if (Find(worker) == nullptr) return;
  index_.RemoveOwner(worker);
  // What is known of its cache is dropped too: the id may belong to another worker later.
  caches_[static_cast<size_t>(worker)].reset();
}

void BlockCacheTracker::Record(WorkerSlot worker, std::span<const BlockHash> chain, size_t unnamed) {
  const MutexLock lock(mutex_);
  Cache* const cache = Find(worker);
  if (cache == nullptr) return;
  ++recorded_requests_;
  RecordLocked(worker, cache, chain, unnamed, 0);
}

uint64_t BlockCacheTracker::RecordOpen(WorkerSlot worker, std::span<const BlockHash> chain, size_t unnamed) {
  const MutexLock lock(mutex_);
  Cache* const cache = Find(worker);
  if (cache == nullptr) return 0;
  const auto fill = [&](Claimed& claimed) {
    claimed.worker = worker;
    claimed.runs.clear();
    claimed.unnamed = 0;
  };
  const uint64_t claim = claims_.Add(fill, [](const Claimed&) {});
  ++recorded_requests_;
  RecordLocked(worker, cache, chain, unnamed, claim);
  if (claim == 0) return 0;
  const Claimed& claimed = *claims_.Find(claim);
  if (!claimed.runs.empty() || claimed.unnamed != 0) return claim;
  claims_.Drop(claim);
  return 0;
}

void BlockCacheTracker::Withdraw(uint64_t claim) {
  const MutexLock lock(mutex_);
  const Claimed* const claimed = claims_.Find(claim);
  if (claimed == nullptr) return;
  Cache* const cache = Find(claimed->worker);
  if (cache != nullptr) {
    spans_.clear();
    for (const uint32_t run : claimed->runs) {
      const BlockSpan gone = cache->recency.Withdraw(run, claim, claims_);
      if (gone.count != 0) spans_.push_back(gone);
    }
    cache->recency.WithdrawUnnamed(claimed->unnamed, claim);
    index_.Remove(claimed->worker, Tier::kGpu, spans_);
  }
  claims_.Drop(claim);
}

void BlockCacheTracker::RecordLocked(
    WorkerSlot worker, Cache* cache, std::span<const BlockHash> chain, size_t unnamed, uint64_t claim) {
  const uint64_t capacity = CapacityOf(*cache);
  // The later blocks would be evicted first.
  chain = chain.first(std::min<uint64_t>(chain.size(), capacity));
  unnamed = std::min<uint64_t>({unnamed, capacity - chain.size(), UINT32_MAX});
  spans_.clear();
  const InsertResult result = index_.Insert(worker, Tier::kGpu, BlockRef(), chain, &spans_);
  recorded_blocks_ += result.inserted + unnamed;
  if (unnamed != 0) {  // older than the prompt's
    const uint32_t segment = cache->recency.AddUnnamed(static_cast<uint32_t>(unnamed), claim);
    if (claim != 0) claims_.Find(claim)->unnamed = segment;
  }
  for (size_t i = spans_.size(); i-- > 0;) {
    // Several spans of one run follow one another; the last of them reaches furthest.
    const bool goes_on = i + 1 < spans_.size() && spans_[i + 1].first == spans_[i].first + spans_[i].count;
    if (goes_on) continue;
    if (claim == 0) {
      cache->recency.Touch(spans_[i]);
    } else if (cache->recency.Touch(spans_[i], claim, claims_)) {
      claims_.Find(claim)->runs.push_back(spans_[i].first.run());
    }
  }
  EvictLocked(worker, cache, result.owner_blocks + cache->recency.unnamed_blocks(), capacity);
}

uint64_t BlockCacheTracker::Evict(WorkerSlot worker, uint64_t max_blocks) {
  const MutexLock lock(mutex_);
  Cache* const cache = Find(worker);
  return cache == nullptr ? 0 : EvictLocked(worker, cache, HeldBy(worker, *cache), max_blocks);
}

uint64_t BlockCacheTracker::EvictLocked(WorkerSlot worker, Cache* cache, uint64_t held, uint64_t max_blocks) {
  if (held <= max_blocks) return 0;
  spans_.clear();
  uint64_t evicted = 0;
  while (evicted < held - max_blocks) {
    const BlockSpan oldest = cache->recency.TakeOldest(held - max_blocks - evicted);
    if (oldest.count == 0) break;
    if (!oldest.first.is_root()) spans_.push_back(oldest);
    evicted += oldest.count;
  }
  if (!spans_.empty()) index_.Remove(worker, Tier::kGpu, spans_);
  evicted_blocks_ += evicted;
  return evicted;
}

void BlockCacheTracker::EvictAll(std::optional<uint64_t> max_blocks) {
  for (size_t number = 0; number < caches_.size(); ++number) {
    const auto worker = static_cast<WorkerSlot>(number);
    Cache* const cache = caches_[number].get();
    if (cache == nullptr) continue;
    EvictLocked(worker, cache, HeldBy(worker, *cache), max_blocks.value_or(CapacityOf(*cache)));
  }
}

void BlockCacheTracker::SetCapacity(uint64_t max_blocks_per_worker) {
  const MutexLock lock(mutex_);
  capacity_ = max_blocks_per_worker;
  EvictAll();
}

void BlockCacheTracker::SetCapacityOf(WorkerSlot worker, uint64_t max_blocks) {
  const MutexLock lock(mutex_);
  Cache* const cache = Find(worker);
  if (cache == nullptr) return;
  cache->capacity = max_blocks;
  EvictLocked(worker, cache, HeldBy(worker, *cache), max_blocks);
}

void BlockCacheTracker::Clear() {
  const MutexLock lock(mutex_);
  EvictAll(0);
}

uint64_t BlockCacheTracker::BlockCount(WorkerSlot worker) const {
  const MutexLock lock(mutex_);
  const Cache* const cache = Find(worker);
  return cache == nullptr ? 0 : HeldBy(worker, *cache);
}

uint64_t BlockCacheTracker::capacity() const {
  const MutexLock lock(mutex_);
  return capacity_;
}

uint64_t BlockCacheTracker::CapacityOf(WorkerSlot worker) const {
  const MutexLock lock(mutex_);
  const Cache* const cache = Find(worker);
  return cache == nullptr ? capacity_ : CapacityOf(*cache);
}

bool BlockCacheTracker::Has(WorkerSlot worker) const {
  const MutexLock lock(mutex_);
  return Find(worker) != nullptr;
}

size_t BlockCacheTracker::slots() const {
  const MutexLock lock(mutex_);
  return caches_.size();
}

// ---- Images ------------------------------------------------------------------------------------------

// Runs get numbers in the order in which workers' segments name them. A worker holds a run up to the end
// of its deepest segment there, which is its oldest. Unnamed blocks are of no run.
void BlockCacheTracker::Save(ImageWriter* image) {
  const MutexLock lock(mutex_);
  while (index_.Sweep(kRunsPerSweep)) {
  }
  image->Number(hasher_.block_size());
  image->Number(hasher_.seed());
  image->Number(capacity_);
  image->Number(recorded_requests_);
  image->Number(recorded_blocks_);
  image->Number(evicted_blocks_);

  image->Number(uint64_t{caches_.size()});
  for (const std::unique_ptr<Cache>& cache : caches_) {
    image->Number(static_cast<uint8_t>(
        cache == nullptr  ? kFreeSlot
        : cache->capacity ? kOwnCapacity
                          : kCommonCapacity));
    if (cache != nullptr && cache->capacity) image->Number(*cache->capacity);
  }
  const std::vector<WorkerSlot> free = index_.FreeOwners();
  image->Number(uint64_t{free.size()});
  for (const WorkerSlot slot : free) image->Number(static_cast<uint16_t>(slot));

  absl::flat_hash_map<uint32_t, uint32_t> numbers;
  std::vector<BlockRef> runs;
  ImageWriter segments;
  std::vector<std::pair<uint32_t, uint32_t>> of_one;
  for (const std::unique_ptr<Cache>& cache : caches_) {
    if (cache == nullptr) continue;
    of_one.clear();
    cache->recency.ForEach([&](BlockRef head, uint32_t end) {
      if (head.is_root()) {
        of_one.emplace_back(kNoRun, end);
        return;
      }
      const auto [known, is_new] = numbers.emplace(head.run(), static_cast<uint32_t>(runs.size()));
      if (is_new) runs.push_back(head);
      of_one.emplace_back(known->second, end);
    });
    segments.Number(uint64_t{of_one.size()});
    for (const auto& [run, end] : of_one) {
      segments.Number(run);
      segments.Number(end);
    }
  }
  image->Number(uint64_t{runs.size()});
  std::vector<BlockHash> blocks;
  for (const BlockRef run : runs) {
    blocks.clear();
    index_.CopyRun(run, &blocks);
    image->Number(static_cast<uint32_t>(blocks.size()));
    image->Array(std::span<const BlockHash>(blocks));
  }
  image->Append(segments);
}

void BlockCacheTracker::Adopt(WorkerSlot worker, const BlockCacheTracker& other, WorkerSlot theirs) {
  const Cache* const source = other.Find(theirs);
  if (source == nullptr) return;
  std::vector<BlockHash> blocks;
  source->recency.ForEach([&](BlockRef head, uint32_t end) {
    blocks.clear();
    const bool unnamed = head.is_root();
    if (!unnamed) {
      other.index_.CopyRun(head, &blocks);
      blocks.resize(end);
    }
    const MutexLock lock(mutex_);
    Cache* const cache = Find(worker);
    if (cache != nullptr) RecordLocked(worker, cache, blocks, unnamed ? end : 0, 0);
  });
}

struct BlockCacheTracker::SavedRun {
  std::string_view bytes;
  uint32_t length = 0;
  BlockRef head{};
};

struct BlockCacheTracker::SavedSegment {
  uint32_t run;
  uint32_t end;
  WorkerSlot worker;
  bool is_deepest;  // of the worker's in this run
};

StatusOr<std::unique_ptr<BlockCacheTracker>> BlockCacheTracker::Load(ImageReader* image) {
  BlockCacheTrackerOptions options;
  options.block_size = image->Number<uint32_t>();
  options.seed = image->Number<uint64_t>();
  options.max_blocks_per_worker = image->Number<uint64_t>();
  if (options.block_size == 0 || options.block_size > kMaxBlockSize) {
    return BadImage("its block size is ", options.block_size, "; it must be 1 to ", kMaxBlockSize, " tokens");
  }
  auto tracker = std::make_unique<BlockCacheTracker>(options);
  tracker->recorded_requests_ = image->Number<uint64_t>();
  tracker->recorded_blocks_ = image->Number<uint64_t>();
  tracker->evicted_blocks_ = image->Number<uint64_t>();
  ROUTER_RETURN_IF_ERROR(tracker->LoadSlots(image));
  ROUTER_RETURN_IF_ERROR(tracker->LoadBlocks(image));
  ROUTER_RETURN_IF_ERROR(image->End());
  return tracker;
}

Status BlockCacheTracker::LoadSlots(ImageReader* image) {
  const uint64_t count = image->Count(1);
  if (count > kMaxWorkers)
    return BadImage("it has ", count, " places for workers; at most ", kMaxWorkers, " are known");
  std::vector<uint8_t> states(count);
  size_t free = 0;
  for (size_t slot = 0; slot < count; ++slot) {
    states[slot] = image->Number<uint8_t>();
    if (states[slot] > kOwnCapacity) {
      return BadImage(
          "place ", slot, " for a worker has the state ", int{states[slot]}, "; it must be 0, 1 or 2");
    }
    ROUTER_RETURN_IF_ERROR(AddWorker().status());
    if (states[slot] == kFreeSlot) ++free;
    if (states[slot] == kOwnCapacity) caches_[slot]->capacity = image->Number<uint64_t>();
  }
  if (image->Count(sizeof(uint16_t)) != free) {
    return BadImage("it does not list its ", free, " free places for workers");
  }
  for (size_t i = 0; i < free; ++i) {
    const auto slot = image->Number<uint16_t>();
    if (slot >= count || states[slot] != kFreeSlot) {
      return BadImage(
          "its list of free places for workers has ", slot, ", which is not one, or appears twice");
    }
    states[slot] = kCommonCapacity;
    RemoveWorker(static_cast<WorkerSlot>(slot));
    while (index_.Sweep(kRunsPerSweep)) {
    }
  }
  return absl::OkStatus();
}

// In the order of use, the oldest first, worker by worker.
StatusOr<std::vector<BlockCacheTracker::SavedSegment>> BlockCacheTracker::LoadSegments(
    ImageReader* image, std::span<const SavedRun> runs) const {
  std::vector<SavedSegment> segments;
  absl::flat_hash_map<uint32_t, uint32_t> ends;  // of the segments of a run so far
  for (size_t number = 0; number < caches_.size(); ++number) {
    if (caches_[number] == nullptr) continue;
    ends.clear();
    const uint64_t count = image->Count(2 * sizeof(uint32_t));
    for (uint64_t i = 0; i < count; ++i) {
      const auto run = image->Number<uint32_t>();
      const auto end = image->Number<uint32_t>();
      if (run == kNoRun) {
        if (end == 0) return BadImage("worker ", number, " has a segment of no unnamed blocks");
        segments.push_back({run, end, static_cast<WorkerSlot>(number), false});
        continue;
      }
      if (run >= runs.size()) {
        return BadImage("worker ", number, " holds run ", run, "; there are ", runs.size());
      }
      const auto [deeper, is_deepest] = ends.emplace(run, end);
      // A later use of a run that reaches further would have replaced the earlier one.
      if (end == 0 || end > runs[run].length || (!is_deepest && end >= deeper->second)) {
        return BadImage(
            "worker ", number, " holds run ", run, " up to ", end, "; it must be 1 to ",
            is_deepest ? runs[run].length : deeper->second - 1);
      }
      deeper->second = end;
      segments.push_back({run, end, static_cast<WorkerSlot>(number), is_deepest});
    }
  }
  return segments;
}

Status BlockCacheTracker::LoadBlocks(ImageReader* image) {
  std::vector<SavedRun> runs(image->Count(sizeof(uint32_t) + sizeof(BlockHash)));
  uint64_t total = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].length = image->Number<uint32_t>();
    if (runs[i].length == 0 || runs[i].length > kMaxRunBlocks) {
      return BadImage("run ", i, " has ", runs[i].length, " blocks; it must have 1 to ", kMaxRunBlocks);
    }
    runs[i].bytes = image->Bytes(runs[i].length * sizeof(BlockHash));
    total += runs[i].length;
  }
  const StatusOr<std::vector<SavedSegment>> segments = LoadSegments(image, runs);
  if (!segments.ok()) return segments.status();
  std::vector<SavedSegment> holders;
  for (const SavedSegment& segment : *segments) {
    if (segment.is_deepest) holders.push_back(segment);
  }

  // The owner that holds most of a run inserts it first, so that those of the others are known blocks.
  std::sort(holders.begin(), holders.end(), [](const SavedSegment& a, const SavedSegment& b) {
    if (a.run != b.run) return a.run < b.run;
    return a.end != b.end ? a.end > b.end : a.worker < b.worker;
  });
  absl::flat_hash_set<BlockHash> seen;
  seen.reserve(total);
  std::vector<BlockHash> blocks;
  size_t next = 0;  // run
  for (const SavedSegment& holder : holders) {
    SavedRun& run = runs[holder.run];
    const bool is_first = holder.run == next;
    if (is_first) {
      ++next;
      blocks.resize(run.length);
      std::memcpy(blocks.data(), run.bytes.data(), run.bytes.size());
      for (const BlockHash block : blocks) {
        if (!seen.insert(block).second)
          return BadImage("block ", block, " of run ", holder.run, " appears twice");
      }
      if (holder.end != run.length) {
        return BadImage("run ", holder.run, " has ", run.length, " blocks and is held up to ", holder.end);
      }
    } else if (holder.run != next - 1) {
      break;  // a run was skipped
    }
    spans_.clear();
    const InsertResult result = index_.Insert(
        holder.worker, Tier::kGpu, BlockRef(), std::span<const BlockHash>(blocks).first(holder.end), &spans_);
    if (result.status != InsertStatus::kInserted || spans_.empty() || spans_[0].first.offset() != 0) {
      return BadImage("its ", total, " blocks are more than an index takes");
    }
    if (is_first) run.head = spans_[0].first;
  }
  if (next != runs.size()) return BadImage("run ", next, " belongs to no worker");
  std::vector<uint64_t> unnamed(caches_.size());
  for (const SavedSegment& segment : *segments) {
    if (segment.run == kNoRun) unnamed[static_cast<size_t>(segment.worker)] += segment.end;
  }
  for (size_t number = 0; number < caches_.size(); ++number) {
    if (caches_[number] == nullptr) continue;
    const uint64_t held = index_.BlockCount(static_cast<WorkerSlot>(number)) + unnamed[number];
    if (held > CapacityOf(*caches_[number])) {
      return BadImage(
          "worker ", number, " holds ", held, " blocks; its capacity is ", CapacityOf(*caches_[number]));
    }
  }
  for (const SavedSegment& segment : *segments) {
    SegmentLru& recency = caches_[static_cast<size_t>(segment.worker)]->recency;
    if (segment.run == kNoRun) {
      recency.AddUnnamed(segment.end, 0);
    } else {
      recency.Touch(BlockSpan{runs[segment.run].head, segment.end});
    }
  }
  return absl::OkStatus();
}

BlockCacheTrackerStats BlockCacheTracker::stats() const {
  const MutexLock lock(mutex_);
  BlockCacheTrackerStats stats;
  stats.index = index_.stats();
  stats.recorded_requests = recorded_requests_;
  stats.recorded_blocks = recorded_blocks_;
  stats.evicted_blocks = evicted_blocks_;
  for (const std::unique_ptr<Cache>& cache : caches_) {
    if (cache == nullptr) continue;
    stats.unnamed_blocks += cache->recency.unnamed_blocks();
    stats.segments += cache->recency.segments();
    stats.lru_bytes += cache->recency.bytes();
  }
  stats.bytes = stats.index.bytes + stats.lru_bytes;
  return stats;
}

}  // namespace vllm_router
