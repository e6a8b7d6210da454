// DecisionBuffer: decisions that this router has made and not yet told its peers. Threads that decide add to
// it, and what tells the peers takes all of it at each of its ticks.
//
//   Add(w3, 12000 tokens, s0 s1 s2)    decisions   w3: 12000, 3    w5: 800, 1
//   Add(w5, 800 tokens, s0)            strides     s0 s1 s2 s0
//   Take(&batch)                       all of it, and the buffer is empty
//
// Limited to kMaxStrides: beyond that, decisions are dropped and counted, since a peer that misses one recomputes
// at most one prompt. Thread-safe. Cost of Add(): a mutex that is held for a copy of the strides, 30 to 60 ns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "hashing/block_hash.h"
#include "worker/worker.h"

namespace vllm_router {

class DecisionBuffer {
 public:
  static constexpr size_t kMaxStrides = 1 << 20;  // 8 MiB: two seconds of 10,000 prompts of 12k tokens
  static constexpr size_t kMaxDecisions = 1 << 18;

  struct Entry {
    WorkerId worker{};
    uint32_t prompt_tokens = 0;
    uint32_t strides = 0;  // so many of the batch's, behind those of the entries before

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  struct Batch {
    std::vector<Entry> entries;  // in order of decision
    std::vector<BlockHash> strides;
  };

  // False: full, and the decision is dropped.
  bool Add(WorkerId worker, uint32_t prompt_tokens, std::span<const BlockHash> strides) {
    const MutexLock lock(mutex_);
    if (batch_.entries.size() >= kMaxDecisions || batch_.strides.size() + strides.size() > kMaxStrides) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    batch_.entries.push_back({worker, prompt_tokens, static_cast<uint32_t>(strides.size())});
    batch_.strides.insert(batch_.strides.end(), strides.begin(), strides.end());
    return true;
  }

  // Overwrites `batch`; its memory serves the buffer from then on.
  void Take(Batch* batch) {
    batch->entries.clear();
    batch->strides.clear();
    const MutexLock lock(mutex_);
    std::swap(*batch, batch_);
  }

  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  Mutex mutex_;  // leaf
  Batch batch_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace vllm_router
