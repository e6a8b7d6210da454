#include "admission/tenant_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "hashing/hash.h"

namespace vllm_router {
namespace {

constexpr int kGenerationShift = 32;

uint32_t GenerationOf(uint64_t word) { return static_cast<uint32_t>(word >> kGenerationShift); }
uint32_t HoldsOf(uint64_t word) { return static_cast<uint32_t>(word); }

absl::string_view KeyOf(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// ---- entries

// The caller knows that it is not retired meanwhile. Returns the generation.
uint32_t TenantTable::Entry::Take() { return GenerationOf(word.fetch_add(1, std::memory_order_acquire)); }

bool TenantTable::Entry::TryTake(uint32_t generation) {
  uint64_t now = word.load(std::memory_order_relaxed);
  do {
    if (GenerationOf(now) != generation) return false;
  } while (!word.compare_exchange_weak(now, now + 1, std::memory_order_acquire, std::memory_order_relaxed));
  return true;
}

// Begins another generation, if nothing holds it and its meter is like a new one. REQUIRES: its shard is locked.
bool TenantTable::Entry::Retire(int64_t now_ns) {
  uint64_t now = word.load(std::memory_order_relaxed);
  if (HoldsOf(now) != 0 || !meter.IsUnused(now_ns)) return false;
  const uint64_t next = uint64_t{GenerationOf(now) + 1u} << kGenerationShift;
  if (!word.compare_exchange_strong(now, next, std::memory_order_acquire, std::memory_order_relaxed))
    return false;
  // Between the look and the exchange a thread may have held it and gone; from here on none can. Then it stays its tenant's.
  return meter.IsUnused(now_ns);
}

TenantTable::Hold::~Hold() {
  if (entry_ != nullptr) entry_->Release();
}

TenantMeter& TenantTable::Hold::operator*() const { return entry_->meter; }

// ---- the table

TenantTable::TenantTable(size_t max_tenants)
    : shards_(max_tenants >= kManyTenants ? kShards : 1), most_of_each_(max_tenants / shards_) {}

TenantTable::Hold TenantTable::Find(std::string_view tenant, int64_t now_ns, Cache* cache, bool named) {
  const uint64_t hash = Xxh3(tenant);
  Cache::Slot& slot = cache->slots_[hash / kShards % Cache::kSlots];
  if (slot.entry != nullptr && slot.hash == hash && slot.entry->TryTake(slot.generation)) {
    Hold found(slot.entry, /*shared=*/false);
    if (slot.entry->name == tenant) return found;  // two names may have one hash
  }
  Shard& shard = shard_[hash % shards_];
  {
    const MutexLock lock(shard.mutex);
    if (Entry* const entry = shard.FindOrAdd(tenant, most_of_each_, named, now_ns); entry != nullptr) {
      slot = {.hash = hash, .entry = entry, .generation = entry->Take()};
      return {entry, /*shared=*/false};
    }
  }
  shared_finds_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = shared_[hash / kShards % kShared];
  entry.Take();
  return {&entry, /*shared=*/true};
}

// Null: the shard is full.
TenantTable::Entry* TenantTable::Shard::FindOrAdd(
    std::string_view tenant, size_t most, bool named, int64_t now_ns) {
  if (const auto found = places.find(KeyOf(tenant)); found != places.end()) {
    Entry* const known = found->second;
    known->is_named |= named;
    if (std::exchange(known->is_told, false)) --told;
    return known;
  }
  Entry* entry = entries.size() < most ? &entries.emplace_back() : Reuse(/*only_told=*/false, now_ns);
  if (entry == nullptr && named) entry = &entries.emplace_back();
  if (entry != nullptr) Give(entry, tenant, named, /*is_told=*/false);
  return entry;
}

// Null: told tenants have their half, or the shard is full.
TenantTable::Entry* TenantTable::Shard::FindOrAddTold(
    std::string_view tenant, size_t most, bool named, int64_t now_ns) {
  if (named) return FindOrAdd(tenant, most, named, now_ns);
  if (const auto found = places.find(KeyOf(tenant)); found != places.end()) return found->second;
  const bool has_half = told >= most / 2;
  Entry* const entry = !has_half && entries.size() < most ? &entries.emplace_back() : Reuse(has_half, now_ns);
  if (entry != nullptr) Give(entry, tenant, /*named=*/false, /*is_told=*/true);
  return entry;
}

void TenantTable::Shard::Give(Entry* entry, std::string_view tenant, bool named, bool is_told) {
  entry->is_named = named;
  entry->is_told = is_told;
  if (is_told) ++told;
  entry->told_open.store(0, std::memory_order_relaxed);
  entry->meter.DropUntold();
  entry->name = tenant;
  places.emplace(KeyOf(entry->name), entry);
}

TenantTable::Entry* TenantTable::Shard::Reuse(bool only_told, int64_t now_ns) {
  for (size_t looks = std::min(kLooks, entries.size()); looks > 0; --looks) {
    Entry& entry = entries[hand];
    hand = (hand + 1) % entries.size();
    if (entry.is_named || (only_told && !entry.is_told) || !entry.Retire(now_ns)) continue;
    places.erase(KeyOf(entry.name));
    if (entry.is_told) --told;
    return &entry;
  }
  return nullptr;
}

// ---- several routers

std::optional<TenantTable::Hold> TenantTable::FindTold(std::string_view tenant, int64_t now_ns, bool named) {
  Shard& shard = shard_[Xxh3(tenant) % shards_];
  const MutexLock lock(shard.mutex);
  Entry* const entry = shard.FindOrAddTold(tenant, most_of_each_, named, now_ns);
  if (entry == nullptr) return std::nullopt;
  entry->Take();
  return Hold(entry, /*shared=*/false);
}

std::vector<TenantTable::Told> TenantTable::TakeUntold(
    size_t most, bool full, int64_t now_ns, size_t* untold) {
  struct Candidate {
    bool is_named;
    uint64_t amount;
    Hold hold;
  };
  constexpr uint64_t kTokensOfRequest = 1'000;  // as much to tell as so many tokens
  std::vector<Candidate> found;
  for (Shard& shard : shard_) {
    for (size_t next = 0, end = 1; next < end;) {
      const MutexLock lock(shard.mutex);
      end = shard.entries.size();
      const size_t until = std::min(end, next + kReadAtOnce);
      for (; next < until; ++next) {
        Entry& entry = shard.entries[next];
        const TenantMeter::Untold used = entry.meter.FindUntold(now_ns);
        const uint64_t open = entry.meter.open();
        const uint64_t told_open = entry.told_open.load(std::memory_order_relaxed);
        const uint64_t moved = open > told_open ? open - told_open : told_open - open;
        const uint64_t requests = used.requests + (full ? std::max(open, moved) : moved);
        const uint64_t amount = used.tokens + requests * kTokensOfRequest;
        if (amount == 0) continue;
        entry.Take();
        found.push_back({entry.is_named, amount, Hold(&entry, /*shared=*/false)});
      }
    }
  }
  const size_t count = std::min(most, found.size());
  *untold = found.size() - count;
  std::vector<const Candidate*> order;
  order.reserve(found.size());
  for (const Candidate& one : found) order.push_back(&one);
  std::ranges::nth_element(
      order, order.begin() + static_cast<std::ptrdiff_t>(count), [](const Candidate* a, const Candidate* b) {
        return a->is_named != b->is_named ? a->is_named : a->amount > b->amount;
      });
  std::vector<Told> told;
  told.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Entry& entry = *order[i]->hold.entry_;
    const uint64_t open = entry.meter.open();
    entry.told_open.store(open, std::memory_order_relaxed);
    told.push_back({.tenant = entry.name, .used = entry.meter.TakeUntold(), .open = open});
  }
  return told;
}

void TenantTable::DropUntold() {
  for (Shard& shard : shard_) {
    const MutexLock lock(shard.mutex);
    for (Entry& entry : shard.entries) {
      entry.meter.DropUntold();
      entry.told_open.store(0, std::memory_order_relaxed);
    }
  }
}

// ---- reading

std::vector<TenantTable::Row> TenantTable::Read(int64_t now_ns, size_t most) const {
  std::vector<Row> rows;
  const auto before = [](const Row& a, const Row& b) {
    return a.open != b.open ? a.open > b.open : a.tenant < b.tenant;
  };
  for (const Shard& shard : shard_) {
    for (size_t next = 0, end = 1; next < end;) {
      const MutexLock lock(shard.mutex);
      end = shard.entries.size();
      const size_t until = std::min(end, next + kReadAtOnce);
      for (; next < until; ++next) {
        const Entry& entry = shard.entries[next];
        if (entry.meter.IsUnused(now_ns)) continue;
        rows.push_back(
            {.tenant = entry.name,
             .open = entry.meter.open(),
             .peers_open = entry.meter.peers_open(),
             .requests_used = entry.meter.requests().Used(now_ns),
             .tokens_used = entry.meter.tokens().Used(now_ns)});
      }
    }
  }
  std::ranges::sort(rows, before);
  if (rows.size() > most) rows.resize(most);
  return rows;
}

size_t TenantTable::size() const {
  size_t sum = 0;
  for (const Shard& shard : shard_) {
    const MutexLock lock(shard.mutex);
    sum += shard.places.size();
  }
  return sum;
}

}  // namespace vllm_router
