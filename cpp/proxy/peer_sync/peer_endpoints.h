// /ha/status, /ha/health and /ha/workers: the routers of this fleet (peer_sync_service.h).
#pragma once

#include <span>

namespace vllm_router {

struct OwnEndpoint;

std::span<const OwnEndpoint> PeerEndpoints();

}  // namespace vllm_router
