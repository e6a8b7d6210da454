// The two questions about load that policies share: who is least loaded, and who has room (docs/reference/policies.md,
// "Least-loaded order" and "Room"). Integers throughout (weights are thousandths), no floating point. Pure functions over a view; any thread.
//
//   requests order   r/s, then (q+e)/s      r open requests, q+e outstanding tokens, s weight
//   tokens order     (q+e)/s, then r/s
//
// Cost: O(eligible) for LeastLoaded and for the construction of a Room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "index/load_bound.h"
#include "worker/fleet_view.h"

namespace vllm_router {

enum class LeastLoadMetric : uint8_t { kRequests, kTokens };  // what is compared first; the other breaks ties

// -1, 0 or 1 as a is less, equally or more loaded than b.
int CompareLoad(const Worker& a, const Worker& b, LeastLoadMetric metric = LeastLoadMetric::kRequests);

// Position of the least loaded eligible worker. Among equals one is drawn; the random are thrown only then.
std::optional<uint32_t> LeastLoaded(
    const FleetView& fleet, Random& random, LeastLoadMetric metric = LeastLoadMetric::kRequests);

// The same among some of the eligible positions, not empty and in ascending order.
uint32_t LeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, Random& random,
    LeastLoadMetric metric = LeastLoadMetric::kRequests);

// All of them that nobody precedes, ascending.
void FindLeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, std::vector<uint32_t>* equals);

// Room under factor f: open requests < ceil(f * (R + 1) * weight / S), R and S summed over the eligible. The caps sum
// to more than R, so while loads stand still somebody has room. REQUIRES: somebody is eligible.
class Room {
 public:
  Room(const FleetView& fleet, uint32_t factor_thousandths);
  int64_t Cap(const Worker& worker) const { return bound_.Cap(worker.load_weight()); }
  bool Has(const Worker& worker) const { return worker.load.requests() < Cap(worker); }

 private:
  LoadBound bound_;
};

}  // namespace vllm_router
