// /workers, /workers/{url}, /list_workers, /add_worker and /remove_worker: the fleet's workers, and the calls that add and
// remove them. A worker is added once it passes its health check.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> WorkerEndpoints();

}  // namespace vllm_router
