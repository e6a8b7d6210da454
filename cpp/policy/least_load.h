// least_load: the worker with the lowest load, by the order of load_order.h. Equals are chosen at
// random, so that in an idle fleet the first worker does not get everything. Cost: O(n). One draw per
// decision, only among equals. Thread-safe; with T threads deciding at once, up to T - 1 further
// requests may have been sent to the chosen worker.
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry LeastLoadEntry();

}  // namespace vllm_router
