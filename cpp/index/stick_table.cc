#include "index/stick_table.h"

#include <iterator>

namespace vllm_router {

void StickTable::Stick(std::string_view name, WorkerId worker, int64_t now_ns) {
  FindOrStick(
      name, now_ns, [worker](std::optional<WorkerId>, const Counts&) { return std::optional(worker); });
}

std::optional<WorkerId> StickTable::Find(std::string_view name, int64_t now_ns) {
  return FindOrStick(name, now_ns, [](std::optional<WorkerId> known, const Counts&) { return known; });
}

bool StickTable::Forget(std::string_view name, int64_t now_ns) {
  const Hash128 hash = Xxh3Of128(name);
  MutexLock lock(mutex_);
  Expire(now_ns);
  const auto found = by_name_.find(hash);
  if (found == by_name_.end()) return false;
  Drop(found->second);
  return true;
}

size_t StickTable::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

void StickTable::Put(const Hash128& name, ByName::iterator found, WorkerId worker, int64_t now_ns) {
  if (found == by_name_.end()) {
    if (entries_.size() >= options_.max_entries) Drop(std::prev(entries_.end()));
    entries_.push_front({name, worker, now_ns});
    by_name_.emplace(name, entries_.begin());
    ++counts_[worker];
    return;
  }
  Entry& entry = *found->second;
  if (entry.worker != worker) {
    Uncount(entry.worker);
    ++counts_[worker];
  }
  entry.worker = worker;
  entry.used_ns = now_ns;
  entries_.splice(entries_.begin(), entries_, found->second);
}

void StickTable::Drop(Entries::iterator entry) {
  Uncount(entry->worker);
  by_name_.erase(entry->name);
  entries_.erase(entry);
}

void StickTable::Uncount(WorkerId worker) {
  const auto found = counts_.find(worker);
  if (--found->second == 0) counts_.erase(found);
}

void StickTable::Expire(int64_t now_ns) {
  while (!entries_.empty() && now_ns - entries_.back().used_ns >= options_.ttl_ns)
    Drop(std::prev(entries_.end()));
}

}  // namespace vllm_router
