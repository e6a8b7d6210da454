// round_robin: equal turns in fleet order; with unequal weights, turns in proportion to them, spread out
// smoothly.
//
//   weights 5, 1, 1   ->   w1 w1 w2 w1 w3 w1 w1 | w1 w1 w2 …
//
// Cost: one relaxed fetch_add. With unequal weights a schedule of at most kMaxSlots slots is made per
// change of the fleet, in O(slots * n). Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vllm_router {

struct PolicyEntry;

PolicyEntry RoundRobinEntry();

// The schedule as indices into `weights`: smooth weighted round robin (add each weight to its worker's
// credit, the largest credit takes the turn, the first on ties, and pays the sum). Exact when the
// weights, divided by their common divisor, sum to kMaxSlots or less; else shares are rounded, and
// every worker keeps at least one turn. That needs more than kMaxSlots slots only above kMaxSlots / 2
// workers: then at most two per worker. REQUIRES: !weights.empty().
std::vector<uint32_t> SmoothSchedule(std::span<const uint32_t> weights);
inline constexpr uint64_t kMaxSlots = 1024;

}  // namespace vllm_router
