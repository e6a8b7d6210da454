#include "peer_sync/admin_facts.h"

namespace vllm_router {

bool AdminFacts::Merge(const AdminFact& fact) {
  const Key key(fact.kind, fact.url);
  const auto known = facts_.find(key);
  if (known == facts_.end()) {
    if (facts_.size() >= kMaxFacts) return false;
    facts_.emplace(key, fact);
    return true;
  }
  const auto version = [](const AdminFact& of) { return std::pair(of.at_ms, of.router); };
  if (version(fact) <= version(known->second)) return false;
  known->second = fact;
  return true;
}

void AdminFacts::Forget(uint64_t now_ms) {
  std::erase_if(facts_, [now_ms](const auto& entry) {
    return !entry.second.holds && entry.second.at_ms + kKeptMs < now_ms;
  });
}

}  // namespace vllm_router
