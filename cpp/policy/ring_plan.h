// RingPlan: the hash ring of a fleet, made when a member joins or leaves and kept while health changes.
// All members are on it, eligible or not: a key's home never depends on health, and a worker that comes
// back gets its keys back.
//
//   view 7  w0 w1 w2      ring A
//   view 8  w0 (w1) w2    ring A       w1 is unhealthy: the same members, the same ring
//   view 9  w0 w2         ring B       made of A without w1's points
//
// Cost: O(points) per change of membership, besides the hashes of new workers. A const plan may be
// shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "index/hash_ring.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class RingPlanner {
 public:
  // `virtual_nodes` per weight 1. Where that would be more than kMaxRingPoints, all are scaled down alike.
  RingPlanner(uint32_t virtual_nodes, HashFunction function)
      : virtual_nodes_(virtual_nodes), function_(function) {}

  HashFunction function() const { return function_; }

  // `owner`'s plan for `next`, whose plan() is still the last one's.
  std::shared_ptr<const FleetPlan> Plan(
      const void* owner, const FleetView& next, std::shared_ptr<const FleetPlan> inner) const;

  // The ring that was planned for this view; for a view without a plan, one built into *built (correct,
  // and slow).
  const HashRing& RingOf(const void* owner, const FleetView& fleet, std::optional<HashRing>* built) const;

 private:
  HashRing Build(const FleetView& fleet, const HashRing& last) const;

  uint32_t virtual_nodes_;
  HashFunction function_;
};

}  // namespace vllm_router
