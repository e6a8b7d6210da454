// PredictedBlocks: blocks that decisions of the last seconds gave to workers whose KV events tell
// everything else. An engine publishes a block once it is computed; until then a burst of requests with
// one prefix would find it nowhere and scatter.
//
//   Add ----> young   { w3: a b c    w7: x y }
//             old     { w3: p q }                      a rotation drops old, and young becomes old
//
// So with a rotation every T/2 a block is predicted for T/2 to T. Nothing is removed one by one, and
// nothing has to be matched with events. Each half is limited to kMaxBlocks; beyond that new ones are
// not predicted until the next rotation.
//
// Thread-safe. Merge() never waits; Add() takes a mutex and, while holding it, calls the index.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mutex.h"
#include "hashing/block_hash.h"
#include "index/block_index.h"
#include "index/block_matches.h"
#include "index/reported_blocks.h"
#include "index/worker_slot.h"

namespace vllm_router {

class PredictedBlocks {
 public:
  static constexpr uint64_t kMaxBlocks = 1'000'000;

  PredictedBlocks();

  // `worker` gets a prompt of these blocks.
  void Add(WorkerSlot worker, std::span<const BlockHash> chain);
  // It left, or its cache was lost.
  void Remove(WorkerSlot worker);
  void Rotate();

  // Completes matches of workers whose events tell everything but what is predicted: their blocks count
  // as on the GPU.
  void Merge(std::span<const BlockHash> chain, const ReportedBlocks& reported, BlockMatches* matches) const;

 private:
  static constexpr uint16_t kNone = UINT16_MAX;

  struct Half {
    Half();
    BlockIndex index;
    std::array<std::atomic<uint16_t>, kMaxWorkers> worker_of;  // by owner in the index
    std::array<uint16_t, kMaxWorkers> owner_of;                // and back
    std::atomic<uint32_t> owners{0};
  };
  static void Remove(WorkerSlot worker, Half* half);

  mutable Mutex mutex_;
  std::array<Half, 2> halves_;  // owner_of: guarded by mutex_
  size_t young_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
