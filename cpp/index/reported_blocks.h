// ReportedBlocks: which blocks the workers' caches hold as their KV events tell it, and how far each
// worker's events can be trusted. Each data-parallel rank of a worker is a cache of its own; the one that
// holds most of a prompt counts for the worker.
//
//   worker's slot   3                    7                         as in the matches that Merge() completes
//   trust           exact                partial
//   caches          c0  c1               c2                        slots of index()
//
// What the events tell replaces what was learned about a worker, or adds to it, by its trust:
//
//                    learned 5 blocks, events 3      learned 0, events 3
//   exact, settled   3                               3
//   partial          5                               3
//   others           5                               0
//
// An engine serves a model under several names, and its events name none of them: ModelNames() has the one
// whose prompts the caches' blocks belong to. For prompts of models that are not among them, adapters for
// instance, events only add to what was learned.
//
// Writers name workers by id, and a worker that has left takes nothing: its slot may be another's by then.
// Thread-safe. Merge() and trust() never wait.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "hashing/block_hash.h"
#include "index/block_index.h"
#include "index/block_matches.h"
#include "index/kv_trust.h"
#include "index/worker_slot.h"
#include "worker/worker.h"

namespace vllm_router {

class ReportedBlocks {
 public:
  struct Known {
    WorkerId worker;
    WorkerSlot slot;
  };

  // `hasher` hashes the prompts that are matched, and outlives this.
  explicit ReportedBlocks(const BlockHasher& hasher);

  const BlockHasher& hasher() const { return hasher_; }
  // For changes of what a cache holds.
  BlockIndex& index() { return index_; }
  const BlockIndex& index() const { return index_; }

  // The workers of the pool from now on. The caches of those that left are removed.
  void SetWorkers(std::span<const Known> workers);

  // An empty cache of the worker. NotFound once it has left; ResourceExhausted when there are kMaxWorkers.
  StatusOr<WorkerSlot> AddCache(WorkerId worker);
  // False once the worker has left: the cache may be another's by then.
  bool HasCache(WorkerId worker, WorkerSlot cache) const;
  // It is matched no more, at once. Unknown ones: no effect.
  void RemoveCache(WorkerSlot cache);
  // No effect once it has left.
  void SetTrust(WorkerId worker, KvTrust trust);

  // The capacities of its ranks' GPU caches. No effect once it has left.
  void SetGpuBlocks(WorkerId worker, std::vector<GpuBlocks> blocks);
  // The capacity of one rank's, or of all; 0: unknown.
  uint64_t GpuBlocksOf(WorkerId worker, std::optional<uint32_t> rank) const;

  // The worker was sent so many blocks that it does not hold, and should publish them; or will not after
  // all. No effect once it has left.
  void Owe(WorkerId worker, uint64_t blocks);
  void Forgive(WorkerId worker, uint64_t blocks);
  // What it owes since SettleDebt(), which follows whatever it publishes; 0 once it has left.
  uint64_t owed(WorkerId worker) const;
  void SettleDebt(WorkerId worker);

  // From each name of a base model to the one that its blocks are known under.
  using ModelNames = std::map<std::string, std::string, std::less<>>;
  void SetModelNames(ModelNames names);
  // The model's events are handed over, so that nothing else tells its name. Empty: prompts name none. False:
  // there are kMaxPushedModels others.
  static constexpr size_t kMaxPushedModels = 256;
  bool MayAddPushedModel(std::string_view model) const;
  void AddPushedModel(std::string_view model);
  std::shared_ptr<const ModelNames> model_names() const { return model_names_.Load(); }

  // kOff once it has left.
  KvTrust TrustOf(WorkerId worker) const;

  // kOff for workers without events.
  KvTrust trust(WorkerSlot worker) const {
    return trust_[static_cast<size_t>(worker)].load(std::memory_order_relaxed);
  }
  // True if any worker has a source of events, so that Merge() may change a match.
  bool active() const { return workers_.load(std::memory_order_relaxed) != 0; }

  // Completes `matches`, what was learned about workers by slot, with what their events tell. Where it is
  // not `replacing`, events add to what was learned whatever the trust.
  void Merge(std::span<const BlockHash> chain, bool replacing, BlockMatches* matches) const;

  // Blocks on each tier, of all caches of the worker; zeros once it has left.
  std::array<uint64_t, kTierCount> BlockCounts(WorkerId worker) const;

 private:
  static constexpr uint16_t kNoWorker = UINT16_MAX;

  // kNoWorker once it has left.
  uint16_t SlotOf(WorkerId worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetTrustLocked(uint16_t slot, KvTrust trust) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(WorkerSlot cache) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void PublishNames() ABSL_EXCLUSIVE_LOCKS_REQUIRED(names_mutex_);

  const BlockHasher& hasher_;
  BlockIndex index_;
  mutable Mutex names_mutex_;  // held while the names are replaced
  ModelNames told_names_ ABSL_GUARDED_BY(names_mutex_);
  std::set<std::string, std::less<>> pushed_models_ ABSL_GUARDED_BY(names_mutex_);
  Snapshot<ModelNames> model_names_{std::make_shared<const ModelNames>()};
  std::atomic<uint32_t> workers_{0};                            // whose trust is not kOff
  std::array<std::atomic<KvTrust>, kMaxWorkers> trust_{};       // by worker's slot
  std::array<std::atomic<uint16_t>, kMaxWorkers> worker_of_{};  // by cache: its worker's slot
  mutable Mutex mutex_;                                         // calls the index while it is held
  absl::flat_hash_map<uint32_t, WorkerSlot> slot_of_ ABSL_GUARDED_BY(mutex_);                 // by WorkerId
  absl::flat_hash_map<uint32_t, std::vector<GpuBlocks>> gpu_blocks_ ABSL_GUARDED_BY(mutex_);  // likewise
  mutable Mutex owed_mutex_;  // leaf; requests take it, so nothing else is done under it
  absl::flat_hash_map<uint32_t, uint64_t> owed_ ABSL_GUARDED_BY(owed_mutex_);  // by WorkerId, of all workers
};

}  // namespace vllm_router
