// least_load: the worker with the lowest load, by the order of load_order.h. Equals are chosen at
// random, so that in an idle fleet the first worker does not get everything. Cost: O(n). One draw per
// decision, only among equals. Thread-safe; with T threads deciding at once, up to T - 1 further
// requests may have been sent to the chosen worker.
#pragma once

#include <cstdint>
#include <memory>

#include "policy/load_order.h"
#include "policy/policy.h"

namespace vllm_router {

std::unique_ptr<Policy> MakeLeastLoad(uint64_t seed, LeastLoadMetric metric = LeastLoadMetric::kRequests);

}  // namespace vllm_router
