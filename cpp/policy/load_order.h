// The two questions about load that policies share (policies.md 1.4): who is least loaded, and who has room.
// Integers in thousandths throughout, no floating point. Pure functions over a view; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dice.h"
#include "worker/fleet_view.h"

namespace vllm_router {

// -1, 0 or 1 as a is less, equally or more loaded than b: open requests per weight, then outstanding tokens per weight.
int CompareLoad(const Worker& a, const Worker& b);

// Position of the least loaded eligible worker. Among equals one is drawn; the dice are thrown only then.
std::optional<uint32_t> LeastLoaded(const FleetView& fleet, Dice& dice);

// Room under factor f: open requests < ceil(f * (R + 1) * weight / S), R and S summed over the eligible. Somebody
// always has room when f >= 1.
class Room {
 public:
  Room(const FleetView& fleet, uint32_t factor_thousandths);
  int64_t Cap(const Worker& worker) const;
  bool Has(const Worker& worker) const { return worker.load.open_requests() < Cap(worker); }

 private:
  int64_t requests_;  // R
  uint64_t weight_;   // S
  uint32_t factor_;
};

}  // namespace vllm_router
