#include "sessions/session_table.h"

#include "base/text.h"

namespace vllm_router {
namespace {

// A byte that no header's value has parts the two.
Hash128 NameOf(std::string_view session, std::string_view agent) {
  if (agent.empty()) return Xxh3Of128(session);
  return Xxh3Of128(Concat(session, std::string_view("\0", 1), agent));
}

}  // namespace

void SessionTable::Record(const SessionNames& names, std::string_view model, const Turn& turn) {
  const Hash128 name = NameOf(names.session, names.agent);
  MutexLock lock(mutex_);
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    rows_.splice(rows_.begin(), rows_, found->second);
  } else {
    if (rows_.size() == max_sessions_) {
      by_name_.erase(rows_.back().name);
      rows_.pop_back();
    }
    rows_.push_front({.name = name, .session = {}});
    rows_.front().session.session = names.session;
    rows_.front().session.agent = names.agent;
    by_name_.emplace(name, rows_.begin());
  }
  Session& session = rows_.front().session;
  if (session.turns++ != 0 && session.last.worker != turn.worker) ++session.moves;
  session.parent = names.parent;
  session.model = model.substr(0, kMaxSessionNameBytes);
  session.last = turn;
}

std::optional<WorkerId> SessionTable::WorkerOf(const SessionNames& names) const {
  const Hash128 own = NameOf(names.session, names.agent);
  MutexLock lock(mutex_);
  auto found = by_name_.find(own);
  if (found == by_name_.end() && !names.agent.empty()) found = by_name_.find(NameOf(names.session, {}));
  if (found == by_name_.end()) return std::nullopt;
  return found->second->session.last.worker;
}

std::vector<SessionTable::Session> SessionTable::Newest(
    size_t count, std::optional<std::string_view> session) const {
  std::vector<Session> newest;
  MutexLock lock(mutex_);
  for (const Row& row : rows_) {
    if (newest.size() == count) break;
    if (!session || row.session.session == *session) newest.push_back(row.session);
  }
  return newest;
}

size_t SessionTable::size() const {
  MutexLock lock(mutex_);
  return rows_.size();
}

}  // namespace vllm_router
