// SessionTable: where each conversation is: the worker of its last turn, and what that turn found in its cache.
//
//   table.Record({.names = names, .worker = id, …});      a turn has ended
//   table.WorkerOf(names)                                 where the next one should go, if it says no prompt
//   table.Newest(100)                                     for people
//
// A subagent that shares its session's name has a row of its own; until it has one, its session's counts. With more than
// `max_sessions` rows the one that was used longest ago is forgotten.
//
// Cost: a hash of the names, one look-up and one short mutex (a leaf); a row has some 400 bytes, at most 2 KiB.
// Newest() copies its rows under the mutex, and with a session looks at all. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "hashing/hash.h"
#include "policy/decision.h"
#include "routing/session_names.h"
#include "worker/worker.h"

namespace vllm_router {

class SessionTable {
 public:
  struct Turn {
    WorkerId worker{};
    // What the policy expected to be cached of how much.
    MatchUnit unit = MatchUnit::kNone;
    uint64_t matched = 0;
    uint64_t total = 0;
    // What the worker reported.
    std::optional<uint64_t> prompt_tokens;
    std::optional<uint64_t> cached_tokens;
    int64_t wall_us = 0;  // Unix time
  };
  struct Session {
    std::string session, parent, agent, model;
    uint64_t turns = 0;
    uint64_t moves = 0;  // turns at another worker than the turn before
    Turn last;
  };

  // REQUIRES: max_sessions > 0.
  explicit SessionTable(size_t max_sessions) : max_sessions_(max_sessions) {}

  // REQUIRES: a session is named.
  void Record(const SessionNames& names, std::string_view model, const Turn& turn);
  // nullopt: it is not known.
  std::optional<WorkerId> WorkerOf(const SessionNames& names) const;
  // The newest turn first; `session`: of this one alone, subagents included.
  std::vector<Session> Newest(size_t count, std::optional<std::string_view> session = std::nullopt) const;
  size_t size() const;

 private:
  struct Row {
    Hash128 name;
    Session session;
  };
  using Rows = std::list<Row>;

  const size_t max_sessions_;
  mutable Mutex mutex_;
  Rows rows_ ABSL_GUARDED_BY(mutex_);  // the newest turn first
  absl::flat_hash_map<Hash128, Rows::iterator, HashOf128> by_name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
