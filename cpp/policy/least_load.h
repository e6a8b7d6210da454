// least_load: the worker with the least work in hand, by the order of load_order.h; equals are drawn by lot, so an
// idle fleet has no first worker that gets everything.
// Cost: O(n). One draw per decision, only among equals. Thread-safe; with T threads deciding at once the chosen worker
// may have been passed by up to T - 1 requests.
#pragma once

#include <cstdint>
#include <memory>

#include "policy/load_order.h"
#include "policy/policy.h"

namespace vllm_router {

std::unique_ptr<Policy> MakeLeastLoad(uint64_t seed, LeastLoadMetric metric = LeastLoadMetric::kRequests);

}  // namespace vllm_router
