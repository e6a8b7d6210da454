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
// A request may wait longer than T for its first token, behind others. So a rotation first repeats in young
// the prompts of old whose requests still wait, up to an age. A prompt is kept as its places in the half, from
// which its chain is read again:
//
//   Add(w3, a b c) -> 7      waits: 7 = { w3, old: a b c }
//   Rotate()                 waits: 7 = { w3, young: a b c }
//   EndWait(7)               the first token came, or the request ended
//
// At most kMaxClaims wait at once, kMaxWaiting per half; others are not repeated.
//
// Thread-safe. Merge() and EndWait() never wait; Add() takes a mutex and, while holding it, calls the index. A
// rotation holds it for one prompt at a time. Cost of a wait: 20 ns in Add(), 5 ns in EndWait(); 10 to 20 ns
// per block in a rotation.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "hashing/block_hash.h"
#include "index/block_index.h"
#include "index/block_matches.h"
#include "index/claim_table.h"
#include "index/reported_blocks.h"
#include "index/worker_slot.h"

namespace vllm_router {

class PredictedBlocks {
 public:
  static constexpr uint64_t kMaxBlocks = 1'000'000;
  static constexpr size_t kMaxWaiting = 65'536;

  PredictedBlocks();

  // `worker` gets a prompt of these blocks. For EndWait(); 0: it is not repeated.
  uint64_t Add(WorkerSlot worker, std::span<const BlockHash> chain);
  // Its first token came, or it ended. Any thread, without a lock; of 0 no effect.
  void EndWait(uint64_t wait) { waits_.Confirm(wait); }
  // It left, or its cache was lost.
  void Remove(WorkerSlot worker);
  // Repeats what waits for less than `repeated_ns`. One thread at a time.
  void Rotate(int64_t now_ns, int64_t repeated_ns);

  // Completes matches of workers whose events tell everything but what is predicted: their blocks count
  // as on the GPU.
  void Merge(std::span<const BlockHash> chain, const ReportedBlocks& reported, BlockMatches* matches) const;

 private:
  static constexpr uint16_t kNone = UINT16_MAX;
  static constexpr size_t kMaxSpans = 64;                         // of a prompt that is repeated
  static constexpr uint64_t kMaxRepeatedBlocks = 4 * kMaxBlocks;  // in a rotation: some 40 ms

  struct Half {
    Half();
    BlockIndex index;
    std::array<std::atomic<uint16_t>, kMaxWorkers> worker_of;  // by owner in the index
    std::array<uint16_t, kMaxWorkers> owner_of;                // and back
    std::atomic<uint32_t> owners{0};
    std::vector<uint64_t> waits;  // of prompts that are in this half
  };
  struct Wait {
    WorkerSlot worker{};
    int64_t since_ns = 0;
    std::vector<BlockSpan> spans;  // of the half
  };
  static void Remove(WorkerSlot worker, Half* half);
  // The places are in spans_. False: not all of it was inserted, or it cannot be repeated.
  bool Insert(WorkerSlot worker, std::span<const BlockHash> chain, Half* half)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Repeat(int64_t now_ns, int64_t repeated_ns, Half* from, Half* to);
  // Empty if the half no longer has all of it.
  static void CopyChain(const Half& half, std::span<const BlockSpan> spans, std::vector<BlockHash>* chain);

  mutable Mutex mutex_;
  std::array<Half, 2> halves_;  // owner_of and waits: guarded by mutex_
  ClaimTable<Wait> waits_;      // likewise, but for EndWait()
  size_t young_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t rotated_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<BlockSpan> spans_ ABSL_GUARDED_BY(mutex_);  // scratch space
};

}  // namespace vllm_router
