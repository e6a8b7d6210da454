#include "policy/ring_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace vllm_router {
namespace {

struct RingPlan final : FleetPlan {
  RingPlan(
      const void* owner, std::shared_ptr<const FleetPlan> inner, const FleetView& fleet,
      std::shared_ptr<const HashRing> ring)
      : FleetPlan(owner, std::move(inner)),
        membership(fleet.membership_version()),
        pool(fleet.pool()),
        ring(std::move(ring)) {}

  bool IsOf(const FleetView& fleet) const {
    return membership == fleet.membership_version() && pool == fleet.pool();
  }

  const uint64_t membership;
  const uint64_t pool;
  const std::shared_ptr<const HashRing> ring;
};

// A worker of another pool or stage keeps its number as an owner, without points. A pool's view that is made for one
// request (pool 0) has the ring of all.
bool OnRing(const FleetView::Member& member, const FleetView& fleet) {
  return !member.other_stage && (fleet.pool() == 0 || !member.other_model);
}

}  // namespace

std::shared_ptr<const FleetPlan> RingPlanner::Plan(
    const void* owner, const FleetView& next, std::shared_ptr<const FleetPlan> inner) const {
  const auto* last = FindPlan<RingPlan>(next, owner);
  std::shared_ptr<const HashRing> ring;
  if (last == nullptr) {
    ring = std::make_shared<const HashRing>(Build(next, HashRing({}, function_)));
  } else if (last->IsOf(next)) {
    ring = last->ring;
  } else {
    ring = std::make_shared<const HashRing>(Build(next, *last->ring));
  }
  return std::make_shared<RingPlan>(owner, std::move(inner), next, std::move(ring));
}

const HashRing& RingPlanner::RingOf(
    const void* owner, const FleetView& fleet, std::optional<HashRing>* built) const {
  const auto* plan = FindPlan<RingPlan>(fleet, owner);
  if (plan != nullptr && plan->IsOf(fleet)) return *plan->ring;
  return built->emplace(Build(fleet, HashRing({}, function_)));
}

HashRing RingPlanner::Build(const FleetView& fleet, const HashRing& last) const {
  uint64_t total = 0;
  for (const FleetView::Member& member : fleet.members()) {
    if (OnRing(member, fleet)) total += HashRing::PointsOf(virtual_nodes_, member.worker->weight);
  }
  std::vector<HashRing::Node> nodes;
  nodes.reserve(fleet.members().size());
  for (const FleetView::Member& member : fleet.members()) {
    uint64_t points = HashRing::PointsOf(virtual_nodes_, member.worker->weight);
    if (!OnRing(member, fleet)) {
      points = 0;
    } else if (total > kMaxRingPoints) {
      points = std::max<uint64_t>(1, points * kMaxRingPoints / total);
    }
    nodes.push_back({.name = member.worker->url.url, .points = static_cast<uint32_t>(points)});
  }
  return last.Changed(nodes);
}

}  // namespace vllm_router
