// StickTable: names, and the workers that they stick to, after HAProxy's stick tables: the worker that holds a stored
// response, the worker of a session. A name that is not used for a while is forgotten, and so is the one that was used least
// recently when the table is full.
//
//   StickTable table({.max_entries = 100'000, .ttl_ns = 3'600'000'000'000});
//   table.Stick("resp_1f", worker, now);
//   table.Find("resp_1f", now);               // the worker; that was a use
//
// Names are known by 128-bit hashes, so no name is kept, and a long one costs no more than a short one. Two names share a hash
// once in 2^128; then one of them finds the other's worker. Time is passed in, and never goes back.
//
// Cost: a hash of the name, one look-up and one short mutex (a leaf); 90 bytes per entry. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>

#include <absl/container/flat_hash_map.h>

#include "hashing/hash.h"
#include "worker/worker.h"

namespace vllm_router {

class StickTable {
 public:
  struct Options {
    size_t max_entries = 100'000;        // at least 1
    int64_t ttl_ns = 3'600'000'000'000;  // an hour since the last use
  };
  explicit StickTable(const Options& options) : options_(options) {}
  StickTable(const StickTable&) = delete;
  StickTable& operator=(const StickTable&) = delete;

  // Replaces what the name stuck to.
  void Stick(std::string_view name, WorkerId worker, int64_t now_ns);
  std::optional<WorkerId> Find(std::string_view name, int64_t now_ns);
  // True: it was there.
  bool Forget(std::string_view name, int64_t now_ns);
  // Those whose time is over may still count.
  size_t size() const;

 private:
  struct Entry {
    Hash128 name;
    WorkerId worker;
    int64_t used_ns;
  };
  struct NameHash {
    size_t operator()(const Hash128& name) const { return name.low; }
  };
  struct NameEqual {
    bool operator()(const Hash128& a, const Hash128& b) const { return a.high == b.high && a.low == b.low; }
  };
  using Entries = std::list<Entry>;

  void Expire(int64_t now_ns);

  const Options options_;
  mutable std::mutex mutex_;
  Entries entries_;  // the most recently used first
  absl::flat_hash_map<Hash128, Entries::iterator, NameHash, NameEqual> by_name_;
};

}  // namespace vllm_router
