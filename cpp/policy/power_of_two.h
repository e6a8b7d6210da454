// power_of_two: the less loaded of two different random workers (the first drawn when equal). It has
// most of least_load's balance for reading two loads, and routers that do not know of each other do not
// all choose the same worker. Cost: O(1). Two draws per decision, none when only one worker is eligible.
// Thread-safe. Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (1996).
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry PowerOfTwoEntry();

}  // namespace vllm_router
