#include "index/reported_blocks.h"

#include <algorithm>
#include <utility>

namespace vllm_router {

ReportedBlocks::ReportedBlocks(const BlockHasher& hasher) : hasher_(hasher) {
  for (std::atomic<uint16_t>& worker : worker_of_) worker.store(kNoWorker, std::memory_order_relaxed);
}

void ReportedBlocks::SetWorkers(std::span<const Known> workers) {
  {
    const MutexLock lock(owed_mutex_);
    absl::flat_hash_map<uint32_t, uint64_t> before;
    before.swap(owed_);
    for (const Known& known : workers) {
      const auto id = static_cast<uint32_t>(known.worker);
      const auto found = before.find(id);
      owed_[id] = found != before.end() ? found->second : 0;
    }
  }
  const MutexLock lock(mutex_);
  absl::flat_hash_map<uint32_t, WorkerSlot> left;
  left.swap(slot_of_);
  for (const Known& known : workers) {
    slot_of_[static_cast<uint32_t>(known.worker)] = known.slot;
    left.erase(static_cast<uint32_t>(known.worker));
  }
  if (left.empty()) return;
  WorkerSlotSet gone;
  for (const auto& [worker, slot] : left) {
    gpu_blocks_.erase(worker);
    gone.set(static_cast<size_t>(slot));
    SetTrustLocked(static_cast<uint16_t>(slot), KvTrust::kOff);
  }
  for (size_t cache = 0; cache < kMaxWorkers; ++cache) {
    const uint16_t worker = worker_of_[cache].load(std::memory_order_relaxed);
    if (worker != kNoWorker && gone.test(worker)) RemoveLocked(static_cast<WorkerSlot>(cache));
  }
}

StatusOr<WorkerSlot> ReportedBlocks::AddCache(WorkerId worker) {
  const MutexLock lock(mutex_);
  const uint16_t slot = SlotOf(worker);
  if (slot == kNoWorker) return absl::NotFoundError("the worker has left the fleet");
  const StatusOr<WorkerSlot> cache = index_.AddOwner();
  if (!cache.ok()) return cache;
  worker_of_[static_cast<size_t>(*cache)].store(slot, std::memory_order_relaxed);
  return cache;
}

bool ReportedBlocks::HasCache(WorkerId worker, WorkerSlot cache) const {
  const MutexLock lock(mutex_);
  const uint16_t slot = SlotOf(worker);
  return slot != kNoWorker && worker_of_[static_cast<size_t>(cache)].load(std::memory_order_relaxed) == slot;
}

void ReportedBlocks::RemoveCache(WorkerSlot cache) {
  const MutexLock lock(mutex_);
  if (worker_of_[static_cast<size_t>(cache)].load(std::memory_order_relaxed) != kNoWorker)
    RemoveLocked(cache);
}

void ReportedBlocks::RemoveLocked(WorkerSlot cache) {
  index_.RemoveOwner(cache);
  worker_of_[static_cast<size_t>(cache)].store(kNoWorker, std::memory_order_relaxed);
}

void ReportedBlocks::SetTrust(WorkerId worker, KvTrust trust) {
  const MutexLock lock(mutex_);
  const uint16_t slot = SlotOf(worker);
  if (slot != kNoWorker) SetTrustLocked(slot, trust);
}

void ReportedBlocks::SetTrustLocked(uint16_t slot, KvTrust trust) {
  const KvTrust before = trust_[slot].exchange(trust, std::memory_order_relaxed);
  if (before == KvTrust::kOff && trust != KvTrust::kOff) workers_.fetch_add(1, std::memory_order_relaxed);
  if (before != KvTrust::kOff && trust == KvTrust::kOff) workers_.fetch_sub(1, std::memory_order_relaxed);
}

uint16_t ReportedBlocks::SlotOf(WorkerId worker) const {
  const auto found = slot_of_.find(static_cast<uint32_t>(worker));
  return found != slot_of_.end() ? static_cast<uint16_t>(found->second) : kNoWorker;
}

void ReportedBlocks::SetGpuBlocks(WorkerId worker, std::vector<GpuBlocks> blocks) {
  const MutexLock lock(mutex_);
  if (SlotOf(worker) != kNoWorker) gpu_blocks_[static_cast<uint32_t>(worker)] = std::move(blocks);
}

uint64_t ReportedBlocks::GpuBlocksOf(WorkerId worker, std::optional<uint32_t> rank) const {
  const MutexLock lock(mutex_);
  const auto found = gpu_blocks_.find(static_cast<uint32_t>(worker));
  if (found == gpu_blocks_.end()) return 0;
  uint64_t all = 0;
  uint64_t of_every_rank = 0;
  for (const GpuBlocks& each : found->second) {
    if (rank && each.rank == rank) return each.blocks;
    if (!each.rank) of_every_rank = each.blocks;
    all += each.blocks;
  }
  return rank ? of_every_rank : all;
}

void ReportedBlocks::Owe(WorkerId worker, uint64_t blocks) {
  const MutexLock lock(owed_mutex_);
  const auto found = owed_.find(static_cast<uint32_t>(worker));
  if (found != owed_.end()) found->second += blocks;
}

void ReportedBlocks::Forgive(WorkerId worker, uint64_t blocks) {
  const MutexLock lock(owed_mutex_);
  const auto found = owed_.find(static_cast<uint32_t>(worker));
  if (found != owed_.end()) found->second -= std::min(found->second, blocks);
}

uint64_t ReportedBlocks::owed(WorkerId worker) const {
  const MutexLock lock(owed_mutex_);
  const auto found = owed_.find(static_cast<uint32_t>(worker));
  return found != owed_.end() ? found->second : 0;
}

void ReportedBlocks::SettleDebt(WorkerId worker) {
  const MutexLock lock(owed_mutex_);
  const auto found = owed_.find(static_cast<uint32_t>(worker));
  if (found != owed_.end()) found->second = 0;
}

void ReportedBlocks::SetModelNames(ModelNames names) {
  const MutexLock lock(names_mutex_);
  told_names_ = std::move(names);
  PublishNames();
}

bool ReportedBlocks::MayAddPushedModel(std::string_view model) const {
  const MutexLock lock(names_mutex_);
  return pushed_models_.size() < kMaxPushedModels || pushed_models_.contains(model);
}

void ReportedBlocks::AddPushedModel(std::string_view model) {
  const MutexLock lock(names_mutex_);
  if (pushed_models_.contains(model)) return;
  pushed_models_.emplace(model);
  PublishNames();
}

void ReportedBlocks::PublishNames() {
  ModelNames names = told_names_;
  for (const std::string& pushed : pushed_models_) names.try_emplace(pushed, pushed);
  if (!pushed_models_.empty()) {
    // A prompt without a name is for the model that was pushed without one, or for the only one.
    const auto is_other = [&names](const auto& entry) {
      return !entry.first.empty() && entry.second != names.rbegin()->second;
    };
    if (pushed_models_.contains("")) {
      names[""] = "";
    } else if (std::ranges::any_of(names, is_other)) {
      names.erase("");
    } else {
      names[""] = std::string(names.rbegin()->second);
    }
  }
  model_names_.Publish(std::make_shared<const ModelNames>(std::move(names)));
}

KvTrust ReportedBlocks::TrustOf(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const uint16_t slot = SlotOf(worker);
  return slot != kNoWorker ? trust(static_cast<WorkerSlot>(slot)) : KvTrust::kOff;
}

void ReportedBlocks::Merge(std::span<const BlockHash> chain, bool replacing, BlockMatches* matches) const {
  if (!active()) return;
  // Looked up once: each access to a thread-local variable is a call.
  thread_local BlockMatches own_reported;
  BlockMatches& reported = own_reported;
  index_.Match(chain, &reported);
  for (BlockMatch& match : matches->entries()) {
    if (replacing && IsComplete(trust(match.owner))) match.blocks = {};
  }
  for (const BlockMatch& match : std::as_const(reported).entries()) {
    // A match that sees a cache as it is removed may find no worker, or the next one's.
    const uint16_t worker = worker_of_[static_cast<size_t>(match.owner)].load(std::memory_order_relaxed);
    if (worker == kNoWorker || !IsUsable(trust(static_cast<WorkerSlot>(worker)))) continue;
    matches->Raise(static_cast<WorkerSlot>(worker), match.blocks);
  }
}

std::array<uint64_t, kTierCount> ReportedBlocks::BlockCounts(WorkerId worker) const {
  std::array<uint64_t, kTierCount> counts{};
  const MutexLock lock(mutex_);
  const uint16_t slot = SlotOf(worker);
  if (slot == kNoWorker) return counts;
  for (size_t cache = 0; cache < kMaxWorkers; ++cache) {
    if (worker_of_[cache].load(std::memory_order_relaxed) != slot) continue;
    const std::array<uint64_t, kTierCount> of_cache = index_.TierCounts(static_cast<WorkerSlot>(cache));
    for (size_t tier = 0; tier < kTierCount; ++tier) counts[tier] += of_cache[tier];
  }
  return counts;
}

}  // namespace vllm_router
