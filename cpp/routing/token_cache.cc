#include "routing/token_cache.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "routing/routing_text.h"

namespace vllm_router {
namespace {

Hash128 Chain(const Hash128& before, std::string_view item) {
  const Hash128 own = Xxh3Of128(item);
  const std::array<uint64_t, 4> both = {before.high, before.low, own.high, own.low};
  return Xxh3Of128({reinterpret_cast<const char*>(both.data()), sizeof both});
}

}  // namespace

void NamePrefixes(
    std::string_view model, TokenCall call, std::string_view options, std::string_view text,
    std::vector<TextPrefix>* out) {
  out->clear();
  Hash128 name = Chain(Xxh3Of128(model), std::string(1, static_cast<char>(call)).append(options));
  size_t begin = 0;
  do {
    const size_t next =
        out->size() < kMaxNamedItems ? text.find(kRoutingItem, begin + 1) : std::string_view::npos;
    const size_t end = next == std::string_view::npos ? text.size() : next;
    name = Chain(name, text.substr(begin, end - begin));
    out->push_back({name, end});
    begin = end;
  } while (begin < text.size());
}

TokenCache::Known TokenCache::Find(std::span<const TextPrefix> prefixes, bool dry_run) {
  MutexLock lock(mutex_);
  for (auto prefix = prefixes.rbegin(); prefix != prefixes.rend(); ++prefix) {
    const auto found = by_name_.find(prefix->name);
    if (found == by_name_.end()) continue;
    if (dry_run) return {found->second->ids, prefix->size};
    entries_.splice(entries_.begin(), entries_, found->second);
    ++(prefix == prefixes.rbegin() ? stats_.whole : stats_.partial);
    return {found->second->ids, prefix->size};
  }
  if (!dry_run) ++stats_.unknown;
  return {};
}

void TokenCache::Store(const Hash128& name, PromptIds ids) {
  Entry entry{name, std::make_shared<const PromptIds>(std::move(ids))};
  std::list<Entry> gone;  // freed outside the lock
  MutexLock lock(mutex_);
  const auto remove = [&](std::list<Entry>::iterator old) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    by_name_.erase(old->name);
    stats_.bytes -= old->bytes();
    gone.splice(gone.begin(), entries_, old);
  };
  if (const auto old = by_name_.find(name); old != by_name_.end()) remove(old->second);
  if (entry.bytes() > capacity_bytes_) return;
  while (stats_.bytes + entry.bytes() > capacity_bytes_) {
    remove(std::prev(entries_.end()));
    ++stats_.evicted;
  }
  stats_.bytes += entry.bytes();
  entries_.push_front(std::move(entry));
  by_name_.emplace(name, entries_.begin());
}

TokenCache::Stats TokenCache::stats() const {
  MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.entries = entries_.size();
  return stats;
}

}  // namespace vllm_router
