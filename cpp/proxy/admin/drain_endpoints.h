// /admin/drain and /admin/drain/status: what the Drainer (proxy/control/drainer.h) is told, and what it reports.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> DrainEndpoints();

}  // namespace vllm_router
