#include "peer_sync/admin_facts.h"

namespace vllm_router {
namespace {

using Kind = AdminFact::Kind;

bool IsLater(const AdminFact& one, const AdminFact& other) {
  return std::pair(one.at_ms, one.router) > std::pair(other.at_ms, other.router);
}

}  // namespace

const AdminFact* AdminFacts::Find(Kind kind, const std::string& url) const {
  const auto found = facts_.find({kind, url});
  return found == facts_.end() ? nullptr : &found->second;
}

bool AdminFacts::Merge(const AdminFact& fact) {
  const Key key(fact.kind, fact.url);
  const auto known = facts_.find(key);
  if (known == facts_.end()) {
    if (facts_.size() >= kMaxFacts) return false;
    facts_.emplace(key, fact);
    return true;
  }
  if (!IsLater(fact, known->second)) return false;
  known->second = fact;
  return true;
}

bool AdminFacts::Counts(const AdminFact& fact) const {
  const AdminFact* const known = Find(fact.kind, fact.url);
  if (known == nullptr || *known != fact) return false;
  const AdminFact* const other = Find(fact.kind == Kind::kMember ? Kind::kDrain : Kind::kMember, fact.url);
  return other == nullptr || !other->holds || !IsLater(*other, fact) || !fact.holds;
}

void AdminFacts::Forget(uint64_t now_ms, const std::function<bool(const std::string& url)>& knows) {
  // Drains go last, since what they ended goes with them.
  for (const Kind kind : {Kind::kMember, Kind::kDrain}) {
    std::erase_if(facts_, [&](const auto& entry) {
      const AdminFact& fact = entry.second;
      if (fact.kind != kind) return false;
      const AdminFact* end = !fact.holds || kind == Kind::kDrain ? &fact : Find(Kind::kDrain, fact.url);
      if (end == nullptr || (end != &fact && !(end->holds && IsLater(*end, fact)))) return false;
      return end->at_ms + kKeptMs < now_ms && (!fact.holds || !knows(fact.url));
    });
  }
}

}  // namespace vllm_router
