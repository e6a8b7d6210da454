// ActiveBlocks: the blocks of the prompts that each worker has open requests for. A block that several of them
// share counts once: it is once in the worker's memory.
//
//   w3   request 1: a b c d      request 2: a b x        6 blocks: a b twice, c d x once
//        request 1 ends                                  3 blocks: a b x
//
// Cost: Open and Close some 20 ns per block, under a mutex of the worker; Count is a load; CountLeading
// log2(blocks) look-ups. 8 bytes per block of each open request, and 12 to 20 per distinct block. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/limits.h"
#include "base/mutex.h"
#include "hashing/block_hash.h"
#include "index/worker_slot.h"
#include "worker/worker.h"

namespace vllm_router {

class ActiveBlocks {
 public:
  // A worker and the slot it has now: another worker may have had it before, and will have it later.
  struct Place {
    WorkerSlot slot;
    WorkerId worker;
  };

  ActiveBlocks() : workers_(std::make_unique<Of[]>(kMaxWorkers)) {}

  // The worker gets a request with these blocks. Its number, for Close(); never 0.
  uint64_t Open(const Place& place, std::span<const BlockHash> chain);
  // No effect if the worker has left since, or for 0.
  void Close(const Place& place, uint64_t request);

  uint64_t Count(const Place& place) const {
    const Of& of = workers_[static_cast<size_t>(place.slot)];
    if (of.worker.load(std::memory_order_relaxed) != place.worker) return 0;
    return of.count.load(std::memory_order_relaxed);
  }
  // How many leading blocks of the chain are among them.
  size_t CountLeading(const Place& place, std::span<const BlockHash> chain) const;

 private:
  struct Of {
    mutable Mutex mutex;  // leaf
    std::atomic<WorkerId> worker{WorkerId{UINT32_MAX}};
    std::atomic<uint64_t> count{0};
    uint64_t opened ABSL_GUARDED_BY(mutex) = 0;
    absl::flat_hash_map<BlockHash, uint32_t> requests_of ABSL_GUARDED_BY(mutex);          // by block
    absl::flat_hash_map<uint64_t, std::vector<BlockHash>> chains ABSL_GUARDED_BY(mutex);  // by request
  };

  const std::unique_ptr<Of[]> workers_;  // by slot
};

}  // namespace vllm_router
