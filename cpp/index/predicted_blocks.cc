#include "index/predicted_blocks.h"

#include <algorithm>
#include <utility>

namespace vllm_router {
namespace {

constexpr size_t kSweepRuns = 64;  // a slice of some 20 us

}  // namespace

PredictedBlocks::Half::Half() : index({.max_blocks = kMaxBlocks}) {
  for (std::atomic<uint16_t>& worker : worker_of) worker.store(kNone, std::memory_order_relaxed);
  owner_of.fill(kNone);
}

PredictedBlocks::PredictedBlocks() = default;

void PredictedBlocks::Add(WorkerSlot worker, std::span<const BlockHash> chain) {
  if (chain.empty()) return;
  const MutexLock lock(mutex_);
  Half& half = halves_[young_];
  uint16_t& owner = half.owner_of[static_cast<size_t>(worker)];
  if (owner == kNone) {
    const StatusOr<WorkerSlot> added = half.index.AddOwner();
    if (!added.ok()) return;  // owners of earlier halves are not swept yet
    owner = static_cast<uint16_t>(*added);
    half.worker_of[owner].store(static_cast<uint16_t>(worker), std::memory_order_relaxed);
    half.owners.fetch_add(1, std::memory_order_relaxed);
  }
  half.index.Insert(
      static_cast<WorkerSlot>(owner), Tier::kGpu, BlockRef(), chain, static_cast<BlockRef*>(nullptr));
}

void PredictedBlocks::Remove(WorkerSlot worker, Half* half) {
  uint16_t& owner = half->owner_of[static_cast<size_t>(worker)];
  if (owner == kNone) return;
  half->index.RemoveOwner(static_cast<WorkerSlot>(owner));
  half->worker_of[owner].store(kNone, std::memory_order_relaxed);
  half->owners.fetch_sub(1, std::memory_order_relaxed);
  owner = kNone;
}

void PredictedBlocks::Remove(WorkerSlot worker) {
  const MutexLock lock(mutex_);
  for (Half& half : halves_) Remove(worker, &half);
}

void PredictedBlocks::Rotate() {
  if (halves_[0].owners.load(std::memory_order_relaxed) + halves_[1].owners.load(std::memory_order_relaxed) ==
      0)
    return;
  Half* dropped;
  {
    const MutexLock lock(mutex_);
    young_ = 1 - young_;
    dropped = &halves_[young_];
    for (size_t worker = 0; worker < kMaxWorkers; ++worker) Remove(static_cast<WorkerSlot>(worker), dropped);
  }
  while (dropped->index.Sweep(kSweepRuns)) {
  }
}

void PredictedBlocks::Merge(
    std::span<const BlockHash> chain, const ReportedBlocks& reported, BlockMatches* matches) const {
  thread_local BlockMatches own_predicted;
  BlockMatches& predicted = own_predicted;
  for (const Half& half : halves_) {
    if (half.owners.load(std::memory_order_relaxed) == 0) continue;
    half.index.Match(chain, &predicted);
    for (const BlockMatch& match : std::as_const(predicted).entries()) {
      const uint16_t worker =
          half.worker_of[static_cast<size_t>(match.owner)].load(std::memory_order_relaxed);
      if (worker == kNone || !IsComplete(reported.trust(static_cast<WorkerSlot>(worker)))) continue;
      matches->Raise(static_cast<WorkerSlot>(worker), match.blocks);
    }
  }
}

}  // namespace vllm_router
