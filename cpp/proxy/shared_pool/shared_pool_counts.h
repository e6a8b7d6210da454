// SharedPoolCounts: what one thread counts at queries of a shared pool. That thread writes, a scrape reads
// (SharedPoolService::WriteMetrics). In IoThread::features of each thread if the server has a pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proxy/telemetry/buckets.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

// Why a query failed, and what one told of a key; labels of shared_cache_errors_total and shared_cache_keys_total.
enum class SharedCacheError : uint8_t { kConnect, kTimeout, kHttp, kJson, kNotLeader, kLayout };
inline constexpr int kSharedCacheErrorCount = static_cast<int>(SharedCacheError::kLayout) + 1;
inline std::string_view SharedCacheErrorName(SharedCacheError error) {
  constexpr std::array<std::string_view, kSharedCacheErrorCount> kNames = {"connect", "timeout",    "http",
                                                                           "json",    "not_leader", "layout"};
  return kNames[static_cast<size_t>(error)];
}
enum class SharedCacheKey : uint8_t { kFound, kMissing, kCached };  // cached: known from another query
inline constexpr int kSharedCacheKeyCount = static_cast<int>(SharedCacheKey::kCached) + 1;
inline std::string_view SharedCacheKeyName(SharedCacheKey key) {
  constexpr std::array<std::string_view, kSharedCacheKeyCount> kNames = {"found", "missing", "cached"};
  return kNames[static_cast<size_t>(key)];
}

struct SharedPoolCounts {
  Histogram<buckets::kShare> hit_rates;                // of prompts' blocks
  Histogram<buckets::kBlocks> beyond_blocks;           // found, and not on the chosen worker's GPU
  OverheadHistogram queries;                           // how long they took
  std::array<Counter, kSharedCacheErrorCount> errors;  // by SharedCacheError
  std::array<Counter, kSharedCacheKeyCount> keys;      // by SharedCacheKey

  void Failed(SharedCacheError error) { errors[static_cast<size_t>(error)].Add(); }
  void Told(SharedCacheKey result, uint64_t count) { keys[static_cast<size_t>(result)].Add(count); }
  void Hits(uint64_t found, uint64_t blocks) {
    if (blocks != 0) hit_rates.Add(static_cast<int64_t>(found * buckets::kShareOne / blocks));
  }
};

}  // namespace vllm_router
