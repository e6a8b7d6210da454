#include "policy/keyed_policy.h"

namespace vllm_router {

std::optional<Decision> KeyedPolicy::Choose(const RoutingKey& key, const FleetView& fleet) {
  if (fleet.eligible().empty()) return std::nullopt;
  if (key.hash_key_source == RoutingKey::HashKeySource::kMissing) {
    std::optional<Decision> decision = fallback_->Choose(key, fleet);
    if (decision) decision->reason = Reason::kFallback;
    return decision;
  }
  Owner owner = ChooseOwner(key, fleet);
  if (owner.reason == Reason::kSessionHash && key.hash_key_source == RoutingKey::HashKeySource::kBody) {
    owner.reason = Reason::kBodyHash;
  }
  return Decision{
      .position = owner.position, .worker = fleet.worker(owner.position).id, .reason = owner.reason};
}

void KeyedPolicy::Observe(const Decision& decision, const Outcome& outcome) {
  if (decision.reason == Reason::kFallback) fallback_->Observe(decision, outcome);
}

std::shared_ptr<const FleetPlan> KeyedPolicy::Plan(const FleetView& next) {
  return PlanOwners(next, fallback_->Plan(next));
}

}  // namespace vllm_router
