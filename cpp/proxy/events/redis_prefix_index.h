// RedisPrefixIndex: the prefix index that several routers share in a Redis. A sorted set for each prefix and
// tier has the workers that hold the prefix, by the names of their sources, and their tokens:
//
//   cr:kvidx:542e8d85…      vllm-1 2048    vllm-2 512       in GPU memory
//   cr:kvidx:w:542e8d85…    vllm-3 2048                     in storage
//
//   event ──▶ PrefixTable ──▶ Write()           Find() ──▶ RoutingKey::shared_holders ──▶ KvIndex::Match
//                               │ MULTI … EXEC    ▲ 2 x ZREVRANGEBYSCORE, at most lookup_timeout_ms
//                               ▼                 │
//                              Redis, whose keys expire a TTL after the last event about the prefix
//
// The table remains what it is without a Redis, so nothing changes hands when Redis goes: a look-up then finds
// nothing, at once. Replies, empty ones too, are kept for kCacheNanos, kMaxCached prefixes at most, those that
// come too late for their request as well. A write that Redis did not get waits for the next Flush(), which
// writes what the table has by then: a removal is told by one event only. Beyond kMaxPostponed writes are
// dropped and counted.
//
// One for each thread. The control thread's writes; it has one connection, so that writes arrive in order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "events/backend_names.h"
#include "hashing/sha256.h"
#include "index/prefix_table.h"
#include "net/task.h"
#include "proxy/client/http_client.h"
#include "redis/redis_link.h"

namespace vllm_router {

class RedisPrefixIndex {
 public:
  static constexpr std::string_view kKeyPrefix = "cr:kvidx:";
  static constexpr std::string_view kProbeKey = "cr:kvidx:~probe";
  static constexpr int64_t kCacheNanos = 100'000'000;
  static constexpr size_t kMaxCached = 4'096;
  static constexpr size_t kPurgedAtOnce = 500;     // prefixes in one write
  static constexpr size_t kMaxPostponed = 65'536;  // 100 bytes each
  static constexpr size_t kMaxRead = 128;  // names of a prefix and tier; some may be of no worker here
  static constexpr size_t kMaxName = 256;  // bytes; longer ones are of no worker

  // The link and the table outlive it.
  RedisPrefixIndex(RedisLink& link, const PrefixTable& table, BackendNames names, int64_t lookup_timeout_ms)
      : link_(link), table_(table), names_(std::move(names)), lookup_timeout_ms_(lookup_timeout_ms) {}

  // The workers of the fleet that hold the prefix, in `holders`, which is cleared first. Ends soon after
  // scope->Cancel().
  Task<void> Find(
      CancelScope* scope, Digest256 prefix, std::shared_ptr<const FleetView> fleet,
      std::vector<PrefixTable::Held>* holders);

  // Of the worker, the source's name of which is `backend`, what the table has of the prefix now. False: it is
  // postponed.
  bool Write(std::string_view backend, WorkerId worker, const Digest256& prefix);
  // Of the writes that Redis did not get, some. To be called now and then.
  void Flush();
  // The worker holds none of the prefixes, but for those that the table has meanwhile.
  Task<void> Purge(std::string backend, WorkerId worker, std::vector<Digest256> prefixes);

 private:
  struct Told {
    std::string backend;
    uint32_t tokens;
    bool on_gpu;
  };
  struct Cached {
    int64_t until_ns;
    std::vector<Told> told;
  };
  struct Call {
    CancelScope* waiting;  // null: not any more
  };
  struct Removal {
    Signal sent;
    bool ok = false;
  };

  using Subject = std::pair<WorkerId, Digest256>;

  void Postpone(std::string_view backend, const Subject& subject);
  const Cached* Known(const Digest256& prefix) const;
  void Keep(const Digest256& prefix, const std::vector<RedisReply>& replies);
  std::optional<PrefixTable::Held> HeldBy(WorkerId worker, const Digest256& prefix) const;

  RedisLink& link_;
  const PrefixTable& table_;
  BackendNames names_;
  const int64_t lookup_timeout_ms_;
  absl::flat_hash_map<Digest256, Cached> cached_;
  std::deque<std::pair<int64_t, Digest256>> order_;      // of cached_, by until_ns
  absl::flat_hash_map<Subject, std::string> postponed_;  // with the source's name
};

}  // namespace vllm_router
