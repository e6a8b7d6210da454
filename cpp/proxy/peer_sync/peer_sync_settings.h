// The settings of --peer-sync and those beside it, checked and made into what rounds need.
#pragma once

#include "base/status.h"
#include "proxy/peer_sync/peer_rounds.h"

namespace vllm_router {

class Router;
struct ServerOptions;

// REQUIRES of what follows: peer_sync is set.
// InvalidArgument: the router cannot keep what others decide.
Status CheckPeerSync(const Router& router);
// InvalidArgument and FailedPrecondition name the option that is wrong.
StatusOr<PeerConnection> OpenPeers(const ServerOptions& options, const Router& router);

}  // namespace vllm_router
