// EventApplier: from the decoded KV events of one source (one rank of one worker) to changes of the blocks
// that the worker is reported to hold.
//
//   BlockStored hashes [7, 8] parent nil tokens 0..63, size 32     index, blocks of 16:   a b c d
//   BlockStored hashes [9]    parent 8   tokens 64..95                                           e f
//   BlockRemoved       [9]                                         at the end of the batch:     -- --
//
// The engine's hashes are handles only: the index has hashes of the tokens themselves. An engine's block is one
// block of the index or several; other sizes are dropped, and the first stored event fixes the size.
//
// In a batch, stores are applied at once and removals at its end, so a block that moves between tiers, or is
// removed and stored again, is never missing. A stored event whose parent is unknown waits for it. What cannot
// be used is dropped by event and counted; the rest of the batch applies.
//
// An event without tokens, a placeholder, says that a known block is on another tier too. It may come after the
// block was removed from the GPU: from the first event about another tier on, the last removed blocks are kept
// with their parents, and a placeholder brings them back behind a parent that is known. Of one event they are
// tried in order and then in reverse.
//
// Bounded: blocks by max_blocks, removed ones by max_removed_blocks, waiting events by blocks, bytes and time.
// Cost: 0.2 to 0.5 us per block (benchmarks/micro/event_applier.cc); with a second tier 30 to 60 bytes more for
// each, its parent. One thread for all appliers of a ReportedBlocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "events/identity_map.h"
#include "events/kv_event.h"
#include "events/removed_blocks.h"
#include "hashing/block_hash.h"
#include "index/reported_blocks.h"

namespace vllm_router {

// Why an event, or blocks of it, were not applied.
enum class KvEventDrop : uint8_t {
  kRemote,              // of another worker
  kUnknownMedium,       //
  kPoolMedium,          // storage that every worker reads
  kOtherGroup,          // of layers without full attention
  kUnknownPlaceholder,  // no tokens, and a block that is not known, nor was lately; or its parent is not
  kBlockSize,           // no multiple of the index's, or another than before
  kShape,               // tokens that do not fill the blocks
  kNamespace,           // an adapter without a name, or a hash that two prompts share
  kOrphanLimit,         // too many wait for their parents
  kOrphanExpired,       // the parent did not come
  kFull,                // max_blocks, or the index is full
  kUnknownWorker,       // it has left, or there is no place for its cache
};
inline constexpr size_t kKvEventDropCount = 12;
std::string_view KvEventDropName(KvEventDrop drop);

struct EventApplierOptions {
  // The base model's name as requests have it: their hashes begin with it, and those of events must.
  std::string model;
  // True if the engine announces each physical copy of a block, as vLLM; others announce a block again.
  bool counts_copies = true;
  // Maximum number of the engine's blocks known at once.
  uint64_t max_blocks = 16'000'000;
  // Maximum number of removed blocks that are kept, once the engine has named a second tier.
  size_t max_removed_blocks = 8192;
  // Maximum number of blocks that wait for a parent, and how long they do.
  size_t max_orphan_blocks = 4096;
  int64_t orphan_ns = 600'000'000'000;
};

class EventApplier {
 public:
  struct Result {
    bool cleared = false;        // the engine emptied its cache
    bool contradiction = false;  // many known hashes came with other tokens: this is another engine's stream
  };
  struct Figures {
    uint64_t stored_blocks = 0;   // of the engine, in events that were applied
    uint64_t removed_blocks = 0;  //
    uint64_t unknown_removed = 0;
    uint64_t contradictions = 0;
    uint64_t stale_refs = 0;  // blocks that the index no longer had
    std::array<uint64_t, kKvEventDropCount> dropped{};
  };

  // `blocks` outlives this.
  EventApplier(ReportedBlocks* blocks, WorkerId worker, EventApplierOptions options);
  ~EventApplier();
  EventApplier(const EventApplier&) = delete;
  EventApplier& operator=(const EventApplier&) = delete;

  Result Apply(const KvBatch& batch, int64_t now_ns);
  // The stored events whose parents did not come in time. Apply() does it too.
  void DropExpired(int64_t now_ns);
  // The engine is another one, or its cache is unknown afresh: everything is forgotten but the figures.
  void NewIncarnation();

  uint32_t engine_block_size() const { return engine_block_size_; }  // 0: not known yet
  size_t known_blocks() const { return map_.size(); }                // of the engine
  size_t known_gpu_blocks() const { return map_.on_gpu(); }          // of these, without their copies
  size_t orphan_blocks() const { return orphan_blocks_; }
  size_t orphan_bytes() const { return orphan_bytes_; }
  std::optional<WorkerSlot> cache() const { return cache_; }
  std::array<uint64_t, kTierCount> TierCounts() const;  // blocks of the index
  const Figures& figures() const { return figures_; }
  size_t bytes() const;

 private:
  // A stored event with its own memory.
  struct Orphan {
    int64_t since_ns = 0;
    EngineHash parent = 0;
    Tier tier = Tier::kGpu;
    uint32_t block_size = 0;
    std::vector<EngineHash> hashes;
    std::vector<uint32_t> tokens;
    std::vector<std::pair<uint32_t, std::string>> extras;  // by block of the event
    std::vector<EngineHash> removed;                       // while it waits
    size_t bytes() const;
  };
  using Orphans = std::list<Orphan>;
  struct Stored {
    std::optional<EngineHash> parent;
    BlockHash root = kNoBlock;  // without a parent
    Tier tier = Tier::kGpu;
    uint32_t block_size = 0;
    std::span<const EngineHash> hashes;
    std::span<const uint32_t> tokens;
    std::span<const std::pair<uint32_t, std::string>> extras;
  };
  struct Late {
    Tier tier;
    EngineHash hash;
  };

  void Drop(KvEventDrop why, uint64_t count = 1) { figures_.dropped[static_cast<size_t>(why)] += count; }
  // False when there is none: the worker has left.
  bool EnsureCache();
  void ReleaseCache();
  void Forget();

  std::optional<KvEventDrop> Check(const KvEvent& event, Tier* tier);
  bool IsMainGroup(const KvEvent& event);
  void ApplyStored(const KvBatch& batch, const KvEvent& event, Tier tier, int64_t now_ns);
  void ApplyPlaceholder(std::span<const EngineHash> hashes, Tier tier);
  // A known block, or one that was removed. False: nothing is known of it, or of its parent.
  bool Place(EngineHash hash, Tier tier);
  bool Restore(EngineHash hash, Tier tier);
  void KeepRemoved(EngineHash hash, const IdentityMap::Entry& entry);
  void ApplyRemoved(EngineHash hash, Tier tier);
  void ApplyCleared();
  void ApplyLate();

  // The salt and what goes into the hashes of single blocks. False: an adapter has no name.
  bool ReadNames(
      const KvBatch& batch, const KvEvent& event, std::string_view* adapter, std::string_view* salt);
  // False: the parent is unknown.
  bool Store(const Stored& stored);
  // False: the map is full.
  bool StoreEntry(EngineHash hash, Tier tier, std::span<const BlockRef> refs, bool is_announced_again);

  void AddOrphan(const Stored& stored, int64_t now_ns);
  void Attach();  // those whose parents are in `attach_from_`
  bool RemoveFromOrphan(EngineHash hash, Tier tier);
  void DropOrphan(Orphans::iterator orphan);
  Orphan TakeOrphan(Orphans::iterator orphan);

  ReportedBlocks& blocks_;
  const WorkerId worker_;
  const EventApplierOptions options_;
  std::optional<WorkerSlot> cache_;
  IdentityMap map_;
  uint32_t engine_block_size_ = 0;
  std::optional<uint16_t> main_group_;
  bool main_group_is_full_ = false;  // named so by the engine
  uint32_t contradictions_ = 0;      // of this batch
  std::vector<Late> late_;

  bool has_tiers_ = false;                                // an event named a tier that is not the GPU
  absl::flat_hash_map<EngineHash, ParentBlock> parents_;  // of blocks stored since then
  RemovedBlocks removed_;

  Orphans orphans_;  // oldest first
  absl::flat_hash_map<EngineHash, std::vector<Orphans::iterator>> by_parent_;
  // The orphans that hold a hash, once for each time that they do and it was not removed.
  absl::flat_hash_map<EngineHash, std::vector<Orphans::iterator>> waiting_;
  size_t orphan_blocks_ = 0;
  size_t orphan_bytes_ = 0;

  Figures figures_;
  // Scratch space.
  std::vector<EngineHash> attach_from_;
  std::vector<std::pair<uint32_t, std::string>> extras_;
  std::vector<BlockExtra> block_extras_;
  std::vector<BlockHash> chain_;
  std::vector<BlockRef> refs_;
  std::vector<BlockRef> removed_refs_;
  std::vector<EngineHash> missing_;
};

}  // namespace vllm_router
