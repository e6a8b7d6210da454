// What /ha/status, /ha/health and /ha/workers say of the routers of this fleet (control/peer_sync_service.h). Any
// thread.
#pragma once

#include "proxy/api/admin_reply.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct PeerSyncReport;

AdminReply PeerStatus(const PeerSyncReport& report);
// 503 while other routers cannot be heard: for dashboards, not to take a router out of service.
AdminReply PeerHealth(const PeerSyncReport& report);
// Of each worker what this router has open there, what its peers have, and what the worker reported beyond both.
AdminReply PeerWorkers(const FleetView& fleet);

}  // namespace vllm_router
