#include "events/event_applier.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace vllm_router {
namespace {

constexpr uint32_t kContradictionsOfAnotherEngine = 3;
constexpr size_t kMaxOrphanBytes = size_t{64} << 20;
constexpr size_t kRunsSweptAtOnce = 65'536;

std::optional<Tier> TierOf(KvMedium medium) {
  switch (medium) {
    case KvMedium::kGpu:
      return Tier::kGpu;
    case KvMedium::kHost:
      return Tier::kHost;
    case KvMedium::kExternal:
      return Tier::kExternal;
    case KvMedium::kPool:
    case KvMedium::kUnknown:
      break;
  }
  return std::nullopt;
}

void AppendNumber(std::string* bytes, uint64_t number, int size) {
  for (int i = 0; i < size; ++i) bytes->push_back(static_cast<char>(number >> (8 * i)));
}

// A letter, the length, the bytes; of media the offset too.
void AppendExtra(const KvExtraKey& key, std::string* bytes) {
  constexpr char kLetters[] = {'N', 'M', 'B'};
  bytes->push_back(kLetters[static_cast<size_t>(key.kind)]);
  AppendNumber(bytes, key.name.size(), 4);
  bytes->append(key.name);
  if (key.kind == KvExtraKey::Kind::kMedia) AppendNumber(bytes, static_cast<uint64_t>(key.offset), 8);
}

}  // namespace

std::string_view KvEventDropName(KvEventDrop drop) {
  constexpr std::array<std::string_view, kKvEventDropCount> kNames = {
      "remote",     "unknown_medium", "pool_medium", "other_group",  "unknown_placeholder",
      "block_size", "shape",          "namespace",   "orphan_limit", "orphan_expired",
      "full",       "unknown_worker"};
  return kNames[static_cast<size_t>(drop)];
}

EventApplier::EventApplier(ReportedBlocks* blocks, WorkerId worker, EventApplierOptions options)
    : blocks_(*blocks),
      worker_(worker),
      options_(std::move(options)),
      map_(options_.max_blocks, Random::EntropySeed()),
      removed_(options_.max_removed_blocks) {}

EventApplier::~EventApplier() { ReleaseCache(); }

// ---- The cache ---------------------------------------------------------------------------------------

bool EventApplier::EnsureCache() {
  if (cache_) {
    if (blocks_.HasCache(worker_, *cache_)) return true;
    cache_.reset();
    Forget();
  }
  StatusOr<WorkerSlot> cache = blocks_.AddCache(worker_);
  if (cache.status().code() == absl::StatusCode::kResourceExhausted) {
    while (blocks_.index().Sweep(kRunsSweptAtOnce)) {
    }
    cache = blocks_.AddCache(worker_);
  }
  if (cache.ok()) cache_ = *cache;
  return cache_.has_value();
}

void EventApplier::ReleaseCache() {
  if (cache_ && blocks_.HasCache(worker_, *cache_)) blocks_.RemoveCache(*cache_);
  cache_.reset();
}

void EventApplier::Forget() {
  late_.clear();
  parents_ = {};
  removed_.Clear();
  map_.Clear();
  orphans_.clear();
  by_parent_ = {};
  waiting_ = {};
  orphan_blocks_ = 0;
  orphan_bytes_ = 0;
}

void EventApplier::NewIncarnation() {
  Forget();
  ReleaseCache();
  EnsureCache();
  engine_block_size_ = 0;
  main_group_.reset();
  main_group_is_full_ = false;
}

void EventApplier::ApplyCleared() {
  const bool is_empty = map_.size() == 0;
  Forget();
  if (is_empty) return;
  ReleaseCache();
  EnsureCache();
}

std::array<uint64_t, kTierCount> EventApplier::TierCounts() const {
  if (!cache_ || !blocks_.HasCache(worker_, *cache_)) return {};
  return blocks_.index().TierCounts(*cache_);
}

size_t EventApplier::bytes() const {
  return map_.bytes() + parents_.capacity() * 25 + removed_.bytes() + orphan_bytes_ +
         waiting_.capacity() * 33 + by_parent_.capacity() * 33;
}

// ---- Batches -----------------------------------------------------------------------------------------

void EventApplier::DropExpired(int64_t now_ns) {
  while (!orphans_.empty() && now_ns - orphans_.front().since_ns > options_.orphan_ns) {
    Drop(KvEventDrop::kOrphanExpired);
    DropOrphan(orphans_.begin());
  }
}

EventApplier::Result EventApplier::Apply(const KvBatch& batch, int64_t now_ns) {
  Result result;
  DropExpired(now_ns);
  if (!EnsureCache()) {
    Drop(KvEventDrop::kUnknownWorker, batch.events.size());
    return result;
  }
  contradictions_ = 0;
  for (const KvEvent& event : batch.events) {
    Tier tier{};
    if (const std::optional<KvEventDrop> why = Check(event, &tier)) {
      Drop(*why);
      continue;
    }
    if (tier != Tier::kGpu) has_tiers_ = true;
    if (event.kind == KvEventKind::kCleared) {
      ApplyCleared();
      result.cleared = true;
    } else if (event.kind == KvEventKind::kRemoved) {
      for (const EngineHash hash : batch.HashesOf(event)) ApplyRemoved(hash, tier);
    } else {
      ApplyStored(batch, event, tier, now_ns);
    }
  }
  ApplyLate();
  figures_.contradictions += contradictions_;
  result.contradiction = contradictions_ >= kContradictionsOfAnotherEngine;
  return result;
}

std::optional<KvEventDrop> EventApplier::Check(const KvEvent& event, Tier* tier) {
  if (event.is_remote) return KvEventDrop::kRemote;
  const std::optional<Tier> known = TierOf(event.medium);
  if (!known) return event.medium == KvMedium::kPool ? KvEventDrop::kPoolMedium : KvEventDrop::kUnknownMedium;
  *tier = *known;
  if (event.kind != KvEventKind::kCleared && !IsMainGroup(event)) return KvEventDrop::kOtherGroup;
  return std::nullopt;
}

// The lowest group that is named as full attention, or the lowest at all while none is named.
bool EventApplier::IsMainGroup(const KvEvent& event) {
  const bool is_named = event.spec_kind == KvSpecKind::kFull;
  if (event.kind == KvEventKind::kStored) {
    if (event.spec_kind == KvSpecKind::kOther || (main_group_is_full_ && !is_named)) {
      return main_group_is_full_ && event.spec_kind != KvSpecKind::kOther && event.group == *main_group_;
    }
    const bool is_first = !main_group_ || (is_named && !main_group_is_full_);
    if (is_first || event.group < *main_group_) {
      // What is known belongs to another group.
      if (main_group_ && event.group != *main_group_) ApplyCleared();
      main_group_ = event.group;
      main_group_is_full_ = is_named;
    }
  }
  return !main_group_ || event.group == *main_group_;
}

void EventApplier::ApplyStored(const KvBatch& batch, const KvEvent& event, Tier tier, int64_t now_ns) {
  const std::span<const EngineHash> hashes = batch.HashesOf(event);
  if (event.token_count == 0 || event.block_size == 0) return ApplyPlaceholder(hashes, tier);
  const bool fits = event.block_size % blocks_.hasher().block_size() == 0;
  if (engine_block_size_ != 0 ? event.block_size != engine_block_size_ : !fits)
    return Drop(KvEventDrop::kBlockSize);
  if (event.token_count != uint64_t{event.hash_count} * event.block_size) return Drop(KvEventDrop::kShape);
  std::string_view adapter;
  std::string_view salt;
  if (!ReadNames(batch, event, &adapter, &salt)) return Drop(KvEventDrop::kNamespace);
  engine_block_size_ = event.block_size;

  Stored stored{
      .parent = event.parent,
      .tier = tier,
      .hashes = hashes,
      .tokens = batch.TokensOf(event),
      .extras = extras_};
  if (!event.parent) {
    const std::string_view name = adapter.empty() ? std::string_view(options_.model) : adapter;
    stored.root = blocks_.hasher().Root({.lora_name = name, .cache_salt = salt});
  }
  attach_from_.clear();
  if (!Store(stored)) return AddOrphan(stored, now_ns);
  Attach();
}

bool EventApplier::ReadNames(
    const KvBatch& batch, const KvEvent& event, std::string_view* adapter, std::string_view* salt) {
  using Kind = KvExtraKey::Kind;
  const std::span<const KvExtraKey> extras = batch.ExtrasOf(event);
  *adapter = event.lora_name;
  *salt = event.cache_salt;
  if (adapter->empty() && event.lora_id && !extras.empty() && extras[0].block == 0 &&
      extras[0].kind == Kind::kName)
    *adapter = extras[0].name;
  if (adapter->empty() && event.lora_id && !event.parent) return false;

  // The adapter's name is the first of a block; the salt is the last of a prompt's first block.
  extras_.clear();
  size_t named = SIZE_MAX;  // the block whose first name was seen
  size_t salt_at = SIZE_MAX;
  const auto is_adapter = [&](const KvExtraKey& key) {
    if (key.kind != Kind::kName || named == key.block) return false;
    named = key.block;
    return !adapter->empty() && key.name == *adapter;
  };
  if (!event.parent && salt->empty()) {
    for (size_t i = 0; i < extras.size() && extras[i].block == 0; ++i) {
      if (is_adapter(extras[i])) continue;
      if (extras[i].kind == Kind::kName) salt_at = i;
    }
    if (salt_at != SIZE_MAX) *salt = extras[salt_at].name;
    named = SIZE_MAX;
  }
  for (size_t i = 0; i < extras.size() && extras[i].block < event.hash_count; ++i) {
    const KvExtraKey& key = extras[i];
    if (is_adapter(key) || i == salt_at) continue;
    if (key.kind == Kind::kName && key.block == 0 && !event.parent && key.name == *salt) continue;
    if (extras_.empty() || extras_.back().first != key.block) extras_.emplace_back(key.block, std::string());
    AppendExtra(key, &extras_.back().second);
  }
  return true;
}

bool EventApplier::Store(const Stored& stored) {
  if (!cache_) {
    Drop(KvEventDrop::kUnknownWorker);
    return true;
  }
  BlockIndex& index = blocks_.index();
  const BlockHasher& hasher = blocks_.hasher();
  const uint32_t parts = engine_block_size_ / hasher.block_size();
  BlockRef parent;
  BlockHash before = stored.root;
  if (stored.parent) {
    const IdentityMap::Entry* const entry = map_.Find(*stored.parent);
    if (entry == nullptr) return false;
    parent = map_.LastRef(*entry, parts);
    const std::optional<BlockHash> hash = index.HashAt(parent);
    if (!hash) {
      ++figures_.stale_refs;
      return false;
    }
    before = *hash;
  }

  for (const EngineHash hash : stored.hashes) map_.Prefetch(hash);
  chain_.resize(stored.hashes.size() * parts);
  if (stored.extras.empty()) {
    hasher.Hash(before, stored.tokens, chain_);
  } else {
    block_extras_.clear();
    for (const auto& [block, bytes] : stored.extras) block_extras_.push_back({size_t{block} * parts, bytes});
    hasher.Hash(before, stored.tokens, block_extras_, chain_);
  }

  // Leading blocks that are taken; and a prompt whose every block is on the GPU already: the engine announces
  // it again, as a client asked for, without a copy.
  size_t taken = 0;
  size_t fresh = 0;
  bool is_announced_again = !stored.parent && stored.tier == Tier::kGpu;
  for (; taken < stored.hashes.size(); ++taken) {
    const IdentityMap::Entry* const entry = map_.Find(stored.hashes[taken]);
    if (entry == nullptr) {
      if (map_.size() + ++fresh > options_.max_blocks) {
        Drop(KvEventDrop::kFull);
        break;
      }
    } else if (!options_.counts_copies) {
      // Two prompts have one hash in engines whose hashes leave the adapter out.
      const std::optional<BlockHash> known = index.HashAt(map_.LastRef(*entry, parts));
      if (known && *known != chain_[(taken + 1) * parts - 1]) {
        Drop(KvEventDrop::kNamespace);
        break;
      }
    }
    is_announced_again = is_announced_again && entry != nullptr && entry->IsOn(Tier::kGpu);
  }

  refs_.resize(taken * parts);
  const InsertResult inserted =
      index.Insert(*cache_, stored.tier, parent, std::span(chain_).first(taken * parts), refs_.data());
  if (inserted.status == InsertStatus::kUnknownParent) return false;
  if (inserted.status == InsertStatus::kUnknownOwner) {
    Drop(KvEventDrop::kUnknownWorker);
    return true;
  }
  if (inserted.status == InsertStatus::kFull) {
    Drop(KvEventDrop::kFull);
    taken = inserted.inserted / parts;
    const size_t kept = taken * parts;
    index.Remove(*cache_, stored.tier, std::span(refs_).subspan(kept, inserted.inserted - kept));
  }
  for (size_t i = 0; i < taken; ++i) {
    const EngineHash hash = stored.hashes[i];
    const std::span<const BlockRef> refs = std::span(refs_).subspan(i * parts, parts);
    if (!StoreEntry(hash, stored.tier, refs, is_announced_again)) continue;
    if (!by_parent_.empty()) attach_from_.push_back(hash);
    if (!has_tiers_) continue;
    if (i > 0) {
      parents_[hash] = {stored.hashes[i - 1], chain_[i * parts - 1]};
    } else {
      parents_[hash] = stored.parent ? ParentBlock{*stored.parent, before} : ParentBlock{};
    }
  }
  return true;
}

bool EventApplier::StoreEntry(
    EngineHash hash, Tier tier, std::span<const BlockRef> refs, bool is_announced_again) {
  BlockIndex& index = blocks_.index();
  IdentityMap::Entry* entry = map_.Find(hash);
  if (entry == nullptr) {
    entry = map_.Add(hash, refs);
    if (entry == nullptr) {
      index.Remove(*cache_, tier, refs);
      Drop(KvEventDrop::kFull);
      return false;
    }
  } else if (!map_.HasRefs(*entry, refs)) {
    // Now it names other tokens. Both may begin with the same blocks.
    if (entry->IsOnAny()) ++contradictions_;
    removed_refs_.clear();
    map_.AppendRefs(*entry, static_cast<uint32_t>(refs.size()), &removed_refs_);
    const std::span<const BlockRef> old = removed_refs_;
    const auto differ = std::ranges::mismatch(old, refs).in1 - old.begin();
    for (const Tier each : {Tier::kGpu, Tier::kHost, Tier::kExternal})
      index.Remove(*cache_, each, each == tier ? old.subspan(static_cast<size_t>(differ)) : old);
    map_.TakeAll(entry);
    map_.SetRefs(entry, refs);
  }
  if (tier == Tier::kGpu && options_.counts_copies && !is_announced_again) {
    map_.AddCopy(entry);
  } else {
    map_.Put(entry, tier);
  }
  ++figures_.stored_blocks;
  return true;
}

void EventApplier::ApplyPlaceholder(std::span<const EngineHash> hashes, Tier tier) {
  attach_from_.clear();
  missing_.clear();
  for (const EngineHash hash : hashes) {
    if (!Place(hash, tier)) missing_.push_back(hash);
  }
  // Again in reverse, since a child may have come before its parent.
  size_t placed = 0;
  for (size_t i = missing_.size(); i-- > 0;) placed += Place(missing_[i], tier) ? 1 : 0;
  if (placed < missing_.size()) Drop(KvEventDrop::kUnknownPlaceholder);
  Attach();
}

bool EventApplier::Place(EngineHash hash, Tier tier) {
  if (!cache_) return false;
  IdentityMap::Entry* const entry = map_.Find(hash);
  if (entry == nullptr) return Restore(hash, tier);
  BlockIndex& index = blocks_.index();
  refs_.clear();
  map_.AppendRefs(*entry, engine_block_size_ / blocks_.hasher().block_size(), &refs_);
  for (const BlockRef ref : refs_) {
    // Behind its neighbour in the run, or found as the first of a run.
    const BlockRef parent = ref.offset() == 0 ? BlockRef() : BlockRef(ref.bits() - 1);
    const std::optional<BlockHash> block = index.HashAt(ref);
    BlockRef placed;
    if (block) {
      index.Insert(*cache_, tier, parent, std::span(&*block, 1), &placed);
    } else {
      ++figures_.stale_refs;
    }
  }
  map_.Put(entry, tier);
  ++figures_.stored_blocks;
  return true;
}

bool EventApplier::Restore(EngineHash hash, Tier tier) {
  const std::optional<RemovedBlocks::Block> block = removed_.Find(hash);
  if (!block) return false;
  BlockIndex& index = blocks_.index();
  BlockRef parent;
  if (block->parent.hash != kNoBlock) {
    const IdentityMap::Entry* const before = map_.Find(block->parent.name);
    if (before == nullptr) return false;
    parent = map_.LastRef(*before, static_cast<uint32_t>(block->hashes.size()));
    if (index.HashAt(parent) != block->parent.hash) return false;
  }
  refs_.resize(block->hashes.size());
  const InsertResult inserted = index.Insert(*cache_, tier, parent, block->hashes, refs_.data());
  IdentityMap::Entry* const entry = inserted.inserted == refs_.size() ? map_.Add(hash, refs_) : nullptr;
  if (entry == nullptr) {
    index.Remove(*cache_, tier, std::span(refs_).first(inserted.inserted));
    Drop(KvEventDrop::kFull);
    return true;
  }
  map_.Put(entry, tier);
  parents_[hash] = block->parent;
  ++figures_.stored_blocks;
  if (!by_parent_.empty()) attach_from_.push_back(hash);
  return true;
}

void EventApplier::KeepRemoved(EngineHash hash, const IdentityMap::Entry& entry) {
  const auto parent = parents_.find(hash);
  if (parent == parents_.end()) return;
  refs_.clear();
  map_.AppendRefs(entry, engine_block_size_ / blocks_.hasher().block_size(), &refs_);
  chain_.clear();
  for (const BlockRef ref : refs_) {
    if (const std::optional<BlockHash> block = blocks_.index().HashAt(ref)) chain_.push_back(*block);
  }
  if (chain_.size() == refs_.size()) removed_.Add(hash, parent->second, chain_);
  parents_.erase(parent);
}

void EventApplier::ApplyRemoved(EngineHash hash, Tier tier) {
  IdentityMap::Entry* const entry = map_.Find(hash);
  if (entry != nullptr && entry->IsOn(tier)) {
    map_.Take(entry, tier);
    if (!entry->IsOn(tier)) late_.push_back({tier, hash});
  } else if (!RemoveFromOrphan(hash, tier)) {
    ++figures_.unknown_removed;
    return;
  }
  ++figures_.removed_blocks;
}

void EventApplier::ApplyLate() {
  if (late_.empty()) return;
  const uint32_t parts = engine_block_size_ / blocks_.hasher().block_size();
  if (has_tiers_) {
    for (const Late& late : late_) {
      const IdentityMap::Entry* const entry = map_.Find(late.hash);
      if (entry != nullptr && !entry->IsOnAny()) KeepRemoved(late.hash, *entry);
    }
  }
  for (const Tier tier : {Tier::kGpu, Tier::kHost, Tier::kExternal}) {
    removed_refs_.clear();
    for (const Late& late : late_) {
      if (late.tier != tier) continue;
      const IdentityMap::Entry* const entry = map_.Find(late.hash);
      if (entry != nullptr && !entry->IsOn(tier)) map_.AppendRefs(*entry, parts, &removed_refs_);
    }
    if (!removed_refs_.empty() && cache_) blocks_.index().Remove(*cache_, tier, removed_refs_);
  }
  for (const Late& late : late_) {
    IdentityMap::Entry* const entry = map_.Find(late.hash);
    if (entry != nullptr && !entry->IsOnAny()) map_.Erase(entry);
  }
  late_.clear();
}

// ---- Events that wait for a parent -------------------------------------------------------------------

size_t EventApplier::Orphan::bytes() const {
  size_t bytes = sizeof(Orphan) + hashes.size() * sizeof(EngineHash) + tokens.size() * sizeof(uint32_t);
  for (const auto& [block, extra] : extras) bytes += sizeof(extras[0]) + extra.size();
  return bytes;
}

void EventApplier::AddOrphan(const Stored& stored, int64_t now_ns) {
  Orphan orphan;
  orphan.since_ns = now_ns;
  orphan.parent = *stored.parent;
  orphan.tier = stored.tier;
  orphan.hashes.assign(stored.hashes.begin(), stored.hashes.end());
  orphan.tokens.assign(stored.tokens.begin(), stored.tokens.end());
  orphan.extras.assign(stored.extras.begin(), stored.extras.end());
  const size_t blocks = orphan.hashes.size();
  const size_t bytes = orphan.bytes();
  if (blocks > options_.max_orphan_blocks || bytes > kMaxOrphanBytes) return Drop(KvEventDrop::kOrphanLimit);
  while (orphan_blocks_ + blocks > options_.max_orphan_blocks || orphan_bytes_ + bytes > kMaxOrphanBytes) {
    Drop(KvEventDrop::kOrphanLimit);
    DropOrphan(orphans_.begin());
  }
  orphan_blocks_ += blocks;
  orphan_bytes_ += bytes;
  orphans_.push_back(std::move(orphan));
  const Orphans::iterator added = std::prev(orphans_.end());
  for (const EngineHash hash : added->hashes) waiting_[hash].push_back(added);
  by_parent_[*stored.parent].push_back(added);
}

void EventApplier::Attach() {
  // A list and no recursion: chains of orphans may be long.
  for (size_t next = 0; next < attach_from_.size(); ++next) {
    const auto found = by_parent_.find(attach_from_[next]);
    if (found == by_parent_.end()) continue;
    const std::vector<Orphans::iterator> children = std::move(found->second);
    by_parent_.erase(found);
    for (const Orphans::iterator child : children) {
      const Orphan orphan = TakeOrphan(child);
      const Stored stored{
          .parent = orphan.parent,
          .tier = orphan.tier,
          .hashes = orphan.hashes,
          .tokens = orphan.tokens,
          .extras = orphan.extras};
      if (!Store(stored)) {
        Drop(KvEventDrop::kOrphanLimit);
        continue;
      }
      for (const EngineHash hash : orphan.removed) {
        --figures_.removed_blocks;  // counted when it came
        ApplyRemoved(hash, orphan.tier);
      }
    }
  }
}

bool EventApplier::RemoveFromOrphan(EngineHash hash, Tier tier) {
  const auto waiting = waiting_.find(hash);
  if (waiting == waiting_.end()) return false;
  const auto found =
      std::ranges::find(waiting->second, tier, [](Orphans::iterator orphan) { return orphan->tier; });
  if (found == waiting->second.end()) return false;
  (*found)->removed.push_back(hash);
  waiting->second.erase(found);
  if (waiting->second.empty()) waiting_.erase(waiting);
  return true;
}

void EventApplier::DropOrphan(Orphans::iterator orphan) {
  const auto siblings = by_parent_.find(orphan->parent);
  std::erase(siblings->second, orphan);
  if (siblings->second.empty()) by_parent_.erase(siblings);
  TakeOrphan(orphan);
}

EventApplier::Orphan EventApplier::TakeOrphan(Orphans::iterator orphan) {
  for (const EngineHash hash : orphan->hashes) {
    const auto waiting = waiting_.find(hash);
    if (waiting == waiting_.end()) continue;  // removed meanwhile
    const auto found = std::ranges::find(waiting->second, orphan);
    if (found != waiting->second.end()) waiting->second.erase(found);
    if (waiting->second.empty()) waiting_.erase(waiting);
  }
  Orphan taken = std::move(*orphan);
  orphans_.erase(orphan);
  orphan_blocks_ -= taken.hashes.size();
  orphan_bytes_ -= taken.bytes();
  return taken;
}

}  // namespace vllm_router
