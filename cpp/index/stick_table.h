// StickTable: names, and the workers that they stick to, after HAProxy's stick tables: the worker that
// holds a stored response, the worker of a session. A name expires when it is not used for a while. When
// the table is full, the least recently used one is forgotten.
//
//   StickTable table({.max_entries = 100'000, .ttl_ns = 3'600'000'000'000});
//   table.Stick("resp_1f", worker, now);
//   table.Find("resp_1f", now);               // the worker; that was a use
//   table.FindOrStick("session", now, [](std::optional<WorkerId> known, const StickTable::Counts& counts) { … });
//
// The table stores 128-bit hashes of names, so no name is kept, and a long one costs no more than a
// short one. Two names share a hash with probability 2^-128; then one of them finds the other's worker.
// Time is passed in, and never goes back.
//
// Cost: a hash of the name, one look-up and one short mutex (a leaf); 90 bytes per entry. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string_view>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "hashing/hash.h"
#include "worker/worker.h"

namespace vllm_router {

class StickTable {
 public:
  struct Options {
    size_t max_entries = 100'000;        // at least 1
    int64_t ttl_ns = 3'600'000'000'000;  // an hour since the last use
  };
  // The number of names that stick to each worker; workers without any are absent.
  using Counts = absl::flat_hash_map<WorkerId, uint64_t>;

  explicit StickTable(const Options& options) : options_(options) {}
  StickTable(const StickTable&) = delete;
  StickTable& operator=(const StickTable&) = delete;

  // Replaces the worker of the name.
  void Stick(std::string_view name, WorkerId worker, int64_t now_ns);
  std::optional<WorkerId> Find(std::string_view name, int64_t now_ns);
  // `place`: std::optional<WorkerId>(std::optional<WorkerId> known, const Counts&), called with the
  // table locked, so that all requests for one name get one worker. The name sticks to its result from
  // now on; nullopt: nothing changes.
  template <typename Place>
  std::optional<WorkerId> FindOrStick(std::string_view name, int64_t now_ns, Place place) {
    const Hash128 hash = Xxh3Of128(name);
    MutexLock lock(mutex_);
    Expire(now_ns);
    const auto found = by_name_.find(hash);
    std::optional<WorkerId> known;
    if (found != by_name_.end()) known = found->second->worker;
    const std::optional<WorkerId> worker = place(known, counts_);
    if (worker) Put(hash, found, *worker, now_ns);
    return worker;
  }

  // True: it was there.
  bool Forget(std::string_view name, int64_t now_ns);
  // Expired names may still count.
  size_t size() const;

 private:
  struct Entry {
    Hash128 name;
    WorkerId worker;
    int64_t used_ns;
  };
  using Entries = std::list<Entry>;

  using ByName = absl::flat_hash_map<Hash128, Entries::iterator, HashOf128>;

  void Put(const Hash128& name, ByName::iterator found, WorkerId worker, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Entries::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Uncount(WorkerId worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // the most recently used first
  ByName by_name_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
