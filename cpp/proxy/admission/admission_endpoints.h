// GET /admin/admission: the priority classes, what waits for which workers, and what tenants have left of their limits.
#pragma once

#include <span>

#include "proxy/admin/own_endpoint.h"

namespace vllm_router {

std::span<const OwnEndpoint> AdmissionEndpoints();

}  // namespace vllm_router
