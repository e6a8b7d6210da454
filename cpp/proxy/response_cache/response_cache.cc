#include "proxy/response_cache/response_cache.h"

#include <algorithm>
#include <utility>

namespace vllm_router {
namespace {

constexpr int64_t kSweepNs = 10'000'000'000;
constexpr size_t kSweptAtOnce = 1'024;  // of each part of the memory

FlightTable::Limits FlightLimits(const ResponseCacheSettings& settings) {
  return {.followers = settings.coalesce_max_followers, .promotions = settings.coalesce_max_promotions};
}

MemoryStore::Limits LimitsOf(const ResponseCacheSettings& settings, const ResponseCache::Fixed& fixed) {
  return {
      .entries = fixed.redis ? fixed.fallback_capacity : settings.capacity,
      .bytes = settings.max_memory_bytes};
}

}  // namespace

ResponseCache::ResponseCache(const ResponseCacheSettings& settings, Fixed fixed)
    : memory(LimitsOf(settings, fixed)),
      flights(FlightLimits(settings)),
      fixed_(std::move(fixed)),
      enabled_(settings.enabled),
      rules_(settings.rules) {}

void ResponseCache::Follow(const ResponseCacheSettings& settings) {
  memory.SetLimits(LimitsOf(settings, fixed_));
  flights.SetLimits(FlightLimits(settings));
  const bool begins = !enabled_.exchange(settings.enabled, std::memory_order_relaxed) && settings.enabled;
  MutexLock lock(mutex_);
  const bool changed = settings.rules != rules_;
  rules_ = settings.rules;
  lock.Unlock();
  if (begins || (settings.enabled && changed)) InvalidateAll(!settings.rules.has_generations());
  if (!settings.enabled) memory.Clear();
}

void ResponseCache::Count(Result result, CacheBypass why, int64_t lookup_ns, int64_t now_ns) {
  MaySweep(now_ns);
  const auto at = static_cast<size_t>(result);
  counts.results[at].fetch_add(1, std::memory_order_relaxed);
  if (result == Result::kBypass) {
    counts.bypasses[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
    return;
  }
  hit_rate.Count(result == Result::kHit, now_ns);
  const auto bucket = std::ranges::lower_bound(kLookupBounds, lookup_ns) - kLookupBounds.begin();
  counts.lookups[at][static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  counts.lookup_nanos[at].fetch_add(static_cast<uint64_t>(lookup_ns), std::memory_order_relaxed);
}

// Set() looks for expired responses as well, but there may be none for long.
void ResponseCache::MaySweep(int64_t now_ns) {
  int64_t due = next_sweep_ns_.load(std::memory_order_relaxed);
  if (now_ns < due || !next_sweep_ns_.compare_exchange_strong(due, now_ns + kSweepNs)) return;
  memory.Sweep(now_ns, kSweptAtOnce);
}

bool ResponseCache::TakeCapture(size_t bytes, uint64_t most) {
  const uint64_t before = captured_.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes <= most) return true;
  ReturnCapture(bytes);
  return false;
}

std::shared_ptr<const ResponseCache::Replayed> ResponseCache::Hold(
    const CacheKey& key, std::shared_ptr<const std::string> blob, BodyBudget& memory) {
  std::shared_ptr<const Replayed> held;
  {
    const MutexLock lock(mutex_);
    const auto at = replayed_.find(key);
    if (at != replayed_.end()) held = at->second.lock();
  }
  // Redis gives each hit a copy of its own.
  if (held != nullptr && (held->blob_ == blob || *held->blob_ == *blob)) return held;
  auto mine = std::make_shared<Replayed>(*this, memory, key, std::move(blob));
  if (!memory.TryKeep(mine->claim_, mine->blob_->size())) return nullptr;
  const MutexLock lock(mutex_);
  replayed_[key] = mine;
  return mine;
}

ResponseCache::Replayed::~Replayed() {
  memory_.Release(claim_);
  const MutexLock lock(cache_.mutex_);
  const auto at = cache_.replayed_.find(key_);
  if (at != cache_.replayed_.end() && at->second.expired()) cache_.replayed_.erase(at);
}

size_t ResponseCache::InvalidateAll(bool deletes) {
  generations.BumpAll();
  on_invalidated_(deletes);
  return memory.Clear();
}

void ResponseCache::InvalidateModel(std::string_view model) {
  generations.Bump(model);
  generations.Bump(kUnnamed);
  on_invalidated_(false);
}

}  // namespace vllm_router
