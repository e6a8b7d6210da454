// /ha/status, /ha/health and /ha/workers: the routers of this fleet (peer_sync_service.h).
#pragma once

#include <span>
#include <string>

namespace vllm_router {

struct OwnEndpoint;
struct PeerSyncReport;

std::span<const OwnEndpoint> PeerEndpoints();

// The body of /ha/status, for a router that is not served (joined_peers.h), too.
std::string PeerStatusText(const PeerSyncReport& report);

}  // namespace vllm_router
