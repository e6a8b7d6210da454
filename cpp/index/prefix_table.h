// PrefixTable: which workers' KV caches hold a prefix, and how many tokens of it, as the workers tell by
// events. A prefix is named by its digest (routing/prefix_digest.h), not by its blocks.
//
//   542e8d85…   w7: 2048 tokens, GPU       w9: 512 tokens, storage
//   9bc41fce…   w9:  768 tokens, GPU                                    three entries, two prefixes
//
//   table.Put(digest, worker, 2048, /*on_gpu=*/true, now);
//   table.Find(digest, now, &held);        // a use of the prefix: a hit, if a worker holds it
//
// An entry, a worker of a prefix, expires a while after the last event that named it. When there are
// max_entries, the workers with the most entries lose those whose prefixes were not used for longest, by event
// or hit, until a tenth of all entries has gone; of a large table a part with each Put(). So no worker's events
// evict what another one, with fewer entries, holds. A prefix has at most kMaxHolders of them. A worker that has
// left has none and gets none: writers name workers by id, and no id is given twice.
//
// Cost: Find and Put hash the digest, look it up and hold one short mutex of a shard: 0.2 us, with a million
// entries up to 1 us; 160 bytes per entry of a prefix's first worker, 80 of others. Removing a worker: 0.35 us
// per entry of it. Time is passed in. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/container/inlined_vector.h>
#include <absl/hash/hash.h>

#include "base/mutex.h"
#include "hashing/sha256.h"
#include "worker/worker.h"

namespace vllm_router {

// Which events say that a worker holds a prefix in storage, instead of not at all.
enum class StorageOffloading : uint8_t {
  kOff,
  kOffloads,   // those of an offload
  kEvictions,  // those of an eviction too
};

struct PrefixTableOptions {
  uint64_t max_entries = 100'000;                          // at least 1
  int64_t ttl_ns = 600'000'000'000;                        // since the last event about an entry
  uint32_t tokens_if_untold = 16;                          // of an entry whose events never told: a block
  StorageOffloading offloading = StorageOffloading::kOff;  // for writers; the table stores what it is told
};

class PrefixTable {
 public:
  static constexpr size_t kMaxHolders = 64;

  // A worker and what it holds of the prefix.
  struct Held {
    WorkerId worker;
    uint32_t tokens;
    bool on_gpu;  // else in storage, from which the worker loads it
  };
  struct Stats {
    uint64_t prefixes = 0;   // expired ones count until they are read or swept
    uint64_t entries = 0;    // likewise
    uint64_t hits = 0;       // Find() that found a holder, ever
    uint64_t evictions = 0;  // entries removed at a limit, ever
  };
  // How far a table has been cleared, and of what.
  struct Cleared {
    size_t shards = 0;
    uint64_t entries = 0;
    absl::flat_hash_set<WorkerId> workers;  // that had entries
  };

  explicit PrefixTable(const PrefixTableOptions& options) : options_(options) {}
  PrefixTable(const PrefixTable&) = delete;
  PrefixTable& operator=(const PrefixTable&) = delete;

  const PrefixTableOptions& options() const { return options_; }

  // The workers that may have entries from now on. Entries of others are removed.
  void SetWorkers(std::span<const WorkerId> workers);

  // The worker holds so many tokens of the prefix; nullopt: as many as before. False: it has left.
  bool Put(
      const Digest256& prefix, WorkerId worker, std::optional<uint32_t> tokens, bool on_gpu, int64_t now_ns);
  // False: it was not there.
  bool Remove(const Digest256& prefix, WorkerId worker);
  // The number of entries that the worker had; their prefixes are appended to `forgotten`.
  uint64_t RemoveAllOf(WorkerId worker, std::vector<Digest256>* forgotten = nullptr);
  // Clears a further part of the table, since a large one takes a while; entries that come meanwhile may stay.
  // False: that was the last part.
  bool ClearNext(Cleared* cleared);

  // Who holds the prefix, in `held`, which is cleared first. Peek() is no use of the prefix: for dry runs.
  void Find(const Digest256& prefix, int64_t now_ns, std::vector<Held>* held);
  void Peek(const Digest256& prefix, int64_t now_ns, std::vector<Held>* held) const;

  // Removes at most so many prefixes whose entries have all expired, those that were not used for longest
  // first. The number removed.
  size_t Sweep(int64_t now_ns, size_t most);

  Stats stats() const;

 private:
  static constexpr size_t kShards = 64;
  static constexpr uint64_t kEvictedAtOnce = 1'024;  // entries; a millisecond, with thousands of workers 10

  struct Prefix;
  using Entries = std::list<Prefix*>;
  struct Holder {
    int64_t updated_ns;
    Entries::iterator entry;  // among the worker's
    WorkerId worker;
    uint32_t tokens;
    bool on_gpu;
  };
  struct Prefix {
    Digest256 digest;
    uint64_t used;  // number of its last use: the larger, the later
    absl::InlinedVector<Holder, 1> holders;
  };
  using Order = std::list<Prefix>;
  struct Hash {
    using is_transparent = void;
    size_t operator()(const Digest256& digest) const { return absl::Hash<Digest256>()(digest); }
    size_t operator()(Order::iterator prefix) const { return (*this)(prefix->digest); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(Order::iterator a, Order::iterator b) const { return a == b; }
    bool operator()(Order::iterator a, const Digest256& b) const { return a->digest == b; }
    bool operator()(const Digest256& a, Order::iterator b) const { return a == b->digest; }
  };
  // What a shard holds, apart from its mutex, so that it can be moved out and freed without it.
  struct Contents {
    Order order;  // the last used first
    absl::flat_hash_set<Order::iterator, Hash, Equal> by_digest;
    absl::flat_hash_map<WorkerId, Entries> by_worker;  // its prefixes, the last used first
  };
  struct alignas(64) Shard {
    mutable Mutex mutex;  // leaf
    Contents contents ABSL_GUARDED_BY(mutex);
    uint64_t hits ABSL_GUARDED_BY(mutex) = 0;
  };

  static size_t ShardOf(const Digest256& digest) { return digest[0] % kShards; }
  bool IsLive(const Holder& holder, int64_t now_ns) const {
    return now_ns - holder.updated_ns < options_.ttl_ns;
  }

  // All of these with the contents' shard locked.
  void Use(Contents* contents, Order::iterator prefix);
  void DropHolder(Contents* contents, Prefix* prefix, size_t at);
  void DropExpired(Contents* contents, Prefix* prefix, int64_t now_ns);
  void DropPrefix(Contents* contents, Order::iterator prefix);

  uint64_t RemoveAllOfLocked(WorkerId worker, std::vector<Digest256>* forgotten)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void EvictDownTo(uint64_t goal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void EvictOldestOf(WorkerId worker, uint64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void KeepWithinLimit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  const PrefixTableOptions options_;
  // Of all that adds entries, so that none is added for a worker that has left; taken before a shard's.
  Mutex write_mutex_;
  absl::flat_hash_set<WorkerId> workers_ ABSL_GUARDED_BY(write_mutex_);
  bool evicting_ ABSL_GUARDED_BY(write_mutex_) = false;  // since the limit, until a tenth has gone
  std::array<Shard, kShards> shards_;
  std::atomic<uint64_t> entries_{0};
  std::atomic<uint64_t> evictions_{0};
  std::atomic<uint64_t> uses_{0};
  std::atomic<size_t> swept_{0};  // shard at which the next sweep begins
};

}  // namespace vllm_router
