#include "policy/ring_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

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

}  // namespace

std::shared_ptr<const FleetPlan> RingPlanner::Plan(
    const void* owner, const FleetView& next, std::shared_ptr<const FleetPlan> inner) const {
  const auto* last = FindPlan<RingPlan>(next, owner);
  std::shared_ptr<const HashRing> ring;
  if (last == nullptr) {
    ring = std::make_shared<const HashRing>(Build(next, HashRing({}, function_)));
  } else if (last->membership == next.membership_version()) {
    ring = last->ring;
  } else {
    ring = std::make_shared<const HashRing>(Build(next, *last->ring));
  }
  return std::make_shared<RingPlan>(owner, std::move(inner), next.membership_version(), std::move(ring));
}

const HashRing& RingPlanner::RingOf(
    const void* owner, const FleetView& fleet, std::optional<HashRing>* built) const {
  const auto* plan = FindPlan<RingPlan>(fleet, owner);
  if (plan != nullptr && plan->membership == fleet.membership_version()) return *plan->ring;
  return built->emplace(Build(fleet, HashRing({}, function_)));
}

HashRing RingPlanner::Build(const FleetView& fleet, const HashRing& last) const {
  uint64_t total = 0;
  for (const FleetView::Member& member : fleet.members()) {
    total += HashRing::PointsOf(virtual_nodes_, member.worker->weight);
  }
  std::vector<HashRing::Node> nodes;
  nodes.reserve(fleet.members().size());
  for (const FleetView::Member& member : fleet.members()) {
    uint64_t points = HashRing::PointsOf(virtual_nodes_, member.worker->weight);
    if (total > kMaxRingPoints) points = std::max<uint64_t>(1, points * kMaxRingPoints / total);
    nodes.push_back({.name = member.worker->url.url, .points = static_cast<uint32_t>(points)});
  }
  return last.Changed(nodes);
}

}  // namespace vllm_router
