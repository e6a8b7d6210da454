// /admin/kv-index/*: the index of prefixes that sources report (proxy/events/prefix_event_service.h).
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> PrefixIndexEndpoints();

}  // namespace vllm_router
