// The router's own endpoints.
#pragma once

#include <cstdint>

#include "proxy/api/routes.h"

namespace vllm_router {

// The maximum length of a request's body. REQUIRES: RouteOf(route).own.
uint64_t MaxLocalBodyBytes(Route route);

}  // namespace vllm_router
