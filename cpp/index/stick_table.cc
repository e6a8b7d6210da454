#include "index/stick_table.h"

namespace vllm_router {

void StickTable::Stick(std::string_view name, WorkerId worker, int64_t now_ns) {
  const Hash128 hash = Xxh3Of128(name);
  std::lock_guard lock(mutex_);
  Expire(now_ns);
  const auto found = by_name_.find(hash);
  if (found != by_name_.end()) {
    *found->second = {hash, worker, now_ns};
    entries_.splice(entries_.begin(), entries_, found->second);
    return;
  }
  if (entries_.size() >= options_.max_entries) {
    by_name_.erase(entries_.back().name);
    entries_.pop_back();
  }
  entries_.push_front({hash, worker, now_ns});
  by_name_.emplace(hash, entries_.begin());
}

std::optional<WorkerId> StickTable::Find(std::string_view name, int64_t now_ns) {
  const Hash128 hash = Xxh3Of128(name);
  std::lock_guard lock(mutex_);
  Expire(now_ns);
  const auto found = by_name_.find(hash);
  if (found == by_name_.end()) return std::nullopt;
  found->second->used_ns = now_ns;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->worker;
}

bool StickTable::Forget(std::string_view name, int64_t now_ns) {
  const Hash128 hash = Xxh3Of128(name);
  std::lock_guard lock(mutex_);
  Expire(now_ns);
  const auto found = by_name_.find(hash);
  if (found == by_name_.end()) return false;
  entries_.erase(found->second);
  by_name_.erase(found);
  return true;
}

size_t StickTable::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void StickTable::Expire(int64_t now_ns) {
  while (!entries_.empty() && now_ns - entries_.back().used_ns >= options_.ttl_ns) {
    by_name_.erase(entries_.back().name);
    entries_.pop_back();
  }
}

}  // namespace vllm_router
