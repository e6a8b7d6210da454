#include "proxy/peer_sync/peer_claim.h"

#include <set>

#include "base/mutex.h"

namespace vllm_router {
namespace {

struct Claims {
  Mutex mutex;  // leaf
  std::set<const Router*> routers ABSL_GUARDED_BY(mutex);
};

Claims& AllClaims() {
  static auto* const claims = new Claims;  // outlives threads that end as the process does
  return *claims;
}

}  // namespace

StatusOr<PeerClaim> PeerClaim::Take(const Router& router) {
  Claims& claims = AllClaims();
  const MutexLock lock(claims.mutex);
  if (!claims.routers.insert(&router).second) {
    return absl::InvalidArgumentError(
        "peer_sync is set for a router that shares with others already, by join_peers() or a server; a "
        "router does so once: stop that first, or leave peer_sync out here");
  }
  return PeerClaim(&router);
}

void PeerClaim::Release::operator()(const Router* router) const {
  Claims& claims = AllClaims();
  const MutexLock lock(claims.mutex);
  claims.routers.erase(router);
}

}  // namespace vllm_router
