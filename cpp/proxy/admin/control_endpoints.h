// /admin/discovery*, /ha/*, /scale, /admin/config, /admin/reload and /metrics: reports and calls of the control plane.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> ControlEndpoints();

}  // namespace vllm_router
