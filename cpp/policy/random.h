// random: one eligible worker at random, with probability weight / sum of weights. No memory, no
// pattern. Cost: O(1) with equal weights, O(log n) otherwise (O(n) on a retry). One draw per decision.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "policy/policy.h"

namespace vllm_router {

std::unique_ptr<Policy> MakeRandom(uint64_t seed);

}  // namespace vllm_router
