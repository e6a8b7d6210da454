// power_of_two: two different workers by lot, the less loaded of them (the first drawn when equal). Most of
// least_load's balance from two looks, and routers that do not know of each other do not all run to the same worker.
// Cost: O(1). Two draws per decision, none when only one worker is eligible. Thread-safe.
// Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing" (1996).
#pragma once

#include <cstdint>
#include <memory>

#include "policy/policy.h"

namespace vllm_router {

std::unique_ptr<Policy> MakePowerOfTwo(uint64_t seed);

}  // namespace vllm_router
