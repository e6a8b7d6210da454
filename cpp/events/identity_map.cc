#include "events/identity_map.h"

#include <algorithm>

namespace vllm_router {

// Ascends with the mixed hash, so growing reads and writes in order.
size_t IdentityMap::HomeOf(EngineHash hash) const {
  uint64_t mixed = (hash ^ seed_) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 32)) * 0x94d049bb133111ebu;
  mixed ^= mixed >> 29;
  return static_cast<size_t>(static_cast<Wide>(mixed) * capacity_ >> 64);
}

IdentityMap::Entry* IdentityMap::Find(EngineHash hash) {
  if (size_ == 0) return nullptr;
  for (size_t place = HomeOf(hash); entries_[place].bits_ != 0; place = After(place)) {
    if (entries_[place].hash_ == hash) return &entries_[place];
  }
  return nullptr;
}

void IdentityMap::Prefetch(EngineHash hash) const {
  if (size_ != 0) __builtin_prefetch(&entries_[HomeOf(hash)]);
}

IdentityMap::Entry* IdentityMap::Add(EngineHash hash, std::span<const BlockRef> refs) {
  if (full()) return nullptr;
  if ((size_ + 1) * 5 > capacity_ * 4) Grow();
  size_t place = HomeOf(hash);
  while (entries_[place].bits_ != 0) place = After(place);
  Entry& entry = entries_[place];
  entry.hash_ = hash;
  SetRefs(&entry, refs);
  ++size_;
  return &entry;
}

void IdentityMap::Grow() {
  const std::unique_ptr<Entry[]> before = std::move(entries_);
  const size_t places = capacity_;
  capacity_ = std::max(kLeastCapacity, places + places / 2);
  entries_ = std::make_unique<Entry[]>(capacity_);
  for (size_t i = 0; i < places; ++i) {
    if (before[i].bits_ == 0) continue;
    size_t place = HomeOf(before[i].hash_);
    while (entries_[place].bits_ != 0) place = After(place);
    entries_[place] = before[i];
  }
}

void IdentityMap::Erase(Entry* entry) {
  if (IsScattered(*entry)) scattered_.erase(entry->hash_);
  if (entry->IsOn(Tier::kGpu)) --on_gpu_;
  if (Copies(*entry) >= Entry::kCopiesMask) many_copies_.erase(entry->hash_);
  // An entry behind moves into the hole unless its home lies between the two.
  size_t hole = static_cast<size_t>(entry - entries_.get());
  for (size_t place = After(hole); entries_[place].bits_ != 0; place = After(place)) {
    const size_t home = HomeOf(entries_[place].hash_);
    const size_t from_home = place >= home ? place - home : place + capacity_ - home;
    const size_t from_hole = place >= hole ? place - hole : place + capacity_ - hole;
    if (from_home < from_hole) continue;
    entries_[hole] = entries_[place];
    hole = place;
  }
  entries_[hole] = {};
  --size_;
}

void IdentityMap::Clear() {
  size_ = 0;
  on_gpu_ = 0;
  capacity_ = 0;
  entries_.reset();
  many_copies_ = {};
  scattered_ = {};
}

void IdentityMap::SetRefs(Entry* entry, std::span<const BlockRef> refs) {
  bool follow = true;
  for (uint32_t i = 1; i < refs.size(); ++i) follow = follow && refs[i] == refs[0] + i;
  if (follow) {
    if (entry->bits_ != 0 && IsScattered(*entry)) scattered_.erase(entry->hash_);
  } else {
    scattered_[entry->hash_].assign(refs.begin(), refs.end());
  }
  const uint64_t place = follow ? refs[0].bits() : kScattered;
  entry->bits_ = place << Entry::kTierBits | (entry->bits_ & Entry::kTierMask);
}

bool IdentityMap::HasRefs(const Entry& entry, std::span<const BlockRef> refs) const {
  if (IsScattered(entry)) return std::ranges::equal(scattered_.find(entry.hash_)->second, refs);
  for (uint32_t i = 0; i < refs.size(); ++i) {
    if (refs[i] != FirstRef(entry) + i) return false;
  }
  return true;
}

void IdentityMap::AppendRefs(const Entry& entry, uint32_t count, std::vector<BlockRef>* refs) const {
  if (IsScattered(entry)) {
    const std::vector<BlockRef>& all = scattered_.find(entry.hash_)->second;
    refs->insert(refs->end(), all.begin(), all.end());
    return;
  }
  for (uint32_t i = 0; i < count; ++i) refs->push_back(FirstRef(entry) + i);
}

BlockRef IdentityMap::LastRef(const Entry& entry, uint32_t count) const {
  if (IsScattered(entry)) return scattered_.find(entry.hash_)->second.back();
  return FirstRef(entry) + (count - 1);
}

uint32_t IdentityMap::Copies(const Entry& entry) const {
  const auto copies = static_cast<uint32_t>(entry.bits_ & Entry::kCopiesMask);
  return copies < Entry::kCopiesMask ? copies : many_copies_.find(entry.hash_)->second;
}

void IdentityMap::AddCopy(Entry* entry) {
  if (!entry->IsOn(Tier::kGpu)) ++on_gpu_;
  if ((entry->bits_ & Entry::kCopiesMask) == Entry::kCopiesMask) {
    uint32_t& copies = many_copies_.find(entry->hash_)->second;
    if (copies != UINT32_MAX) ++copies;
  } else if ((++entry->bits_ & Entry::kCopiesMask) == Entry::kCopiesMask) {
    many_copies_[entry->hash_] = Entry::kCopiesMask;
  }
}

void IdentityMap::Put(Entry* entry, Tier tier) {
  if (tier != Tier::kGpu) {
    entry->bits_ |= Entry::MaskOf(tier);
  } else if (!entry->IsOn(tier)) {
    ++entry->bits_;
    ++on_gpu_;
  }
}

void IdentityMap::Take(Entry* entry, Tier tier) {
  if (tier != Tier::kGpu) {
    entry->bits_ &= ~Entry::MaskOf(tier);
  } else if ((entry->bits_ & Entry::kCopiesMask) != Entry::kCopiesMask) {
    --entry->bits_;
    if (!entry->IsOn(tier)) --on_gpu_;
  } else if (const auto many = many_copies_.find(entry->hash_); --many->second < Entry::kCopiesMask) {
    many_copies_.erase(many);
    --entry->bits_;
  }
}

void IdentityMap::TakeAll(Entry* entry) {
  if (entry->IsOn(Tier::kGpu)) --on_gpu_;
  if (Copies(*entry) >= Entry::kCopiesMask) many_copies_.erase(entry->hash_);
  entry->bits_ &= ~Entry::kTierMask;
}

size_t IdentityMap::bytes() const {
  size_t bytes = capacity_ * sizeof(Entry) + many_copies_.capacity() * 17;
  bytes += scattered_.capacity() * (sizeof(EngineHash) + sizeof(std::vector<BlockRef>) + 1);
  for (const auto& [hash, refs] : scattered_) bytes += refs.capacity() * sizeof(BlockRef);
  return bytes;
}

}  // namespace vllm_router
