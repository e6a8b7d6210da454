// /admin/response-cache/stats and /admin/response-cache/invalidate, whose replies are in cache_report.h.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> CacheEndpoints();

}  // namespace vllm_router
