// /admin/kv-events, /admin/kv-events/resync and /admin/kv-events/push: the sources of KV events
// (proxy/events/kv_event_service.h), and events that come as requests.
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> KvEventEndpoints();

}  // namespace vllm_router
