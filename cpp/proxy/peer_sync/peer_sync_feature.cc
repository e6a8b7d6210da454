#include "proxy/peer_sync/peer_sync_feature.h"

#include <utility>

#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/drainer.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/load_poller.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/services.h"
#include "proxy/peer_sync/peer_endpoints.h"
#include "proxy/peer_sync/peer_sync_service.h"
#include "proxy/peer_sync/peer_sync_settings.h"

namespace vllm_router {
namespace {

Status Check(const ServerOptions& options, const Router& router) {
  return options.peer_sync.empty() ? absl::OkStatus() : CheckPeerSync(router);
}

Status Add(const ServerParts& server) {
  const ServerOptions& options = server.options;
  if (options.peer_sync.empty()) return absl::OkStatus();
  StatusOr<PeerConnection> connection = OpenPeers(options, server.router);
  if (!connection.ok()) return connection.status();
  auto* const peers = server.services.Add<PeerSyncService>(
      PeerSyncServiceOptions{
          .shares_rate_limit = options.rate_limit_scope == RateLimitScope::kFleet,
          .shares_admin = options.peer_sync_admin},
      *std::move(connection), *server.services.Find<HealthChecker>(), *server.services.Find<LoadPoller>(),
      *server.services.Find<Drainer>());
  server.services.Offer<OtherRouters>(peers);
  return absl::OkStatus();
}

constexpr EndpointTable kSubjects[] = {&PeerEndpoints};

}  // namespace

extern constexpr Feature kPeerSyncFeature = {
    .name = "peer_sync", .check = &Check, .add = &Add, .endpoints = kSubjects};

}  // namespace vllm_router
