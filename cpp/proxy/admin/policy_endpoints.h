// /admin/prefix-routing/stats, /admin/index/* and /finish_session: what policies remember of requests.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> PolicyEndpoints();

}  // namespace vllm_router
