// /, /health, /liveness, /readiness and OPTIONS *: whether there is a router, and whether it can serve.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> HealthEndpoints();

}  // namespace vllm_router
