#include "policy/active_blocks.h"

#include <algorithm>

namespace vllm_router {

uint64_t ActiveBlocks::Open(const Place& place, std::span<const BlockHash> chain) {
  std::vector<BlockHash> own(chain.begin(), chain.end());
  Of& of = workers_[static_cast<size_t>(place.slot)];
  const MutexLock lock(of.mutex);
  if (of.worker.load(std::memory_order_relaxed) != place.worker) {
    of.requests_of.clear();
    of.chains.clear();
    of.worker.store(place.worker, std::memory_order_relaxed);
  }
  for (const BlockHash block : own) ++of.requests_of[block];
  of.count.store(of.requests_of.size(), std::memory_order_relaxed);
  of.chains.emplace(++of.opened, std::move(own));
  return of.opened;
}

void ActiveBlocks::Close(const Place& place, uint64_t request) {
  Of& of = workers_[static_cast<size_t>(place.slot)];
  const MutexLock lock(of.mutex);
  if (of.worker.load(std::memory_order_relaxed) != place.worker) return;
  const auto chain = of.chains.find(request);
  if (chain == of.chains.end()) return;
  for (const BlockHash block : chain->second) {
    const auto found = of.requests_of.find(block);
    if (--found->second == 0) of.requests_of.erase(found);
  }
  of.chains.erase(chain);
  of.count.store(of.requests_of.size(), std::memory_order_relaxed);
}

size_t ActiveBlocks::CountLeading(const Place& place, std::span<const BlockHash> chain) const {
  const Of& of = workers_[static_cast<size_t>(place.slot)];
  if (Count(place) == 0) return 0;
  const MutexLock lock(of.mutex);
  // A request has all blocks before each of its own.
  const auto end = std::partition_point(
      chain.begin(), chain.end(),
      [&of](BlockHash block) ABSL_NO_THREAD_SAFETY_ANALYSIS { return of.requests_of.contains(block); });
  return static_cast<size_t>(end - chain.begin());
}

}  // namespace vllm_router
