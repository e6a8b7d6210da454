#include "policy/consistent_hash.h"

#include <algorithm>
#include <vector>

#include "base/limits.h"
#include "index/hash_ring.h"
#include "policy/keyed_policy.h"
#include "policy/load_order.h"

namespace vllm_router {
namespace {

struct RingPlan final : FleetPlan {
  RingPlan(
      const void* owner, std::shared_ptr<const FleetPlan> inner, uint64_t membership,
      std::shared_ptr<const HashRing> ring)
      : FleetPlan(owner, std::move(inner)), membership(membership), ring(std::move(ring)) {}

  const uint64_t membership;
  const std::shared_ptr<const HashRing> ring;
};

class ConsistentHash final : public KeyedPolicy {
 public:
  ConsistentHash(const ConsistentHashOptions& options, std::unique_ptr<Policy> fallback)
      : KeyedPolicy(std::move(fallback)), options_(options) {}

  std::string_view name() const override { return "consistent_hash"; }

 protected:
  Owner ChooseOwner(std::string_view key, const FleetView& fleet) override {
    const RingPlan* plan = FindPlan<RingPlan>(fleet, this);
    if (plan == nullptr || plan->membership != fleet.membership()) {
      // A view that nobody planned for: right, and slow.
      return ChooseOnRing(BuildRing(fleet), key, fleet);
    }
    return ChooseOnRing(*plan->ring, key, fleet);
  }

  std::shared_ptr<const FleetPlan> PlanOwners(
      const FleetView& next, std::shared_ptr<const FleetPlan> inner) override {
    const RingPlan* last = FindPlan<RingPlan>(next, this);
    std::shared_ptr<const HashRing> ring = last != nullptr && last->membership == next.membership()
                                               ? last->ring
                                               : std::make_shared<const HashRing>(BuildRing(next));
    return std::make_shared<RingPlan>(this, std::move(inner), next.membership(), std::move(ring));
  }

 private:
  HashRing BuildRing(const FleetView& fleet) const {
    const auto points_of = [this](const Worker& worker) {
      return std::max<uint64_t>(
          1, (uint64_t{options_.virtual_nodes} * worker.weight + kWeightOne / 2) / kWeightOne);
    };
    uint64_t total = 0;
    for (const FleetView::Member& member : fleet.members()) total += points_of(*member.worker);
    std::vector<HashRing::Node> nodes;
    nodes.reserve(fleet.members().size());
    for (const FleetView::Member& member : fleet.members()) {
      uint64_t points = points_of(*member.worker);
      if (total > kMaxRingPoints) points = std::max<uint64_t>(1, points * kMaxRingPoints / total);
      nodes.push_back({.name = member.worker->url.url, .points = static_cast<uint32_t>(points)});
    }
    return HashRing(nodes, options_.hash_function);
  }

  Owner ChooseOnRing(const HashRing& ring, std::string_view key, const FleetView& fleet) const {
    const uint64_t hash = RingHash(options_.hash_function, key);
    const uint32_t home = ring.owner(ring.FindPoint(hash));
    const bool home_is_eligible = fleet.IsEligible(home);
    if (options_.load_factor == 0) {
      if (home_is_eligible) return {home, Reason::kSessionHash};
      return {NextOwner(ring, hash, fleet, [](const Worker&) { return true; }), Reason::kFailover};
    }

    const Room room(fleet, options_.load_factor);
    if (home_is_eligible && room.Has(fleet.worker(home))) return {home, Reason::kSessionHash};
    const auto has_room = [&room](const Worker& worker) { return room.Has(worker); };
    if (home_is_eligible) {
      const uint32_t next = ring.FindOwner(
          hash, [&](uint32_t owner) { return fleet.IsEligible(owner) && has_room(fleet.worker(owner)); });
      // Nobody has room only when loads grew while we looked; the home is then as good as any.
      return next == HashRing::kNone ? Owner{home, Reason::kSessionHash} : Owner{next, Reason::kOverflow};
    }
    return {NextOwner(ring, hash, fleet, has_room), Reason::kFailover};
  }

  // Who takes the keys of a home that is not eligible.
  template <typename Accepts>
  uint32_t NextOwner(const HashRing& ring, uint64_t hash, const FleetView& fleet, Accepts accepts) const {
    const auto takes = [&](uint32_t owner) {
      return fleet.IsEligible(owner) && accepts(fleet.worker(owner));
    };
    if (options_.failover == HashFailover::kFirst) {
      const auto eligible = fleet.eligible();
      const auto first = std::find_if(eligible.begin(), eligible.end(), takes);
      return first != eligible.end() ? *first : eligible.front();
    }
    const uint32_t next = ring.FindOwner(hash, takes);
    return next != HashRing::kNone ? next : fleet.eligible().front();
  }

  const ConsistentHashOptions options_;
};

}  // namespace

std::unique_ptr<Policy> MakeConsistentHash(
    const ConsistentHashOptions& options, std::unique_ptr<Policy> fallback) {
  return std::make_unique<ConsistentHash>(options, std::move(fallback));
}

}  // namespace vllm_router
