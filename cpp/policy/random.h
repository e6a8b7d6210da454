// random: one eligible worker at random, with probability weight / sum of weights. No memory, no
// pattern. Cost: O(1) with equal weights, O(log n) otherwise (O(n) on a retry). One draw per decision.
// Thread-safe.
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry RandomEntry();

}  // namespace vllm_router
