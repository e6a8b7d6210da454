// TenantTable: the meters of tenants with limits (tenant_limits.h), by name. At most `max_tenants` of them.
//
//   auto meter = table.Find("search", now, &cache)      held until it is destroyed
//   meter->Begin(limits, now)
//
// A meter that nothing holds, and that is the same as a new one, may become another tenant's once the table is full. If none
// of the few that are looked at is, the newcomer shares one of 256 meters with other such tenants, by a hash of their names.
// Tenants that the operator has named get one of their own however full the table is, and keep it, so that no number of
// other names takes theirs.
//
// Where several routers share the limits (fleet_limits.h), the table also gives what has been used and not told, and meters for
// tenants that only others told of: these get half of it at most, so that no number of told names takes the other half.
//
// Most finds take no lock: a Cache remembers, per thread, which entry a tenant had in which generation, and an entry begins
// another generation with another tenant. Thread-safe; a Cache belongs to one thread. The table outlives what it returns.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include "admission/tenant_limits.h"
#include "base/mutex.h"

namespace vllm_router {

class TenantTable {
 private:
  struct Entry;

 public:
  static constexpr size_t kShared = 256;  // meters of several tenants

  // > 0.
  explicit TenantTable(size_t max_tenants);
  TenantTable(const TenantTable&) = delete;
  TenantTable& operator=(const TenantTable&) = delete;

  class Hold {
   public:
    Hold(Hold&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)), shared_(other.shared_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold();

    TenantMeter& operator*() const;
    TenantMeter* operator->() const { return &**this; }
    bool is_shared() const { return shared_; }

   private:
    friend class TenantTable;
    Hold(Entry* entry, bool shared) : entry_(entry), shared_(shared) {}  // which is held already

    Entry* entry_;
    bool shared_;
  };

  class Cache {
   private:
    friend class TenantTable;
    static constexpr size_t kSlots = 256;
    struct Slot {
      uint64_t hash = 0;
      Entry* entry = nullptr;
      uint32_t generation = 0;
    };
    std::array<Slot, kSlots> slots_;
  };

  // `named`: by the operator.
  Hold Find(std::string_view tenant, int64_t now_ns, Cache* cache, bool named = false);

  // Of a tenant that another router told of. Nullopt: there is no room for it.
  std::optional<Hold> FindTold(std::string_view tenant, int64_t now_ns, bool named);
  // What is to be told of one tenant: what it used since it was told last, and the requests that it has open.
  struct Told {
    std::string tenant;
    TenantMeter::Untold used;
    uint64_t open = 0;
  };
  // Of `most` tenants, which are told then: named ones first, then those with most to tell. `full`: all that have requests
  // open have something to tell. `untold`: how many more have. One thread; O(tenants).
  std::vector<Told> TakeUntold(size_t most, bool full, int64_t now_ns, size_t* untold);
  // Nothing that was used until now is told. The same thread.
  void DropUntold();
  // What one router has of each limit; > 0 (TenantLimits::parts).
  void SetParts(uint32_t parts) { parts_.store(parts, std::memory_order_relaxed); }
  uint32_t parts() const { return parts_.load(std::memory_order_relaxed); }

  // Of those that are not the same as new ones, the tenants with the most open requests, then by name.
  struct Row {
    std::string tenant;
    uint64_t open = 0;
    uint64_t peers_open = 0;  // at other routers
    RateUsed requests_used = {};
    RateUsed tokens_used = {};
  };
  std::vector<Row> Read(int64_t now_ns, size_t most) const;
  // Tenants that have a meter of their own now.
  size_t size() const;
  // Finds that got a shared meter.
  uint64_t shared_finds() const { return shared_finds_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kManyTenants = 1024;  // from here on there are several shards
  static constexpr size_t kLooks = 64;          // at entries, for one that can be reused
  static constexpr size_t kReadAtOnce = 256;

  struct Entry {
    std::atomic<uint64_t> word{0};  // the generation, and in the lower half how many hold it
    TenantMeter meter;
    std::string name = {};  // does not change while the entry is held
    bool is_named = false;  // it stays its tenant's. With the mutex of its shard, as the next
    bool is_told = false;   // only other routers told of the tenant
    std::atomic<uint64_t> told_open{0};

    uint32_t Take();
    bool TryTake(uint32_t generation);
    void Release() { word.fetch_sub(1, std::memory_order_release); }
    bool Retire(int64_t now_ns);
  };
  struct Shard {
    mutable Mutex mutex;  // leaf
    // By the names of entries.
    absl::flat_hash_map<absl::string_view, Entry*> places ABSL_GUARDED_BY(mutex);
    std::deque<Entry> entries ABSL_GUARDED_BY(mutex);
    size_t hand ABSL_GUARDED_BY(mutex) = 0;  // where the next look begins
    size_t told ABSL_GUARDED_BY(mutex) = 0;  // entries that are

    Entry* FindOrAdd(std::string_view tenant, size_t most, bool named, int64_t now_ns)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    Entry* FindOrAddTold(std::string_view tenant, size_t most, bool named, int64_t now_ns)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void Give(Entry* entry, std::string_view tenant, bool named, bool is_told)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    Entry* Reuse(bool only_told, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };

  const size_t shards_;
  const size_t most_of_each_;
  std::array<Shard, kShards> shard_;
  std::array<Entry, kShared> shared_;
  std::atomic<uint64_t> shared_finds_{0};
  std::atomic<uint32_t> parts_{1};
};

}  // namespace vllm_router
