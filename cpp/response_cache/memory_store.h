// MemoryStore: values under keys in memory, each for a time. When it is full, the least recently used leaves.
//
//   Set(key, value, expires)     newest in both orders
//   Get(key)                     becomes the most recently used; an expired value is none
//
//   by use      least recent ── … ── most recent        who leaves when there is no room
//   by age      oldest ── … ── newest                   where expired values are looked for
//
// Bounded by entries and by bytes: a value counts its size and kEntryBytes besides, and one that would take more than a
// quarter of all bytes is not kept. Values are shared, so one that leaves while it is being sent lives until then, and
// memory is freed outside the lock.
//
// From kShardedCapacity entries on there are kShards parts with a lock each, and each part has its share of the bounds;
// below, order of use is exact. Expired values leave when they are found, or a few with each Set(), or by Sweep().
// Times are passed in. Cost, one thread: 0.03 to 0.3 us. Thread-safe: leaf locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "response_cache/request_digest.h"

namespace vllm_router {

class MemoryStore {
 public:
  using Value = std::shared_ptr<const std::string>;

  static constexpr size_t kEntryBytes = 160;
  static constexpr size_t kShardedCapacity = 16'384;
  static constexpr size_t kShards = 16;
  static constexpr size_t kSweptPerSet = 64;

  struct Limits {
    size_t entries;
    size_t bytes;
  };

  explicit MemoryStore(const Limits& limits);

  // Null: none, or an expired one.
  Value Get(const CacheKey& key, int64_t now_ns);
  // Replaces what was there, which is gone even if the new value is too large to be kept (false).
  bool Set(const CacheKey& key, Value value, int64_t expires_ns, int64_t now_ns);
  // True if there was one, expired or not.
  bool Delete(const CacheKey& key);
  // How many there were, expired or not.
  size_t Clear();
  // Removes expired values, at most `most` of each shard.
  void Sweep(int64_t now_ns, size_t most);
  // Lower limits remove the least recently used at once.
  void SetLimits(const Limits& limits);

  struct Stats {
    size_t entries = 0;
    size_t bytes = 0;
    uint64_t evicted = 0;  // for want of room
    uint64_t evicted_bytes = 0;
    uint64_t expired = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    CacheKey key;
    Value value;
    int64_t expires_ns;
    std::list<std::list<Entry>::iterator>::iterator by_age;
    size_t bytes() const { return value->size() + kEntryBytes; }
  };
  using Entries = std::list<Entry>;

  struct Shard {
    mutable Mutex mutex;
    Limits limits ABSL_GUARDED_BY(mutex);
    Entries by_use ABSL_GUARDED_BY(mutex);  // the least recently used first
    std::list<Entries::iterator> by_age ABSL_GUARDED_BY(mutex);
    absl::flat_hash_map<CacheKey, Entries::iterator, CacheKeyHash> places ABSL_GUARDED_BY(mutex);
    Stats stats ABSL_GUARDED_BY(mutex);

    // Moves an entry to `gone`, which is freed outside the lock.
    void Remove(Entries::iterator entry, Entries* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void Expire(int64_t now_ns, size_t most, Entries* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    // False: it is within its limits.
    bool TrimOne(Entries* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };

  Shard& ShardOf(const CacheKey& key) { return shards_[key[8] % shards_.size()]; }
  Limits ShareOf(const Limits& limits) const;

  std::vector<Shard> shards_;
};

}  // namespace vllm_router
