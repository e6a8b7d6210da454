// The other routers of a fleet: what this one tells them and hears of them through a Redis (--peer-sync), and the settings
// of that, for a router that is not served (joined_peers.h), too.
#pragma once

#include "base/status.h"
#include "proxy/peer_sync/peer_rounds.h"

namespace vllm_router {

class Router;
struct Feature;
struct ServerOptions;

extern const Feature kPeerSyncFeature;

// InvalidArgument: the router cannot keep what others decide.
Status CheckPeerSync(const Router& router);
// InvalidArgument and FailedPrecondition name the option that is wrong. REQUIRES: peer_sync is set.
StatusOr<PeerConnection> OpenPeers(const ServerOptions& options, const Router& router);

}  // namespace vllm_router
