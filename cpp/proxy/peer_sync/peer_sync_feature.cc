#include "proxy/peer_sync/peer_sync_feature.h"

#include <memory>
#include <string>
#include <utility>

#include "base/whole_file.h"
#include "policy/kv_index.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/client/redis_settings.h"
#include "proxy/control/drainer.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/load_poller.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/services.h"
#include "proxy/peer_sync/peer_endpoints.h"
#include "proxy/peer_sync/peer_sync_service.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kTimeoutMs = 1000;
constexpr size_t kMinSecretBytes = 16;
constexpr std::string_view kWithout = "this router decides by what it knows itself";

// Empty: what routers tell is not sealed.
StatusOr<std::string> ReadSecret(const ServerOptions& options) {
  if (options.peer_sync_secret_file.empty()) return std::string();
  return ReadSecretFile("peer_sync_secret_file", options.peer_sync_secret_file, kMinSecretBytes);
}

StatusOr<std::unique_ptr<RedisPool>> OpenRedis(const ServerOptions& options) {
  return OpenRedisPool(
      {.url_option = "peer_sync",
       .others_option = "peer_sync",
       .url = options.peer_sync,
       .password_file = options.peer_sync_password_file,
       .ca_file = options.peer_sync_ca_file,
       .cert_path = options.peer_sync_cert_path,
       .key_path = options.peer_sync_key_path},
      {.connect_timeout_ms = kTimeoutMs,
       .command_timeout_ms = kTimeoutMs,
       .connections = 1,
       .failures = 1,
       .max_reply_bytes = PeerStreams::kMaxReplyBytes,
       .probe_key = PeerStreams::ProbeKey(options.peer_sync_fleet),
       .longest_probe_delay_ms = kTimeoutMs,
       .without = kWithout});
}

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

Status CheckPeerSync(const Router& router) {
  const KvIndex* const index = router.pool().index();
  if (index == nullptr || index->coarse() != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "peer_sync is set, and the router was made without peer_sync_stride_tokens, so that it cannot keep "
      "what other routers decide; make it by Router(peer_sync_stride_tokens=256)");
}

StatusOr<PeerConnection> OpenPeers(const ServerOptions& options, const Router& router) {
  StatusOr<std::string> secret = ReadSecret(options);
  if (!secret.ok()) return secret.status();
  StatusOr<std::unique_ptr<RedisPool>> redis = OpenRedis(options);
  if (!redis.ok()) return redis.status();
  StatusOr<PeerClaim> claim = PeerClaim::Take(router);
  if (!claim.ok()) return claim.status();
  return PeerConnection{
      .options =
          {.fleet = options.peer_sync_fleet,
           .router_name = options.router_name,
           .secret = *std::move(secret),
           .interval_ms = options.peer_sync_interval_ms,
           .max_mbps = options.peer_sync_max_mbps},
      .pool = *std::move(redis),
      .claim = *std::move(claim)};
}

extern constexpr Feature kPeerSyncFeature = {
    .name = "peer_sync", .check = &Check, .add = &Add, .endpoints = kSubjects};

}  // namespace vllm_router
