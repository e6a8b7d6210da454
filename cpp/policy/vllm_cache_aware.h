// vllm_cache_aware: the worker that was given the longest part of this prompt, if it has room.
//
//   prompt, 6 blocks    a b c d e f          threshold 0.3: a candidate holds more than 1.8 blocks
//   w0 holds 4, full    w1 holds 2, has room    w2 holds none
//   result: w1, overflow. With room on w0: w0, prefix_hit. Without candidates: the least loaded, prefix_miss.
//
// Below load_floor open requests a worker has room whatever the average is. For 8 idle workers the
// bound alone is one request each, so three of a burst of four with one prefix would leave the worker
// that holds it.
//
// The worker that gets the request holds its blocks from then on (index/block_cache_tracker.h: at most
// max_blocks_per_worker, the least recently used evicted first, the end of a prompt before its start),
// unless the request turns out to have never reached it or failed there. A worker that leaves the fleet
// is forgotten.
//
// Cost: a match, 0.1 to 0.5 us, and a record, 3 to 8 ns per block, under the tracker's mutex; 10 bytes
// per (worker, block). Thread-safe.
#pragma once

#include <cstdint>

namespace vllm_router {

struct PolicyEntry;

enum class HolderBound : uint8_t {
  kRoom,     // load_order.h: an idle fleet has room
  kAverage,  // load < factor * mean load: an idle fleet never uses its caches
};

PolicyEntry VllmCacheAwareEntry();

}  // namespace vllm_router
