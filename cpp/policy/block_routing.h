// BlockRouting: what a policy that matches blocks knows of the workers' caches, and the results of its
// matches. For metrics, /admin/index/stats and Router.stats(). A snapshot; plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/worker_slot.h"

namespace vllm_router {

class BlockCacheTracker;

// The capacity of a worker's cache.
struct CacheSize {
  uint64_t bytes = 0;         // of prompts, four per token id; 0: unknown
  uint32_t block_tokens = 0;  // tokens of a block; 0: unknown
};

struct BlockRouting {
  // Upper bounds of the histogram of match times, in nanoseconds; the last bucket has none.
  static constexpr std::array<uint64_t, 10> kMatchBounds = {100,   250,    500,    1'000,   2'500,
                                                            5'000, 10'000, 25'000, 100'000, 1'000'000};
  static constexpr size_t kMatchBuckets = kMatchBounds.size() + 1;
  static constexpr uint64_t kMatchesPerTiming = 16;  // one in so many is timed

  BlockCacheTracker* tracker = nullptr;  // the policy's
  // By position in the given fleet.
  std::vector<WorkerSlot> owners;  // its id in the tracker
  std::vector<uint64_t> worker_blocks;
  std::vector<uint64_t> worker_capacity;      // blocks
  std::vector<uint64_t> worker_block_tokens;  // of a block of its cache, as matches are rounded
  uint64_t prompt_blocks = 0;                 // of prompts that a worker was chosen for
  uint64_t matched_blocks = 0;                // of them, on the worker chosen
  std::array<uint64_t, kMatchBuckets> match_times{};
  uint64_t match_nanos = 0;  // their sum
};

}  // namespace vllm_router
