// The other routers of a fleet: what this one tells them and hears of them through a Redis (--peer-sync).
#pragma once

namespace vllm_router {

struct Feature;

extern const Feature kPeerSyncFeature;

}  // namespace vllm_router
