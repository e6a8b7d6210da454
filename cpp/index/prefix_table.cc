#include "index/prefix_table.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace vllm_router {

void PrefixTable::SetWorkers(std::span<const WorkerId> workers) {
  const MutexLock writing(write_mutex_);
  absl::flat_hash_set<WorkerId> left;
  left.swap(workers_);
  for (const WorkerId worker : workers) {
    workers_.insert(worker);
    left.erase(worker);
  }
  for (const WorkerId worker : left) RemoveAllOfLocked(worker, nullptr);
}

bool PrefixTable::Put(
    const Digest256& digest, WorkerId worker, std::optional<uint32_t> tokens, bool on_gpu, int64_t now_ns) {
  const MutexLock writing(write_mutex_);
  if (!workers_.contains(worker)) return false;
  {
    Shard& shard = shards_[ShardOf(digest)];
    const MutexLock lock(shard.mutex);
    Contents& contents = shard.contents;
    Order::iterator prefix;
    if (const auto found = contents.by_digest.find(digest); found != contents.by_digest.end()) {
      prefix = *found;
      DropExpired(&contents, &*prefix, now_ns);
    } else {
      contents.order.emplace_front();
      prefix = contents.order.begin();
      prefix->digest = digest;
      contents.by_digest.insert(prefix);
    }
    Use(&contents, prefix);
    auto& holders = prefix->holders;
    auto holder = std::ranges::find(holders, worker, &Holder::worker);
    if (holder == holders.end()) {
      if (holders.size() == kMaxHolders) {
        const auto oldest = std::ranges::min_element(holders, {}, &Holder::updated_ns);
        DropHolder(&contents, &*prefix, static_cast<size_t>(oldest - holders.begin()));
        evictions_.fetch_add(1, std::memory_order_relaxed);
      }
      Entries& entries = contents.by_worker[worker];
      holders.push_back(
          {.updated_ns = now_ns,
           .entry = entries.insert(entries.begin(), &*prefix),
           .worker = worker,
           .tokens = options_.tokens_if_untold,
           .on_gpu = on_gpu});
      holder = std::prev(holders.end());
      entries_.fetch_add(1, std::memory_order_relaxed);
    }
    holder->updated_ns = now_ns;
    holder->on_gpu = on_gpu;
    holder->tokens = tokens.value_or(holder->tokens);
  }
  KeepWithinLimit();
  return true;
}

bool PrefixTable::Remove(const Digest256& digest, WorkerId worker) {
  Shard& shard = shards_[ShardOf(digest)];
  const MutexLock lock(shard.mutex);
  Contents& contents = shard.contents;
  const auto found = contents.by_digest.find(digest);
  if (found == contents.by_digest.end()) return false;
  const Order::iterator prefix = *found;
  const auto holder = std::ranges::find(prefix->holders, worker, &Holder::worker);
  if (holder == prefix->holders.end()) return false;
  DropHolder(&contents, &*prefix, static_cast<size_t>(holder - prefix->holders.begin()));
  if (prefix->holders.empty()) DropPrefix(&contents, prefix);
  return true;
}

uint64_t PrefixTable::RemoveAllOf(WorkerId worker, std::vector<Digest256>* forgotten) {
  const MutexLock writing(write_mutex_);
  return RemoveAllOfLocked(worker, forgotten);
}

uint64_t PrefixTable::RemoveAllOfLocked(WorkerId worker, std::vector<Digest256>* forgotten) {
  uint64_t removed = 0;
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    Contents& contents = shard.contents;
    const auto found = contents.by_worker.find(worker);
    if (found == contents.by_worker.end()) continue;
    const Entries prefixes = std::move(found->second);
    contents.by_worker.erase(found);
    for (Prefix* const prefix : prefixes) {
      if (forgotten != nullptr) forgotten->push_back(prefix->digest);
      prefix->holders.erase(std::ranges::find(prefix->holders, worker, &Holder::worker));
      if (prefix->holders.empty()) DropPrefix(&contents, *contents.by_digest.find(prefix->digest));
    }
    removed += prefixes.size();
    entries_.fetch_sub(prefixes.size(), std::memory_order_relaxed);
  }
  return removed;
}

bool PrefixTable::ClearNext(Cleared* cleared) {
  Contents gone;  // freed when no mutex is held
  {
    Shard& shard = shards_[cleared->shards];
    const MutexLock lock(shard.mutex);
    gone.order.swap(shard.contents.order);
    gone.by_digest.swap(shard.contents.by_digest);
    gone.by_worker.swap(shard.contents.by_worker);
    uint64_t entries = 0;
    for (const auto& [worker, prefixes] : gone.by_worker) {
      cleared->workers.insert(worker);
      entries += prefixes.size();
    }
    entries_.fetch_sub(entries, std::memory_order_relaxed);
    cleared->entries += entries;
  }
  return ++cleared->shards < kShards;
}

void PrefixTable::Find(const Digest256& digest, int64_t now_ns, std::vector<Held>* held) {
  held->clear();
  Shard& shard = shards_[ShardOf(digest)];
  const MutexLock lock(shard.mutex);
  Contents& contents = shard.contents;
  const auto found = contents.by_digest.find(digest);
  if (found == contents.by_digest.end()) return;
  const Order::iterator prefix = *found;
  DropExpired(&contents, &*prefix, now_ns);
  if (prefix->holders.empty()) return DropPrefix(&contents, prefix);
  for (const Holder& holder : prefix->holders)
    held->push_back({.worker = holder.worker, .tokens = holder.tokens, .on_gpu = holder.on_gpu});
  ++shard.hits;
  Use(&contents, prefix);
}

void PrefixTable::Peek(const Digest256& digest, int64_t now_ns, std::vector<Held>* held) const {
  held->clear();
  const Shard& shard = shards_[ShardOf(digest)];
  const MutexLock lock(shard.mutex);
  const auto found = shard.contents.by_digest.find(digest);
  if (found == shard.contents.by_digest.end()) return;
  for (const Holder& holder : (*found)->holders) {
    if (IsLive(holder, now_ns))
      held->push_back({.worker = holder.worker, .tokens = holder.tokens, .on_gpu = holder.on_gpu});
  }
}

size_t PrefixTable::Sweep(int64_t now_ns, size_t most) {
  const auto is_live = [this, now_ns](const Holder& holder) { return IsLive(holder, now_ns); };
  const size_t begin = swept_.load(std::memory_order_relaxed);
  size_t removed = 0;
  for (size_t i = 0; i < kShards && removed < most; ++i) {
    const size_t at = (begin + i) % kShards;
    swept_.store(at, std::memory_order_relaxed);
    const MutexLock lock(shards_[at].mutex);
    Contents& contents = shards_[at].contents;
    for (; removed < most && !contents.order.empty(); ++removed) {
      const Order::iterator last = std::prev(contents.order.end());
      if (std::ranges::any_of(last->holders, is_live)) break;
      DropPrefix(&contents, last);
    }
  }
  return removed;
}

PrefixTable::Stats PrefixTable::stats() const {
  Stats stats;
  for (const Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    stats.prefixes += shard.contents.order.size();
    stats.hits += shard.hits;
  }
  stats.entries = entries_.load(std::memory_order_relaxed);
  stats.evictions = evictions_.load(std::memory_order_relaxed);
  return stats;
}

void PrefixTable::Use(Contents* contents, Order::iterator prefix) {
  prefix->used = uses_.fetch_add(1, std::memory_order_relaxed);
  contents->order.splice(contents->order.begin(), contents->order, prefix);
  for (const Holder& holder : prefix->holders) {
    Entries& entries = contents->by_worker.find(holder.worker)->second;
    entries.splice(entries.begin(), entries, holder.entry);
  }
}

void PrefixTable::DropHolder(Contents* contents, Prefix* prefix, size_t at) {
  const auto worker = contents->by_worker.find(prefix->holders[at].worker);
  worker->second.erase(prefix->holders[at].entry);
  if (worker->second.empty()) contents->by_worker.erase(worker);
  prefix->holders.erase(prefix->holders.begin() + static_cast<std::ptrdiff_t>(at));
  entries_.fetch_sub(1, std::memory_order_relaxed);
}

void PrefixTable::DropExpired(Contents* contents, Prefix* prefix, int64_t now_ns) {
  for (size_t i = prefix->holders.size(); i-- > 0;) {
    if (!IsLive(prefix->holders[i], now_ns)) DropHolder(contents, prefix, i);
  }
}

void PrefixTable::DropPrefix(Contents* contents, Order::iterator prefix) {
  while (!prefix->holders.empty()) DropHolder(contents, &*prefix, prefix->holders.size() - 1);
  contents->by_digest.erase(prefix);
  contents->order.erase(prefix);
}

void PrefixTable::KeepWithinLimit() {
  const uint64_t entries = entries_.load(std::memory_order_relaxed);
  if (entries > options_.max_entries) evicting_ = true;
  if (!evicting_) return;
  const uint64_t low = options_.max_entries - options_.max_entries / 10;
  EvictDownTo(std::max(low, entries - std::min(entries, kEvictedAtOnce)));
  evicting_ = entries_.load(std::memory_order_relaxed) > low;
}

// Takes one entry after another from the worker that has the most, of equals the one with the lowest number.
void PrefixTable::EvictDownTo(uint64_t goal) {
  absl::flat_hash_map<WorkerId, uint64_t> counts;
  for (Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    for (const auto& [worker, entries] : shard.contents.by_worker) counts[worker] += entries.size();
  }
  std::vector<std::pair<uint64_t, WorkerId>> most;  // the workers that lose some, once the others are out
  for (const auto& [worker, count] : counts) most.emplace_back(count, worker);
  std::ranges::sort(most, std::greater<>());
  while (!most.empty() && most.back().first <= goal / most.size()) {
    goal -= most.back().first;
    most.pop_back();
  }
  std::ranges::sort(most, {}, &std::pair<uint64_t, WorkerId>::second);
  for (size_t i = 0; i < most.size(); ++i) {
    const uint64_t kept = goal / (most.size() - i);
    if (most[i].first > kept) EvictOldestOf(most[i].second, most[i].first - kept);
    goal -= kept;
  }
}

// A heap of the shards by the last use of the worker's oldest prefix there: entries go in the order of the table.
void PrefixTable::EvictOldestOf(WorkerId worker, uint64_t count) {
  using Oldest = std::pair<uint64_t, size_t>;
  std::priority_queue<Oldest, std::vector<Oldest>, std::greater<>> oldest;
  for (size_t i = 0; i < kShards; ++i) {
    const MutexLock lock(shards_[i].mutex);
    const auto found = shards_[i].contents.by_worker.find(worker);
    if (found != shards_[i].contents.by_worker.end()) oldest.emplace(found->second.back()->used, i);
  }
  while (count > 0 && !oldest.empty()) {
    const size_t at = oldest.top().second;
    oldest.pop();
    const uint64_t next = oldest.empty() ? UINT64_MAX : oldest.top().first;
    const MutexLock lock(shards_[at].mutex);
    Contents& contents = shards_[at].contents;
    for (auto found = contents.by_worker.find(worker); found != contents.by_worker.end();
         found = contents.by_worker.find(worker)) {
      Prefix* const prefix = found->second.back();
      if (count == 0 || prefix->used > next) {
        oldest.emplace(prefix->used, at);
        break;
      }
      const auto holder = std::ranges::find(prefix->holders, worker, &Holder::worker);
      DropHolder(&contents, prefix, static_cast<size_t>(holder - prefix->holders.begin()));
      if (prefix->holders.empty()) DropPrefix(&contents, *contents.by_digest.find(prefix->digest));
      evictions_.fetch_add(1, std::memory_order_relaxed);
      --count;
    }
  }
}

}  // namespace vllm_router
