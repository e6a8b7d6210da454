#include "index/block_cache_tracker.h"

#include <algorithm>

namespace vllm_router {
namespace {

constexpr size_t kRunsPerSweep = 1000;

}  // namespace

BlockCacheTracker::BlockCacheTracker(const BlockCacheTrackerOptions& options)
    : hasher_(options.block_size, options.seed),
      index_({.prefix_closed = true}),
      capacity_(options.max_blocks_per_worker) {}

StatusOr<OwnerId> BlockCacheTracker::AddWorker() {
  const std::lock_guard lock(mutex_);
  StatusOr<OwnerId> worker = index_.AddOwner();
  if (!worker.ok()) {
    // Places of removed workers come back when what they held is swept.
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

BlockCacheTracker::Cache* BlockCacheTracker::Find(OwnerId worker) const {
  const auto number = static_cast<size_t>(worker);
  return number < caches_.size() ? caches_[number].get() : nullptr;
}

void BlockCacheTracker::RemoveWorker(OwnerId worker) {
  const std::lock_guard lock(mutex_);
  if (Find(worker) == nullptr) return;
  index_.RemoveOwner(worker);
  // What is known of its cache goes with it: the id may belong to another worker later.
  caches_[static_cast<size_t>(worker)].reset();
}

void BlockCacheTracker::Record(OwnerId worker, std::span<const BlockHash> chain) {
  const std::lock_guard lock(mutex_);
  Cache* const cache = Find(worker);
  if (cache != nullptr) RecordLocked(worker, cache, chain, 0);
}

uint64_t BlockCacheTracker::RecordOpen(OwnerId worker, std::span<const BlockHash> chain) {
  const std::lock_guard lock(mutex_);
  Cache* const cache = Find(worker);
  if (cache == nullptr) return 0;
  const auto fill = [&](Claimed& claimed) {
    claimed.worker = worker;
    claimed.runs.clear();
  };
  const uint64_t claim = claims_.Add(fill, [](const Claimed&) {});
  RecordLocked(worker, cache, chain, claim);
  if (claim == 0 || !claims_.Find(claim)->runs.empty()) return claim;
  claims_.Drop(claim);
  return 0;
}

void BlockCacheTracker::Withdraw(uint64_t claim) {
  const std::lock_guard lock(mutex_);
  const Claimed* const claimed = claims_.Find(claim);
  if (claimed == nullptr) return;
  Cache* const cache = Find(claimed->worker);
  if (cache != nullptr) {
    spans_.clear();
    for (const uint32_t run : claimed->runs) {
      const BlockSpan gone = cache->recency.Withdraw(run, claim, claims_);
      if (gone.count != 0) spans_.push_back(gone);
    }
    index_.Remove(claimed->worker, Tier::kGpu, spans_);
  }
  claims_.Drop(claim);
}

void BlockCacheTracker::RecordLocked(
    OwnerId worker, Cache* cache, std::span<const BlockHash> chain, uint64_t claim) {
  ++recorded_requests_;
  const uint64_t capacity = CapacityOf(*cache);
  // The later blocks would be the first to go.
  chain = chain.first(std::min<uint64_t>(chain.size(), capacity));
  spans_.clear();
  const InsertResult result = index_.Insert(worker, Tier::kGpu, BlockRef(), chain, &spans_);
  recorded_blocks_ += result.inserted;
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
  EvictLocked(worker, cache, result.owner_blocks, capacity);
}

uint64_t BlockCacheTracker::Evict(OwnerId worker, uint64_t max_blocks) {
  const std::lock_guard lock(mutex_);
  Cache* const cache = Find(worker);
  return cache == nullptr ? 0 : EvictLocked(worker, cache, index_.BlockCount(worker), max_blocks);
}

uint64_t BlockCacheTracker::EvictLocked(OwnerId worker, Cache* cache, uint64_t held, uint64_t max_blocks) {
  if (held <= max_blocks) return 0;
  spans_.clear();
  uint64_t evicted = 0;
  while (evicted < held - max_blocks) {
    const BlockSpan oldest = cache->recency.TakeOldest(held - max_blocks - evicted);
    if (oldest.count == 0) break;
    spans_.push_back(oldest);
    evicted += oldest.count;
  }
  index_.Remove(worker, Tier::kGpu, spans_);
  evicted_blocks_ += evicted;
  return evicted;
}

void BlockCacheTracker::EvictAll(std::optional<uint64_t> max_blocks) {
  for (size_t number = 0; number < caches_.size(); ++number) {
    const auto worker = static_cast<OwnerId>(number);
    Cache* const cache = caches_[number].get();
    if (cache == nullptr) continue;
    EvictLocked(worker, cache, index_.BlockCount(worker), max_blocks.value_or(CapacityOf(*cache)));
  }
}

void BlockCacheTracker::SetCapacity(uint64_t max_blocks_per_worker) {
  const std::lock_guard lock(mutex_);
  capacity_ = max_blocks_per_worker;
  EvictAll();
}

void BlockCacheTracker::SetCapacityOf(OwnerId worker, uint64_t max_blocks) {
  const std::lock_guard lock(mutex_);
  Cache* const cache = Find(worker);
  if (cache == nullptr) return;
  cache->capacity = max_blocks;
  EvictLocked(worker, cache, index_.BlockCount(worker), max_blocks);
}

void BlockCacheTracker::Clear() {
  const std::lock_guard lock(mutex_);
  EvictAll(0);
}

uint64_t BlockCacheTracker::capacity() const {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

uint64_t BlockCacheTracker::CapacityOf(OwnerId worker) const {
  const std::lock_guard lock(mutex_);
  const Cache* const cache = Find(worker);
  return cache == nullptr ? capacity_ : CapacityOf(*cache);
}

BlockCacheTrackerStats BlockCacheTracker::stats() const {
  const std::lock_guard lock(mutex_);
  BlockCacheTrackerStats stats;
  stats.index = index_.stats();
  stats.recorded_requests = recorded_requests_;
  stats.recorded_blocks = recorded_blocks_;
  stats.evicted_blocks = evicted_blocks_;
  for (const std::unique_ptr<Cache>& cache : caches_) {
    if (cache == nullptr) continue;
    stats.segments += cache->recency.segments();
    stats.lru_bytes += cache->recency.bytes();
  }
  stats.bytes = stats.index.bytes + stats.lru_bytes;
  return stats;
}

}  // namespace vllm_router
