#include "response_cache/memory_store.h"

#include <algorithm>
#include <utility>

namespace vllm_router {

MemoryStore::MemoryStore(const Limits& limits) : shards_(limits.entries >= kShardedCapacity ? kShards : 1) {
  SetLimits(limits);
}

MemoryStore::Limits MemoryStore::ShareOf(const Limits& limits) const {
  return {
      .entries = std::max<size_t>(1, limits.entries / shards_.size()),
      .bytes = limits.bytes / shards_.size()};
}

MemoryStore::Value MemoryStore::Get(const CacheKey& key, int64_t now_ns) {
  Entries gone;
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  const auto place = shard.places.find(key);
  if (place == shard.places.end()) return nullptr;
  const Entries::iterator entry = place->second;
  if (entry->expires_ns <= now_ns) {
    ++shard.stats.expired;
    shard.Remove(entry, &gone);
    return nullptr;
  }
  shard.by_use.splice(shard.by_use.end(), shard.by_use, entry);
  return entry->value;
}

bool MemoryStore::Set(const CacheKey& key, Value value, int64_t expires_ns, int64_t now_ns) {
  Entries gone;
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  if (const auto place = shard.places.find(key); place != shard.places.end())
    shard.Remove(place->second, &gone);
  shard.Expire(now_ns, kSweptPerSet, &gone);
  if (expires_ns <= now_ns || value->size() + kEntryBytes > shard.limits.bytes / 4) return false;

  const Entries::iterator entry = shard.by_use.insert(
      shard.by_use.end(), {.key = key, .value = std::move(value), .expires_ns = expires_ns, .by_age = {}});
  entry->by_age = shard.by_age.insert(shard.by_age.end(), entry);
  shard.places[key] = entry;
  ++shard.stats.entries;
  shard.stats.bytes += entry->bytes();
  while (shard.TrimOne(&gone)) continue;
  return true;
}

bool MemoryStore::Delete(const CacheKey& key) {
  Entries gone;
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  const auto place = shard.places.find(key);
  if (place == shard.places.end()) return false;
  shard.Remove(place->second, &gone);
  return true;
}

size_t MemoryStore::Clear() {
  size_t cleared = 0;
  for (Shard& shard : shards_) {
    Entries gone;
    absl::flat_hash_map<CacheKey, Entries::iterator, CacheKeyHash> places;
    std::list<Entries::iterator> by_age;
    const MutexLock lock(shard.mutex);
    gone.swap(shard.by_use);
    places.swap(shard.places);
    by_age.swap(shard.by_age);
    cleared += shard.stats.entries;
    shard.stats.entries = 0;
    shard.stats.bytes = 0;
  }
  return cleared;
}

void MemoryStore::Sweep(int64_t now_ns, size_t most) {
  for (Shard& shard : shards_) {
    Entries gone;
    const MutexLock lock(shard.mutex);
    shard.Expire(now_ns, most, &gone);
  }
}

void MemoryStore::SetLimits(const Limits& limits) {
  constexpr size_t kTrimmedAtOnce = 1024;
  for (Shard& shard : shards_) {
    for (bool more = true; more;) {
      Entries gone;
      const MutexLock lock(shard.mutex);
      shard.limits = ShareOf(limits);
      while (more && gone.size() < kTrimmedAtOnce) more = shard.TrimOne(&gone);
    }
  }
}

MemoryStore::Stats MemoryStore::stats() const {
  Stats sum;
  for (const Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    sum.entries += shard.stats.entries;
    sum.bytes += shard.stats.bytes;
    sum.evicted += shard.stats.evicted;
    sum.evicted_bytes += shard.stats.evicted_bytes;
    sum.expired += shard.stats.expired;
  }
  return sum;
}

void MemoryStore::Shard::Remove(Entries::iterator entry, Entries* gone) {
  --stats.entries;
  stats.bytes -= entry->bytes();
  places.erase(entry->key);
  by_age.erase(entry->by_age);
  gone->splice(gone->end(), by_use, entry);
}

void MemoryStore::Shard::Expire(int64_t now_ns, size_t most, Entries* gone) {
  // Values live equally long, but for a limit that was changed; so the first one that has not expired ends the search.
  for (size_t i = 0; i < most && !by_age.empty() && by_age.front()->expires_ns <= now_ns; ++i) {
    ++stats.expired;
    Remove(by_age.front(), gone);
  }
}

bool MemoryStore::Shard::TrimOne(Entries* gone) {
  if (stats.entries <= limits.entries && stats.bytes <= limits.bytes) return false;
  ++stats.evicted;
  stats.evicted_bytes += by_use.front().bytes();
  Remove(by_use.begin(), gone);
  return true;
}

}  // namespace vllm_router
