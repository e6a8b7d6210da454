// GET /admin/admission: the priority classes, and what waits for which workers.
#pragma once

#include <span>

#include "proxy/admin/own_endpoint.h"

namespace vllm_router {

std::span<const OwnEndpoint> AdmissionEndpoints();

}  // namespace vllm_router
