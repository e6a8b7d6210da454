// ResponseCache: what all threads of a server share of the response cache: what is in memory, which requests are under
// way for others, which responses must not be used any more, and counts.
//
//   request ──▶ Find in memory, or in Redis ──▶ hit
//                 │ (response_cache/redis_response_store.h)
//                 └─ miss ──▶ flights: leads, follows, goes alone ──▶ a worker ──▶ kept here, and in Redis
//
// A server has one, whether or not the cache is enabled, since a reload may enable it; empty it takes a few kilobytes.
// With Redis, its memory is what serves while Redis is down. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "proxy/api/response_cache_settings.h"
#include "response_cache/cacheability.h"
#include "response_cache/flight_table.h"
#include "response_cache/generations.h"
#include "response_cache/hit_rate.h"
#include "response_cache/memory_store.h"
#include "response_cache/request_digest.h"
#include "routing/body_budget.h"

namespace vllm_router {

class ResponseCache {
 public:
  // What holds from the server's start.
  struct Fixed {
    bool redis = false;  // responses are kept in Redis
    uint64_t fallback_capacity = 1'000;
    int64_t fallback_ttl_ms = 300'000;
    bool fallback = true;  // memory serves while Redis is down
  };
  // Stands for the model of requests that do not name it.
  static constexpr std::string_view kUnnamed = "~unnamed";
  enum class Result : uint8_t { kHit, kMiss, kBypass };
  static constexpr size_t kResults = 3;
  // Upper bounds of the times of lookups, in nanoseconds; the last bucket has none.
  static constexpr std::array<int64_t, 13> kLookupBounds = {
      1'000,     2'500,     10'000,     50'000,     100'000,     250'000,      1'000'000,
      2'500'000, 5'000'000, 10'000'000, 50'000'000, 100'000'000, 1'000'000'000};
  using Lookups = std::array<std::atomic<uint64_t>, kLookupBounds.size() + 1>;

  ResponseCache(const ResponseCacheSettings& settings, Fixed fixed);

  // Other settings than at the start. What was kept under other rules, or before a pause in which invalidations went
  // unheard, is not used any more.
  void Follow(const ResponseCacheSettings& settings);

  const Fixed& fixed() const { return fixed_; }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // How long memory keeps a response.
  int64_t MemoryTtlMs(const ResponseCacheSettings& settings) const {
    return fixed_.redis ? fixed_.fallback_ttl_ms : settings.ttl_ms;
  }

  // One request. `lookup_ns`: how long it took to find out, other than by waiting for an equal request.
  void Count(Result result, CacheBypass why, int64_t lookup_ns, int64_t now_ns);
  // Of what is being captured, over all requests; false: `most` would be passed, and nothing is taken.
  bool TakeCapture(size_t bytes, uint64_t most);
  void ReturnCapture(size_t bytes) { captured_.fetch_sub(bytes, std::memory_order_relaxed); }

  // A long stored response while it is sent, which the store may have let go of by then. Equal ones of one key are held
  // once, so that hits of one key cost no more than one.
  class Replayed {
   public:
    Replayed(
        ResponseCache& cache, BodyBudget& memory, const CacheKey& key,
        std::shared_ptr<const std::string> blob)
        : cache_(cache), memory_(memory), key_(key), blob_(std::move(blob)) {}
    ~Replayed();
    Replayed(const Replayed&) = delete;
    Replayed& operator=(const Replayed&) = delete;

    const std::shared_ptr<const std::string>& blob() const { return blob_; }

   private:
    friend class ResponseCache;

    ResponseCache& cache_;
    BodyBudget& memory_;
    const CacheKey key_;
    const std::shared_ptr<const std::string> blob_;
    BodyBudget::Member claim_{[](void*) {}, nullptr};
  };
  // Null: `memory` has no room. Both outlive what is held.
  std::shared_ptr<const Replayed> Hold(
      const CacheKey& key, std::shared_ptr<const std::string> blob, BodyBudget& memory);

  // From now on no response from before is used: of one model, or of all, and how many left memory. `deletes`: what
  // Redis has too, if its keys have no generation.
  size_t InvalidateAll(bool deletes);
  void InvalidateModel(std::string_view model);

  // Before the threads run. What signs stored responses; empty: nothing. What tells Redis of an invalidation, and whether
  // responses are to be deleted there; any thread.
  void SealWith(std::string key) { integrity_key_ = std::move(key); }
  const std::string& integrity_key() const { return integrity_key_; }
  void OnInvalidated(std::function<void(bool deletes)> tell) { on_invalidated_ = std::move(tell); }

  MemoryStore memory;
  FlightTable flights;
  Generations generations;
  HitRate hit_rate;

  struct Counts {
    std::array<std::atomic<uint64_t>, kResults> results{};
    std::array<std::atomic<uint64_t>, kCacheBypasses> bypasses{};
    std::array<std::atomic<uint64_t>, kNotStoredReasons> not_stored{};
    std::array<Lookups, kResults> lookups{};
    std::array<std::atomic<uint64_t>, kResults> lookup_nanos{};
    std::atomic<uint64_t> corrupt{0};
    std::atomic<uint64_t> saved_prompt_tokens{0};
    std::atomic<uint64_t> saved_completion_tokens{0};
  };
  Counts counts;
  uint64_t captured_bytes() const { return captured_.load(std::memory_order_relaxed); }

 private:
  const Fixed fixed_;
  std::string integrity_key_;
  std::function<void(bool deletes)> on_invalidated_ = [](bool) {};
  void MaySweep(int64_t now_ns);

  std::atomic<bool> enabled_;
  std::atomic<int64_t> next_sweep_ns_{0};
  Mutex mutex_;  // leaf
  CacheRules rules_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<CacheKey, std::weak_ptr<const Replayed>, CacheKeyHash> replayed_
      ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> captured_{0};
};

}  // namespace vllm_router
