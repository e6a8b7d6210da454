// FlightTable: equal requests at one time reach a worker once. The first one leads; those that come while it is under
// way follow and are given its response.
//
//   Join(key) ─┬─ kLeads     end with Finish(): it also ends when its Lead is destroyed
//              ├─ kFollows   Notify() comes once: the response, "lead now", or "go on alone"
//              └─ kAlone     too many follow, or responses to this key cannot be shared
//
//   leader ends with      followers
//   kShared               all get the response
//   kNotShareable         all go on alone, and for kAloneNs so does every equal request
//   kFailed               the first leads in its place, at most `promotions` times; then all go on alone
//
// Failures are never shared: a 429 or a lost worker is about a moment. When an invalidation comes, followers of the
// generation before go on alone, since keys of the new one are others (request_digest.h).
//
// Whoever unlinks a follower under the shard's lock owns its notification, which is sent outside of it, from any
// thread. So a follower that Leave()s is either unlinked (true), or Notify() has come or will. Thread-safe: leaf locks.
#pragma once

#include <array>
#include <atomic>
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

class FlightTable {
 public:
  using Response = std::shared_ptr<const std::string>;  // a StoredResponse

  static constexpr int64_t kAloneNs = 60'000'000'000;
  static constexpr size_t kShards = 16;
  static constexpr size_t kMaxAlone = 4'096;  // keys that are not shared, of each shard

  struct Limits {
    size_t followers = 256;  // of one leader
    size_t promotions = 2;
  };

  class Lead;

  enum class News : uint8_t { kResponse, kLead, kAlone };
  class Follower {
   public:
    virtual ~Follower() = default;
    // `response` for kResponse, `lead` for kLead. Any thread; it must not call the table.
    virtual void Notify(News news, Response response, Lead lead) = 0;

   private:
    friend class FlightTable;
    CacheKey key_{};
    bool linked_ = false;  // guarded by the shard's lock
    std::list<Follower*>::iterator place_;
  };

  // A leader's duty to end its flight. Movable; empty after Finish() or by default.
  class Lead {
   public:
    Lead() = default;
    Lead(Lead&& other) noexcept;
    Lead& operator=(Lead&& other) noexcept;
    ~Lead() { Abandon(); }

    explicit operator bool() const { return table_ != nullptr; }
    // Somebody waits for this response, so it is still of use when the leader's client has left.
    bool has_followers() const;

   private:
    friend class FlightTable;
    Lead(FlightTable* table, const CacheKey& key) : table_(table), key_(key) {}
    void Abandon();

    FlightTable* table_ = nullptr;
    CacheKey key_{};
  };

  explicit FlightTable(const Limits& limits) { SetLimits(limits); }
  ~FlightTable();  // REQUIRES: no flight

  // For requests from now on.
  void SetLimits(const Limits& limits);

  enum class Role : uint8_t { kLeads, kFollows, kAlone };
  struct Joined {
    Role role = Role::kAlone;
    Lead lead;  // kLeads
  };
  // `follower` null: a request that may lead but not follow. A follower outlives its notification, or leaves.
  Joined Join(const CacheKey& key, Follower* follower, int64_t now_ns);
  // True: no notification will come. False: it has come, or is on its way.
  bool Leave(Follower* follower);

  enum class End : uint8_t { kShared, kNotShareable, kFailed };
  // `response` for kShared.
  void Finish(Lead lead, End end, Response response, int64_t now_ns);

  struct Stats {
    size_t flights = 0;
    size_t followers = 0;
    size_t alone_keys = 0;
    uint64_t shared = 0;  // notifications with a response
    uint64_t promoted = 0;
    uint64_t alone = 0;  // notifications to go on alone
  };
  Stats stats() const;

 private:
  struct Flight {
    std::list<Follower*> followers;  // first come first
    size_t promotions = 0;
  };
  struct Notice {
    Follower* follower;
    News news;
    Response response;
    Lead lead;
  };
  struct Shard {
    mutable Mutex mutex;
    absl::flat_hash_map<CacheKey, Flight, CacheKeyHash> flights ABSL_GUARDED_BY(mutex);
    // Keys that are not shared until a time, and the same in the order of these times.
    absl::flat_hash_map<CacheKey, int64_t, CacheKeyHash> alone ABSL_GUARDED_BY(mutex);
    std::list<CacheKey> by_age ABSL_GUARDED_BY(mutex);
    Stats stats ABSL_GUARDED_BY(mutex);

    bool IsAlone(const CacheKey& key, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    void SetAlone(const CacheKey& key, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    Follower* Unlink(Flight* flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  };

  Shard& ShardOf(const CacheKey& key) { return shards_[key[8] % kShards]; }
  static void Send(std::vector<Notice> notices);

  std::atomic<size_t> max_followers_{0};
  std::atomic<size_t> max_promotions_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace vllm_router
