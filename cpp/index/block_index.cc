#include "index/block_index.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// Far enough ahead to hide a cache miss behind the probes before it.
constexpr size_t kProbeAhead = 12;

constexpr Cuts AllCuts(uint32_t cut) {
  const auto blocks = static_cast<uint16_t>(cut);
  return {blocks, blocks, blocks};
}

size_t Number(WorkerSlot owner) { return static_cast<size_t>(owner); }

}  // namespace

BlockIndex::BlockIndex(const BlockIndexOptions& options)
    : options_(options),
      reclaimer_(
          [](void* pool, void* memory, size_t bytes) { static_cast<MemoryPool*>(pool)->Free(memory, bytes); },
          &pool_),
      directory_(&pool_, &reclaimer_) {}

BlockIndex::~BlockIndex() {
  for (uint32_t id = 1; id < run_count_; ++id) {
    if (RunCell* const cell = run(id).cell) {
      RetireBlocks(cell->blocks, cell->block_capacity);
      RetireCell(cell);
    }
  }
}

// ---- Owners ------------------------------------------------------------------------------------------

StatusOr<WorkerSlot> BlockIndex::AddOwner() {
  const MutexLock lock(mutex_);
  WorkerSlot owner;
  if (!freed_ids_.empty() && EpochReclaimer::AllLeftSince(freed_ids_.front().moment)) {
    owner = freed_ids_.front().owner;
    freed_ids_.pop_front();
  } else if (owners_.size() < kMaxWorkers) {
    owner = static_cast<WorkerSlot>(owners_.size());
    owners_.emplace_back();
  } else {
    return absl::ResourceExhaustedError(Concat(
        "all ", kMaxWorkers, " places for workers are taken, or not yet swept; remove a worker first"));
  }
  owners_[Number(owner)].state = OwnerState::kActive;
  active_[Number(owner) / 64].fetch_or(uint64_t{1} << (Number(owner) % 64), std::memory_order_release);
  ++counts_.owners;
  return owner;
}

bool BlockIndex::IsActive(WorkerSlot owner) const {
  return Number(owner) < owners_.size() && owners_[Number(owner)].state == OwnerState::kActive;
}

void BlockIndex::RemoveOwner(WorkerSlot owner) {
  const MutexLock lock(mutex_);
  if (!IsActive(owner)) return;
  active_[Number(owner) / 64].fetch_and(~(uint64_t{1} << (Number(owner) % 64)), std::memory_order_release);
  Owner& removed = owners_[Number(owner)];
  removed.state = OwnerState::kRemoved;
  --counts_.owners;
  waiting_.set(Number(owner));
}

bool BlockIndex::Sweep(size_t runs) {
  const MutexLock lock(mutex_);
  return SweepLocked(runs);
}

bool BlockIndex::SweepLocked(size_t runs) {
  if (sweep_next_ == 0) {
    if (waiting_.none()) return false;
    sweeping_ = std::exchange(waiting_, {});
    sweep_next_ = 1;
  }
  for (; runs > 0 && sweep_next_ < run_count_; --runs, ++sweep_next_) {
    if (run(sweep_next_).cell != nullptr) SweepRun(sweep_next_);
  }
  if (sweep_next_ < run_count_) return true;
  const uint64_t now = EpochReclaimer::Now();
  for (size_t owner = 0; owner < owners_.size(); ++owner) {
    if (!sweeping_.test(owner)) continue;
    owners_[owner] = {};
    freed_ids_.push_back({static_cast<WorkerSlot>(owner), now});
  }
  sweeping_.reset();
  sweep_next_ = 0;
  return waiting_.any();
}

void BlockIndex::SweepRun(uint32_t id) {
  // Only the holder's own word and coverage change here, so the words can be walked meanwhile.
  RunCell& cell = *run(id).cell;
  const uint32_t count = cell.holder_count.load(std::memory_order_relaxed);
  bool changed = false;
  for (uint32_t i = 0; i < count; ++i) {
    const Holder holder = cell.holder(i);
    if (holder.empty() || !sweeping_.test(Number(holder.owner()))) continue;
    Forget(id, holder.owner(), {i, holder});
    changed = true;
  }
  if (run(id).irregular > 0) {
    std::vector<WorkerSlot> rest;  // with islands only, so without a word
    for (const Irregular& irregular : irregular_.find(id)->second) {
      if (sweeping_.test(Number(irregular.owner))) rest.push_back(irregular.owner);
    }
    for (const WorkerSlot owner : rest) Forget(id, owner, {});
    changed = changed || !rest.empty();
  }
  if (changed) Trim(id);
}

void BlockIndex::Forget(uint32_t id, WorkerSlot owner, const Place& place) {
  Owner& counts = owners_[Number(owner)];
  const auto gone = [&](int tier, uint64_t blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    counts.on[tier] -= blocks;
    counts_.pairs_on[tier] -= blocks;
    counts_.removed_blocks += blocks;
  };
  uint64_t held = place.holder.longest();
  if (const Coverage* const coverage = FindIrregular(id, owner)) {
    held = coverage->Count();
    for (int tier = 0; tier < kTierCount; ++tier) gone(tier, coverage->Count(static_cast<Tier>(tier)));
    DropIrregular(id, owner);
  } else {
    gone(static_cast<int>(Tier::kGpu), held);
  }
  counts.blocks -= held;
  counts_.pairs -= held;
  PutHolder(id, owner, place, {});
}

// ---- Insert ------------------------------------------------------------------------------------------

InsertResult BlockIndex::Insert(
    WorkerSlot owner, Tier tier, BlockRef parent, std::span<const BlockHash> blocks, BlockRef* refs) {
  const MutexLock lock(mutex_);
  return InsertLocked(owner, tier, parent, blocks, [&refs](BlockSpan span) {
    if (refs == nullptr) return;
    for (uint32_t i = 0; i < span.count; ++i) *refs++ = span.first + i;
  });
}

InsertResult BlockIndex::Insert(
    WorkerSlot owner, Tier tier, BlockRef parent, std::span<const BlockHash> blocks,
    std::vector<BlockSpan>* spans) {
  const MutexLock lock(mutex_);
  return InsertLocked(owner, tier, parent, blocks, [spans](BlockSpan span) { spans->push_back(span); });
}

template <typename Emit>
InsertResult BlockIndex::InsertLocked(
    WorkerSlot owner, Tier tier, BlockRef parent, std::span<const BlockHash> blocks, Emit emit) {
  if (sweep_pending()) SweepLocked(kRunsSweptPerChange);
  if (!IsActive(owner)) return {InsertStatus::kUnknownOwner};
  // The cursor: the next block is expected at `offset` of run `id`; 0 is no run.
  uint32_t id = 0;
  uint32_t offset = 0;
  if (!parent.is_root()) {
    id = RunOf(parent);
    if (id == 0) {
      ++counts_.unknown_parents;
      return {InsertStatus::kUnknownParent};
    }
    offset = parent.offset() + 1;
  }

  const auto take = [&](uint32_t count, size_t* done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Cover(id, owner, tier, offset, offset + count);
    emit(BlockSpan{RefOf(id, offset), count});
    offset += count;
    *done += count;
  };
  size_t done = 0;
  const auto result = [&](InsertStatus status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return InsertResult{status, done, owners_[Number(owner)].blocks};
  };
  while (done < blocks.size()) {
    const std::span<const BlockHash> rest = blocks.subspan(done);
    if (id != 0) {
      const RunCell& cell = *run(id).cell;
      const uint32_t length = cell.length.load(std::memory_order_relaxed);
      const size_t here = std::min<size_t>(length - offset, rest.size());
      if (const size_t equal = CommonPrefix(cell.blocks + offset, rest.data(), here); equal > 0) {
        take(static_cast<uint32_t>(equal), &done);
        continue;
      }
    }
    // Not in this run. A run that begins with the block has it, from whichever parent one comes.
    if (const RunCell* const child = directory_.Find(rest[0])) {
      id = child->run;
      offset = 0;
      take(1, &done);
      continue;
    }
    // A new block. The blocks behind it are new too, up to one that has outlived its parent: that one
    // begins a run.
    const size_t fresh = CountNew(rest);
    const uint64_t room = options_.max_blocks - std::min(options_.max_blocks, counts_.blocks);
    const std::span<const BlockHash> added = rest.first(std::min<uint64_t>(fresh, room));
    if (added.empty()) {
      counts_.refused_blocks += rest.size();
      return result(InsertStatus::kFull);
    }
    uint32_t count = 0;
    if (id != 0 && offset == run(id).cell->length.load(std::memory_order_relaxed) && HoldsLast(id, owner))
      count = Append(id, added);
    if (count == 0) {
      const auto first = added.first(std::min<size_t>(added.size(), kMaxRunBlocks));
      id = NewRun(first);
      if (id == 0) {
        counts_.refused_blocks += rest.size();
        return result(InsertStatus::kFull);
      }
      offset = 0;
      count = static_cast<uint32_t>(first.size());
    }
    take(count, &done);
  }
  return result(InsertStatus::kInserted);
}

size_t BlockIndex::CountNew(std::span<const BlockHash> blocks) const {
  // While a sweep is under way, blocks may have lost their parents in any case.
  if (options_.prefix_closed && !sweep_pending()) return blocks.size();
  const RunDirectory::View directory(directory_);
  for (size_t i = 1; i < std::min(blocks.size(), kProbeAhead); ++i) directory.Prefetch(blocks[i]);
  for (size_t i = 1; i < blocks.size(); ++i) {
    if (i + kProbeAhead < blocks.size()) directory.Prefetch(blocks[i + kProbeAhead]);
    if (directory.Find(blocks[i]) != nullptr) return i;
  }
  return blocks.size();
}

uint32_t BlockIndex::RunOf(BlockRef ref) const {
  const uint32_t id = ref.run();
  if (id == 0 || id >= run_count_) return 0;
  const Run& found = run(id);
  if (found.cell == nullptr || found.generation != ref.generation()) return 0;
  return ref.offset() < found.cell->length.load(std::memory_order_relaxed) ? id : 0;
}

bool BlockIndex::HoldsLast(uint32_t id, WorkerSlot owner) const {
  const RunCell& cell = *run(id).cell;
  const uint32_t length = cell.length.load(std::memory_order_relaxed);
  if (run(id).irregular > 0) {
    if (const Coverage* const coverage = FindIrregular(id, owner)) return coverage->end() == length;
  }
  return FindHolder(cell, owner).holder.longest() == length;
}

uint32_t BlockIndex::Append(uint32_t id, std::span<const BlockHash> blocks) {
  Run& grown = run(id);
  RunCell* cell = grown.cell;
  const uint32_t length = cell->length.load(std::memory_order_relaxed);
  uint32_t count = 0;
  if (length < grown.high_water) {
    // These places had blocks before, and a place is never given to another block. The same blocks may
    // come back.
    const uint32_t kept = std::min<uint32_t>(grown.high_water, cell->block_capacity);
    while (length + count < kept && count < blocks.size() && cell->blocks[length + count] == blocks[count])
      ++count;
  } else {
    count = static_cast<uint32_t>(std::min<size_t>(blocks.size(), kMaxRunBlocks - length));
    if (length + count > cell->block_capacity) {
      uint16_t capacity = 0;
      BlockHash* const larger =
          NewBlocks(std::min(kMaxRunBlocks, std::max(length + count, length + length / 2)), &capacity);
      std::memcpy(larger, cell->blocks, length * sizeof(BlockHash));
      ReplaceCell(id, 0, larger, capacity);
      cell = grown.cell;
    }
    std::memcpy(cell->blocks + length, blocks.data(), count * sizeof(BlockHash));
    grown.high_water = static_cast<uint16_t>(length + count);
  }
  cell->length.store(length + count, std::memory_order_release);
  counts_.blocks += count;
  return count;
}

uint32_t BlockIndex::NewRun(std::span<const BlockHash> blocks) {
  uint32_t id = 0;
  if (!free_runs_.empty()) {
    id = free_runs_.back();
    free_runs_.pop_back();
  } else if (run_count_ < kMaxRuns) {
    id = run_count_++;
    if (id / kRunsPerPage == pages_.size()) pages_.push_back(std::make_unique<Run[]>(kRunsPerPage));
  } else {
    return 0;
  }
  Run& made = run(id);
  made.cell = NewCell(id, 1);
  const auto count = static_cast<uint32_t>(blocks.size());
  made.cell->blocks = NewBlocks(count, &made.cell->block_capacity);
  std::memcpy(made.cell->blocks, blocks.data(), blocks.size_bytes());
  made.cell->length.store(count, std::memory_order_relaxed);
  made.high_water = static_cast<uint16_t>(count);
  directory_.Put(blocks[0], made.cell);
  counts_.blocks += count;
  ++counts_.runs;
  return id;
}

// ---- What an owner holds of a run --------------------------------------------------------------------

void BlockIndex::Cover(uint32_t id, WorkerSlot owner, Tier tier, uint32_t begin, uint32_t end) {
  const Place place = FindHolder(*run(id).cell, owner);
  Coverage* coverage = run(id).irregular == 0 ? nullptr : FindIrregular(id, owner);
  Coverage::Change change;
  if (coverage == nullptr && tier == Tier::kGpu && begin <= place.holder.longest()) {
    // The common case: the blocks behind those that the owner holds already, on its GPU.
    const uint32_t cut = place.holder.longest();
    if (end <= cut) return;
    change = {.on_tier = end - cut, .held = end - cut};
    PutHolder(id, owner, place, AllCuts(end));
  } else {
    if (coverage == nullptr) coverage = &AddIrregular(id, owner, Coverage::Leading(place.holder.longest()));
    change = coverage->Add(tier, begin, end);
    PublishIrregular(id, owner, place, *coverage);
  }
  Owner& counts = owners_[Number(owner)];
  counts.blocks += change.held;
  counts.on[static_cast<int>(tier)] += change.on_tier;
  counts_.pairs += change.held;
  counts_.pairs_on[static_cast<int>(tier)] += change.on_tier;
  counts_.inserted_blocks += change.on_tier;
}

void BlockIndex::Uncover(uint32_t id, WorkerSlot owner, Tier tier, uint32_t begin, uint32_t end) {
  const RunCell& cell = *run(id).cell;
  const Place place = FindHolder(cell, owner);
  Coverage* coverage = run(id).irregular == 0 ? nullptr : FindIrregular(id, owner);
  const uint32_t cut = place.holder.longest();
  const uint32_t held_to = coverage == nullptr ? cut : coverage->end();
  Coverage::Change change;
  if (coverage == nullptr && (tier != Tier::kGpu || begin >= cut)) {
    // Nothing of it is held.
  } else if (coverage == nullptr && end >= cut) {
    // The common case: the last ones are removed.
    change = {.on_tier = cut - begin, .held = cut - begin};
    PutHolder(id, owner, place, AllCuts(begin));
  } else {
    if (coverage == nullptr) coverage = &AddIrregular(id, owner, Coverage::Leading(cut));
    change = coverage->Remove(tier, begin, end);
    PublishIrregular(id, owner, place, *coverage);
  }
  counts_.not_held += end - begin - change.on_tier;
  counts_.removed_blocks += change.on_tier;
  Owner& counts = owners_[Number(owner)];
  counts.blocks -= change.held;
  counts.on[static_cast<int>(tier)] -= change.on_tier;
  counts_.pairs -= change.held;
  counts_.pairs_on[static_cast<int>(tier)] -= change.on_tier;
  // Only an owner that reached the end can have been the last to do so.
  if (change.held > 0 && held_to == cell.length.load(std::memory_order_relaxed)) Trim(id);
}

BlockIndex::Place BlockIndex::FindHolder(const RunCell& cell, WorkerSlot owner) {
  const uint32_t count = cell.holder_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    const Holder holder(cell.holders()[i].load(std::memory_order_relaxed));
    if (holder.Is(owner)) return {i, holder};
  }
  return {};
}

void BlockIndex::PutHolder(uint32_t id, WorkerSlot owner, const Place& place, const Cuts& cuts) {
  Run& held = run(id);
  RunCell* cell = held.cell;
  const bool none = cuts[kTierCount - 1] == 0;
  if (place.index != UINT32_MAX) {
    const Holder holder = none ? Holder() : Holder(owner, cuts);
    cell->holders()[place.index].store(holder.word(), std::memory_order_release);
    if (!none) return;
    --held.holders;
    const uint16_t departures = cell->departures.load(std::memory_order_relaxed);
    cell->departures.store(static_cast<uint16_t>(departures + 1), std::memory_order_release);
    return;
  }
  if (none) return;
  ++held.holders;
  uint32_t count = cell->holder_count.load(std::memory_order_relaxed);
  uint32_t index = count;
  if (held.holders <= count) {  // an empty word is among them
    for (index = 0; !cell->holder(index).empty();) ++index;
  } else if (count == cell->holder_capacity) {
    ReplaceCell(id, 1 + count / 2, cell->blocks, cell->block_capacity);
    cell = held.cell;
    index = cell->holder_count.load(std::memory_order_relaxed);
    count = index;
  }
  cell->holders()[index].store(Holder(owner, cuts).word(), std::memory_order_release);
  if (index == count) cell->holder_count.store(static_cast<uint16_t>(count + 1), std::memory_order_release);
}

Coverage* BlockIndex::FindIrregular(uint32_t id, WorkerSlot owner) {
  return const_cast<Coverage*>(static_cast<const BlockIndex*>(this)->FindIrregular(id, owner));
}

const Coverage* BlockIndex::FindIrregular(uint32_t id, WorkerSlot owner) const {
  if (run(id).irregular == 0) return nullptr;
  const std::vector<Irregular>& all = irregular_.find(id)->second;
  const auto found = std::lower_bound(
      all.begin(), all.end(), owner,
      [](const Irregular& each, WorkerSlot sought) { return each.owner < sought; });
  return found != all.end() && found->owner == owner ? &found->coverage : nullptr;
}

Coverage& BlockIndex::AddIrregular(uint32_t id, WorkerSlot owner, Coverage coverage) {
  std::vector<Irregular>& all = irregular_[id];
  const auto behind = std::lower_bound(
      all.begin(), all.end(), owner,
      [](const Irregular& each, WorkerSlot sought) { return each.owner < sought; });
  ++run(id).irregular;
  ++counts_.irregular;
  return all.insert(behind, {owner, std::move(coverage)})->coverage;
}

void BlockIndex::DropIrregular(uint32_t id, WorkerSlot owner) {
  const auto entry = irregular_.find(id);
  std::erase_if(entry->second, [owner](const Irregular& each) { return each.owner == owner; });
  if (entry->second.empty()) irregular_.erase(entry);
  --run(id).irregular;
  --counts_.irregular;
}

void BlockIndex::PublishIrregular(
    uint32_t id, WorkerSlot owner, const Place& place, const Coverage& coverage) {
  PutHolder(id, owner, place, coverage.cuts());
  if (coverage.IsLeading()) DropIrregular(id, owner);
}

// ---- Remove ------------------------------------------------------------------------------------------

void BlockIndex::Remove(WorkerSlot owner, Tier tier, std::span<const BlockRef> blocks) {
  const MutexLock lock(mutex_);
  if (sweep_pending()) SweepLocked(kRunsSweptPerChange);
  for (size_t i = 0; i < blocks.size();) {
    // Gather neighbours, in either direction, into one stretch [first, first + count).
    BlockRef first = blocks[i];
    uint32_t count = 1;
    for (++i; i < blocks.size(); ++i, ++count) {
      if (blocks[i] == first + count) continue;
      if (first.offset() == 0 || blocks[i] + 1 != first) break;
      first = blocks[i];
    }
    RemoveLocked(owner, tier, first, count);
  }
}

void BlockIndex::Remove(WorkerSlot owner, Tier tier, std::span<const BlockSpan> spans) {
  const MutexLock lock(mutex_);
  if (sweep_pending()) SweepLocked(kRunsSweptPerChange);
  // Removed runs have not been read for long: prefetch the cache lines of one run while another is
  // changed.
  for (const BlockSpan& span : spans) {
    if (const uint32_t id = RunOf(span.first); id != 0) __builtin_prefetch(run(id).cell->blocks);
  }
  for (const BlockSpan& span : spans) {
    if (span.count > 0) RemoveLocked(owner, tier, span.first, span.count);
  }
}

void BlockIndex::RemoveLocked(WorkerSlot owner, Tier tier, BlockRef first, uint32_t count) {
  const uint32_t id = IsActive(owner) ? RunOf(first) : 0;
  if (id == 0) {
    counts_.stale_refs += count;
    return;
  }
  const uint32_t length = run(id).cell->length.load(std::memory_order_relaxed);
  const uint32_t known = std::min(count, length - first.offset());
  counts_.stale_refs += count - known;
  Uncover(id, owner, tier, first.offset(), first.offset() + known);
}

void BlockIndex::Trim(uint32_t id) {
  Run& trimmed = run(id);
  if (trimmed.holders == 0 && trimmed.irregular == 0) return FreeRun(id);
  RunCell* const cell = trimmed.cell;
  const uint32_t length = cell->length.load(std::memory_order_relaxed);
  uint32_t furthest = 0;
  const uint32_t count = cell->holder_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count && furthest < length; ++i)
    furthest = std::max(furthest, cell->holder(i).longest());
  if (furthest < length && trimmed.irregular > 0) {
    for (const Irregular& irregular : irregular_.find(id)->second)
      furthest = std::max(furthest, irregular.coverage.end());
  }
  if (furthest < length) {
    cell->length.store(furthest, std::memory_order_release);
    counts_.blocks -= length - furthest;
  }
  // Memory is given back when most of it is idle.
  const bool idle_blocks = cell->block_capacity > 64 && furthest < cell->block_capacity / 2;
  const bool idle_holders = cell->holder_capacity > 16 && trimmed.holders < cell->holder_capacity / 4;
  if (!idle_blocks && !idle_holders) return;
  BlockHash* blocks = cell->blocks;
  uint16_t capacity = cell->block_capacity;
  if (idle_blocks) {
    blocks = NewBlocks(furthest, &capacity);
    // Removed blocks may come back: those that fit stay known.
    std::memcpy(blocks, cell->blocks, std::min<uint32_t>(capacity, trimmed.high_water) * sizeof(BlockHash));
  }
  ReplaceCell(id, 0, blocks, capacity);
}

void BlockIndex::FreeRun(uint32_t id) {
  Run& freed = run(id);
  counts_.blocks -= freed.cell->length.load(std::memory_order_relaxed);
  --counts_.runs;
  directory_.Erase(freed.cell->blocks[0]);
  RetireBlocks(freed.cell->blocks, freed.cell->block_capacity);
  RetireCell(freed.cell);
  const uint16_t generation = freed.generation;
  freed = {};
  freed.generation = static_cast<uint16_t>(generation + 1);
  // A number whose generations are used up is never reused: else an old ref could name a new block.
  if (freed.generation != 0) free_runs_.push_back(id);
}

// ---- Cells and arrays --------------------------------------------------------------------------------

RunCell* BlockIndex::NewCell(uint32_t id, uint32_t holders) {
  const size_t bytes = MemoryPool::RoundUp(RunCell::Bytes(holders));
  auto* const cell = ::new (pool_.Allocate(bytes)) RunCell;
  cell->run = id;
  cell->holder_capacity = static_cast<uint16_t>((bytes - sizeof(RunCell)) / sizeof(uint64_t));
  for (uint32_t i = 0; i < cell->holder_capacity; ++i) ::new (&cell->holders()[i]) std::atomic<uint64_t>(0);
  counts_.run_bytes += bytes;
  return cell;
}

void BlockIndex::ReplaceCell(uint32_t id, uint32_t more, BlockHash* blocks, uint16_t block_capacity) {
  Run& owner = run(id);
  RunCell* const before = owner.cell;
  const uint32_t used = before->holder_count.load(std::memory_order_relaxed);
  RunCell* const after = NewCell(id, std::max<uint32_t>(1, owner.holders + more));
  after->blocks = blocks;
  after->block_capacity = block_capacity;
  after->length.store(before->length.load(std::memory_order_relaxed), std::memory_order_relaxed);
  uint16_t count = 0;
  for (uint32_t i = 0; i < used; ++i) {
    const Holder holder = before->holder(i);
    if (!holder.empty()) after->holders()[count++].store(holder.word(), std::memory_order_relaxed);
  }
  after->holder_count.store(count, std::memory_order_relaxed);
  owner.cell = after;
  directory_.Replace(blocks[0], after);
  if (before->blocks != blocks) RetireBlocks(before->blocks, before->block_capacity);
  RetireCell(before);
}

void BlockIndex::RetireCell(RunCell* cell) {
  const size_t bytes = RunCell::Bytes(cell->holder_capacity);
  counts_.run_bytes -= bytes;
  reclaimer_.Retire(cell, bytes);
}

BlockHash* BlockIndex::NewBlocks(uint32_t count, uint16_t* capacity) {
  const size_t bytes = MemoryPool::RoundUp(count * sizeof(BlockHash));
  *capacity = static_cast<uint16_t>(bytes / sizeof(BlockHash));
  counts_.block_bytes += bytes;
  return static_cast<BlockHash*>(pool_.Allocate(bytes));
}

void BlockIndex::RetireBlocks(BlockHash* blocks, uint32_t capacity) {
  counts_.block_bytes -= capacity * sizeof(BlockHash);
  reclaimer_.Retire(blocks, capacity * sizeof(BlockHash));
}

// ---- Reading -----------------------------------------------------------------------------------------

void BlockIndex::Match(std::span<const BlockHash> chain, BlockMatches* matches) const {
  matches->Clear();
  const ReadGuard guard;
  const RunDirectory::View directory(directory_);
  uint32_t position = 0;
  bool somebody_goes_on = true;
  while (somebody_goes_on && position < chain.size()) {
    const RunCell* const cell = directory.Find(chain[position]);
    if (cell == nullptr) return;
    const uint32_t length = cell->length.load(std::memory_order_acquire);
    const auto common = static_cast<uint32_t>(CommonPrefix(
        cell->blocks, chain.data() + position, std::min<size_t>(length, chain.size() - position)));
    if (common == 0) return;
    somebody_goes_on =
        position == 0 ? MatchFirst(*cell, common, matches) : MatchNext(*cell, position, common, matches);
    position += common;
  }
}

bool BlockIndex::MatchFirst(const RunCell& cell, uint32_t common, BlockMatches* matches) const {
  const uint16_t departures = cell.departures.load(std::memory_order_acquire);
  const uint32_t count = cell.holder_count.load(std::memory_order_acquire);
  bool somebody_goes_on = false;
  {
    BlockMatches::Adder adder(matches);
    for (uint32_t i = 0; i < count; ++i) {
      const Holder holder = cell.holder(i);
      if (holder.empty()) continue;
      const size_t owner = Number(holder.owner());
      if ((active_[owner / 64].load(std::memory_order_relaxed) >> (owner % 64) & 1) == 0) continue;
      adder.Add(
          holder.owner(), {std::min(holder.cut(0), common), std::min(holder.cut(1), common),
                           std::min(holder.cut(2), common)});
      somebody_goes_on |= holder.longest() >= common;
    }
  }
  // An owner that left one word and took a later one meanwhile may have been met twice.
  if (cell.departures.load(std::memory_order_acquire) != departures) matches->DropRepeated();
  return somebody_goes_on;
}

bool BlockIndex::MatchNext(const RunCell& cell, uint32_t position, uint32_t common, BlockMatches* matches) {
  const uint32_t count = cell.holder_count.load(std::memory_order_acquire);
  bool somebody_goes_on = false;
  for (uint32_t i = 0; i < count; ++i) {
    const Holder holder = cell.holder(i);
    if (holder.empty()) continue;
    BlockMatch* const match = matches->Find(holder.owner());
    if (match == nullptr) continue;
    // An owner whose blocks reach here without a gap, on a tier, continues here.
    for (int tier = 0; tier < kTierCount; ++tier) {
      uint32_t& blocks = match->blocks[static_cast<size_t>(tier)];
      if (blocks == position) blocks = position + std::min(holder.cut(tier), common);
    }
    somebody_goes_on |= match->longest() == position + common;
  }
  return somebody_goes_on;
}

std::optional<BlockMatch> BlockIndex::FindBest(
    std::span<const BlockHash> chain, const WorkerSlotSet* eligible, BlockMatches* matches) const {
  Match(chain, matches);
  const BlockMatch* const best = matches->Best(eligible);
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::optional<BlockHash> BlockIndex::HashAt(BlockRef ref) const {
  const MutexLock lock(mutex_);
  const uint32_t id = RunOf(ref);
  if (id == 0) return std::nullopt;
  return run(id).cell->blocks[ref.offset()];
}

void BlockIndex::CopyRun(BlockRef ref, std::vector<BlockHash>* blocks) const {
  const MutexLock lock(mutex_);
  const uint32_t id = RunOf(ref);
  if (id == 0) return;
  const RunCell& cell = *run(id).cell;
  blocks->insert(blocks->end(), cell.blocks, cell.blocks + cell.length.load(std::memory_order_relaxed));
}

std::vector<WorkerSlot> BlockIndex::FreeOwners() const {
  const MutexLock lock(mutex_);
  std::vector<WorkerSlot> free;
  for (const FreedId& freed : freed_ids_) free.push_back(freed.owner);
  return free;
}

uint64_t BlockIndex::BlockCount(WorkerSlot owner) const {
  const MutexLock lock(mutex_);
  return IsActive(owner) ? owners_[Number(owner)].blocks : 0;
}

std::array<uint64_t, kTierCount> BlockIndex::TierCounts(WorkerSlot owner) const {
  const MutexLock lock(mutex_);
  std::array<uint64_t, kTierCount> counts{};
  if (IsActive(owner)) std::copy_n(owners_[Number(owner)].on, kTierCount, counts.begin());
  return counts;
}

BlockIndexStats BlockIndex::stats() const {
  const MutexLock lock(mutex_);
  BlockIndexStats stats = counts_;
  stats.directory_bytes = directory_.bytes();
  stats.run_bytes += pages_.size() * kRunsPerPage * sizeof(Run) + free_runs_.size() * sizeof(uint32_t);
  for (const auto& [id, all] : irregular_) {
    stats.irregular_bytes += sizeof(id) + sizeof(all) + all.capacity() * sizeof(Irregular);
    for (const Irregular& each : all) stats.irregular_bytes += each.coverage.bytes();
  }
  stats.backlog_bytes = reclaimer_.backlog_bytes();
  stats.bytes = stats.directory_bytes + stats.run_bytes + stats.block_bytes + stats.irregular_bytes +
                stats.backlog_bytes;
  return stats;
}

std::string BlockIndex::CheckInvariants() const {
  const MutexLock lock(mutex_);
  const ReadGuard guard;
  absl::flat_hash_map<BlockHash, uint32_t> place;
  std::vector<Owner> found(owners_.size());
  uint64_t runs = 0;
  uint64_t blocks = 0;
  uint64_t irregular_count = 0;
  for (uint32_t id = 1; id < run_count_; ++id) {
    const Run& each = run(id);
    if (each.cell == nullptr) continue;
    ++runs;
    const RunCell& cell = *each.cell;
    const uint32_t length = cell.length.load(std::memory_order_relaxed);
    blocks += length;
    if (length == 0 || length > each.high_water || each.high_water > kMaxRunBlocks)
      return Concat("run ", id, " has length ", length, " and high water ", each.high_water);
    if (cell.run != id || directory_.Find(cell.blocks[0]) != &cell)
      return Concat("run ", id, " is not where the directory says");
    for (uint32_t i = 0; i < length; ++i) {
      if (const auto [at, is_new] = place.emplace(cell.blocks[i], id); !is_new)
        return Concat("block ", i, " of run ", id, " is in run ", at->second, " too");
      if (i > 0 && directory_.Find(cell.blocks[i]) != nullptr)
        return Concat("block ", i, " of run ", id, " begins another run");
    }
    uint32_t furthest = 0;
    uint32_t holders = 0;
    WorkerSlotSet seen;
    for (uint32_t i = 0; i < cell.holder_count.load(std::memory_order_relaxed); ++i) {
      const Holder holder = cell.holder(i);
      if (holder.empty()) continue;
      ++holders;
      if (seen.test(Number(holder.owner()))) return Concat("an owner is twice in run ", id);
      seen.set(Number(holder.owner()));
      if (holder.cut(0) > holder.cut(1) || holder.cut(1) > holder.cut(2) || holder.longest() == 0)
        return Concat("run ", id, " has a holder whose cuts do not ascend");
      furthest = std::max(furthest, holder.longest());
      Owner& counts = found[Number(holder.owner())];
      if (const Coverage* const coverage = FindIrregular(id, holder.owner())) {
        if (Holder(holder.owner(), coverage->cuts()).word() != holder.word())
          return Concat("run ", id, " has a holder whose cuts are not those of its coverage");
      } else {
        if (holder.cut(0) != holder.longest()) return Concat("run ", id, " lacks a coverage");
        counts.blocks += holder.longest();
        counts.on[0] += holder.longest();
      }
    }
    if (each.irregular > 0) {
      const std::vector<Irregular>& all = irregular_.find(id)->second;
      if (all.size() != each.irregular) return Concat("run ", id, " miscounts its coverages");
      irregular_count += all.size();
      for (const Irregular& irregular : all) {
        if (irregular.coverage.IsLeading()) return Concat("run ", id, " has a coverage without need");
        furthest = std::max(furthest, irregular.coverage.end());
        Owner& counts = found[Number(irregular.owner)];
        counts.blocks += irregular.coverage.Count();
        for (int tier = 0; tier < kTierCount; ++tier)
          counts.on[tier] += irregular.coverage.Count(static_cast<Tier>(tier));
      }
    }
    if (holders != each.holders) return Concat("run ", id, " miscounts its holders");
    if (furthest != length) return Concat("run ", id, " is ", length, " long and held up to ", furthest);
  }
  if (runs != counts_.runs || runs != directory_.size() || blocks != counts_.blocks ||
      irregular_count != counts_.irregular) {
    return "the index miscounts runs, blocks or coverages";
  }
  uint64_t pairs = 0;
  for (size_t owner = 0; owner < owners_.size(); ++owner) {
    pairs += found[owner].blocks;
    for (int tier = 0; tier < kTierCount; ++tier) {
      if (found[owner].on[tier] != owners_[owner].on[tier])
        return Concat("owner ", owner, " miscounts its blocks on a tier");
    }
    if (found[owner].blocks != owners_[owner].blocks) return Concat("owner ", owner, " miscounts its blocks");
  }
  if (pairs != counts_.pairs) return "the index miscounts pairs";
  return {};
}

}  // namespace vllm_router
