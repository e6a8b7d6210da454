// TenantTokens: the tokens of each tenant, and how often its limits rejected it, in a table that no number of tenants makes
// larger, and which of them have a name in metrics.
//
//   tokens.Add("search", true, {.prompt = 812, .cached = 640, .completion = 97});     any thread
//   tokens.Add("search", true, RejectionOf(TenantRejection::kTokens))
//   for (const TenantRow& row : labels.Follow(tokens.Read()))                         a scrape
//
// Where the table is full, the tenant that was seen least recently is forgotten; what it used stays in the total. Named tenants,
// which the operator has configured, and the 64 busiest others have rows of their own; all the rest are in the row `other`,
// whatever clients call themselves. No row ever decreases: a tenant that gets its row late begins there with what came since
// the last scrape, and one that loses it ends. A row is lost to a tenant with more than twice as many tokens.
//
// Cost: a hash and one of 16 mutexes per request; about 200 bytes per tenant. Read() holds a mutex for 256 tenants at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "admission/tenant_limits.h"
#include "base/mutex.h"

namespace vllm_router {

struct TenantUse {
  uint64_t prompt = 0;  // cached ones included
  uint64_t cached = 0;
  uint64_t completion = 0;
  std::array<uint64_t, kTenantRejections> rejected = {};  // requests

  uint64_t work() const { return prompt + completion; }
  TenantUse& operator+=(const TenantUse& other);
  TenantUse& operator-=(const TenantUse& other);
  // Of each kind.
  bool covers(const TenantUse& other) const;
  bool operator==(const TenantUse&) const = default;
};

TenantUse RejectionOf(TenantRejection reason);
// The larger one of each kind.
TenantUse LargerOf(const TenantUse& a, const TenantUse& b);

struct TenantSums {
  struct Tenant {
    std::string name;
    bool configured = false;
    TenantUse tokens;
  };
  std::vector<Tenant> tenants;
  TenantUse total;  // of all that there ever were
};

// Thread-safe.
class TenantTokens {
 public:
  // > 0.
  explicit TenantTokens(size_t max_tenants);

  void Add(std::string_view tenant, bool configured, const TenantUse& tokens);
  TenantSums Read() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kShards = 16;
  static constexpr size_t kManyTenants = 1024;  // from here on there are several shards
  static constexpr size_t kReadAtOnce = 256;

  struct Entry {
    std::string name;
    TenantUse tokens;
    bool configured = false;
    uint32_t newer = kNone;
    uint32_t older = kNone;
  };
  struct Shard {
    mutable Mutex mutex;  // leaf
    absl::flat_hash_map<std::string, uint32_t> places ABSL_GUARDED_BY(mutex);
    std::vector<Entry> entries ABSL_GUARDED_BY(mutex);
    uint32_t newest ABSL_GUARDED_BY(mutex) = kNone;
    uint32_t oldest ABSL_GUARDED_BY(mutex) = kNone;
    TenantUse total ABSL_GUARDED_BY(mutex);

    uint32_t PlaceOf(std::string_view tenant, size_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void Unlink(uint32_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void LinkNewest(uint32_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };

  const size_t shards_;
  const size_t most_of_each_;
  std::array<Shard, kShards> shard_;
};

struct TenantRow {
  std::string tenant;
  TenantUse tokens;

  bool operator==(const TenantRow&) const = default;
};

// The rows of one metrics page after another. One thread.
class TenantLabels {
 public:
  static constexpr size_t kOthers = 64;  // with rows of their own that the operator has not configured

  explicit TenantLabels(size_t others = kOthers) : others_(others) {}

  // By name; `other` is the last one.
  std::vector<TenantRow> Follow(const TenantSums& sums);

 private:
  struct Known {
    TenantUse now;
    TenantUse added;  // since the last scrape
    TenantUse shown;  // in its row
    bool configured = false;
    bool labelled = false;
  };
  using Table = absl::flat_hash_map<std::string, Known>;

  void End(Known* known);
  void ChooseOthers(Table* table);

  const size_t others_;
  Table known_;
  TenantUse ended_;  // in rows that there are no longer
  TenantUse other_;
};

}  // namespace vllm_router
