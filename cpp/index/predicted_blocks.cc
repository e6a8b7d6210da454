#include "index/predicted_blocks.h"

#include <algorithm>
#include <utility>

namespace vllm_router {
namespace {}  // namespace

PredictedBlocks::Half::Half() : index({.max_blocks = kMaxBlocks}) {
  for (std::atomic<uint16_t>& worker : worker_of) worker.store(kNone, std::memory_order_relaxed);
  owner_of.fill(kNone);
}

PredictedBlocks::PredictedBlocks() = default;

bool PredictedBlocks::Insert(WorkerSlot worker, std::span<const BlockHash> chain, Half* half) {
  uint16_t& owner = half->owner_of[static_cast<size_t>(worker)];
  if (owner == kNone) {
    const StatusOr<WorkerSlot> added = half->index.AddOwner();
    if (!added.ok()) return false;  // owners of earlier halves are not swept yet
    owner = static_cast<uint16_t>(*added);
    half->worker_of[owner].store(static_cast<uint16_t>(worker), std::memory_order_relaxed);
    half->owners.fetch_add(1, std::memory_order_relaxed);
  }
  spans_.clear();
  const InsertResult result =
      half->index.Insert(static_cast<WorkerSlot>(owner), Tier::kGpu, BlockRef(), chain, &spans_);
  return result.inserted == chain.size() && spans_.size() <= kMaxSpans && half->waits.size() < kMaxWaiting;
}

uint64_t PredictedBlocks::Add(WorkerSlot worker, std::span<const BlockHash> chain) {
  if (chain.empty()) return 0;
  const MutexLock lock(mutex_);
  Half& half = halves_[young_];
  if (!Insert(worker, chain, &half)) return 0;
  const std::span<const BlockSpan> spans = spans_;
  const auto fill = [worker, spans, since_ns = rotated_ns_](Wait& wait) {
    wait.worker = worker;
    wait.since_ns = since_ns;
    wait.spans.assign(spans.begin(), spans.end());
  };
  const uint64_t number = waits_.Add(fill, [](const Wait&) {});
  if (number != 0) half.waits.push_back(number);
  return number;
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
  waits_.DropIf([worker](const Wait& wait) { return wait.worker == worker; });
}

void PredictedBlocks::Rotate(int64_t now_ns, int64_t repeated_ns) {
  Half* old;
  Half* young;
  {
    const MutexLock lock(mutex_);
    old = &halves_[1 - young_];
    young = &halves_[young_];
    rotated_ns_ = now_ns;
  }
  if (old->owners.load(std::memory_order_relaxed) + young->owners.load(std::memory_order_relaxed) == 0)
    return;
  Repeat(now_ns, repeated_ns, old, young);
  {
    const MutexLock lock(mutex_);
    young_ = 1 - young_;
    for (size_t worker = 0; worker < kMaxWorkers; ++worker) Remove(static_cast<WorkerSlot>(worker), old);
  }
  while (old->index.Sweep(BlockIndex::kSweepRuns)) {
  }
}

void PredictedBlocks::Repeat(int64_t now_ns, int64_t repeated_ns, Half* from, Half* to) {
  std::vector<uint64_t> waits;
  {
    const MutexLock lock(mutex_);
    waits.swap(from->waits);
  }
  std::vector<BlockHash> chain;
  uint64_t repeated = 0;
  for (const uint64_t number : waits) {
    const MutexLock lock(mutex_);
    Wait* const wait = waits_.Find(number);
    if (wait == nullptr) continue;
    const bool is_due = now_ns - wait->since_ns < repeated_ns && repeated < kMaxRepeatedBlocks;
    if (is_due) CopyChain(*from, wait->spans, &chain);
    if (is_due && !chain.empty() && Insert(wait->worker, chain, to)) {
      repeated += chain.size();
      wait->spans.assign(spans_.begin(), spans_.end());
      to->waits.push_back(number);
    } else {
      waits_.Drop(number);
    }
  }
}

void PredictedBlocks::CopyChain(
    const Half& half, std::span<const BlockSpan> spans, std::vector<BlockHash>* chain) {
  std::vector<BlockHash> run;
  chain->clear();
  for (const BlockSpan& span : spans) {
    run.clear();
    half.index.CopyRun(span.first, &run);
    const size_t end = size_t{span.first.offset()} + span.count;
    if (run.size() < end) return chain->clear();
    chain->insert(
        chain->end(), run.begin() + span.first.offset(), run.begin() + static_cast<std::ptrdiff_t>(end));
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
