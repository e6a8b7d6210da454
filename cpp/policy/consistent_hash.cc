#include "policy/consistent_hash.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "index/hash_ring.h"
#include "policy/keyed_policy.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"
#include "policy/ring_plan.h"

namespace vllm_router {
namespace {

class ConsistentHash final : public KeyedPolicy {
 public:
  ConsistentHash(const PolicyOptions& options, std::unique_ptr<Policy> fallback)
      : KeyedPolicy(std::move(fallback)),
        options_(options),
        rings_(options.virtual_nodes, options.hash_function) {}

  std::string_view name() const override { return "consistent_hash"; }

 protected:
  Owner ChooseOwner(const RoutingKey& key, const FleetView& fleet) override {
    std::optional<HashRing> built;
    return ChooseOnRing(rings_.RingOf(this, fleet, &built), key, fleet);
  }

  std::shared_ptr<const FleetPlan> PlanOwners(
      const FleetView& next, std::shared_ptr<const FleetPlan> inner) override {
    return rings_.Plan(this, next, std::move(inner));
  }

 private:
  Owner ChooseOnRing(const HashRing& ring, const RoutingKey& key, const FleetView& fleet) const {
    const uint64_t hash = RingHash(options_.hash_function, key.hash_key);
    const uint32_t home = ring.owner(ring.FindPoint(hash));
    const bool home_is_eligible = fleet.IsEligible(home);
    if (options_.hash_load_factor == 0) {
      if (home_is_eligible) return {home, Reason::kSessionHash};
      return {NextOwner(ring, hash, fleet, [](const Worker&) { return true; }), Reason::kFailover};
    }

    const LoadCap room(fleet, options_.hash_load_factor);
    if (key.explanation != nullptr) {
      key.explanation->SetLimits(fleet, [&](const Worker& worker) { return room.Cap(worker); });
    }
    if (home_is_eligible && room.Has(fleet.worker(home))) return {home, Reason::kSessionHash};
    const auto has_room = [&room](const Worker& worker) { return room.Has(worker); };
    if (home_is_eligible) {
      const uint32_t next = ring.FindOwner(
          hash, [&](uint32_t owner) { return fleet.IsEligible(owner) && has_room(fleet.worker(owner)); });
      // No worker has room only if loads grew meanwhile; the home is then as good as any.
      return next == HashRing::kNone ? Owner{home, Reason::kSessionHash} : Owner{next, Reason::kOverflow};
    }
    return {NextOwner(ring, hash, fleet, has_room), Reason::kFailover};
  }

  // The worker that takes the keys of a home that is not eligible.
  template <typename Accepts>
  uint32_t NextOwner(const HashRing& ring, uint64_t hash, const FleetView& fleet, Accepts accepts) const {
    const auto takes = [&](uint32_t owner) {
      return fleet.IsEligible(owner) && accepts(fleet.worker(owner));
    };
    if (options_.hash_failover == HashFailover::kFirst) {
      const auto eligible = fleet.eligible();
      const auto first = std::find_if(eligible.begin(), eligible.end(), takes);
      return first != eligible.end() ? *first : eligible.front();
    }
    const uint32_t next = ring.FindOwner(hash, takes);
    return next != HashRing::kNone ? next : fleet.eligible().front();
  }

  const PolicyOptions options_;
  const RingPlanner rings_;
};

}  // namespace

PolicyEntry ConsistentHashEntry() {
  return {
      .name = "consistent_hash",
      .aliases = {"consistent_hashing"},
      .options = {"fallback_policy", "virtual_nodes", "hash_function", "hash_failover", "hash_load_factor"},
      .make = Make<ConsistentHash>};
}

}  // namespace vllm_router
