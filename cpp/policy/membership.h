// CarryOver: what is remembered of the workers of the last fleet, in the order of the next one.
//
//   last  a: 0, b: 1, c: 2      next fleet  c, d, a      ->      c: 2, d: new, a: 0      last is left with b: 1
//
// Cost: O(members * left over) comparisons; a change of the fleet, not a request. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "worker/fleet_view.h"

namespace vllm_router {

// `Known` has a member `worker`, the WorkerId. `join(member)` makes the one of a worker that was not there.
template <typename Known, typename Join>
std::vector<Known> CarryOver(std::vector<Known>* last, const FleetView& next, Join join) {
  std::vector<Known> known;
  known.reserve(next.members().size());
  for (const FleetView::Member& member : next.members()) {
    const auto found = std::find_if(
        last->begin(), last->end(), [&](const Known& one) { return one.worker == member.worker->id; });
    if (found == last->end()) {
      known.push_back(join(member));
    } else {
      known.push_back(*found);
      last->erase(found);
    }
  }
  return known;
}

}  // namespace vllm_router
