// Server: the router with sockets. N threads serve clients. One more thread, the control thread, serves
// metrics, checks the workers' health and carries out shutdown.
//
//   StatusOr<std::unique_ptr<Server>> server = Server::Start(router, {.port = 0});
//   … (*server)->port() …
//   (*server)->Shutdown();            // SIGTERM: settle, stop accepting, finish what is in flight, then cut
//   int cut = (*server)->Wait();      // exchanges that had to be cut
//
//   live_settings     settings that change while it runs     server_threads    its threads
//   server_reloads    files that are read again              server_ports      where it listens
//   server_shutdown   how it ends                            features          what it does beside forwarding requests
//
// Start() returns when every port is open. All methods from any thread. The destructor cuts what is
// left.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "proxy/admin/admin.h"
#include "proxy/admin/configuration.h"
#include "proxy/admin/metrics.h"
#include "proxy/api/server_options.h"
#include "proxy/client/tls_files.h"
#include "proxy/control/services.h"
#include "proxy/exchange/step.h"
#include "proxy/security/authorizer.h"
#include "proxy/server/host_uses.h"
#include "proxy/server/live_settings.h"
#include "proxy/server/server_ports.h"
#include "proxy/server/server_reloads.h"
#include "proxy/server/server_shutdown.h"
#include "proxy/server/server_threads.h"
#include "proxy/telemetry/traffic_log.h"
#include "proxy/thread/server_limits.h"
#include "redis/redis_pool.h"
#include "routing/router.h"

namespace vllm_router {

class HealthChecker;
class ModelService;
class OtherRouters;

class Server {
 public:
  static StatusOr<std::unique_ptr<Server>> Start(
      std::shared_ptr<Router> router, const ServerOptions& options);
  ~Server();

  const ServerOptions& options() const { return options_; }  // as at the start
  const ServerPorts& ports() const { return ports_; }
  const Services& services() const { return services_; }
  LiveSettings& settings() { return settings_; }
  ServerReloads& reloads() { return reloads_; }
  // For the program that reads settings again.
  const std::shared_ptr<Configuration>& configuration() const { return configuration_; }

  // Whether a worker has passed a health check since the start; true if health checks are off.
  bool any_worker_responded() const;
  std::string MetricsText() const { return metrics_.Text(); }
  // Whether this router does what one of those that --peer-sync connects has to do: the first of them, or it is
  // alone. False while the others cannot be heard.
  bool leads_peers() const;
  std::vector<HostUse> host_uses() const { return HostUses(*router_->fleet(), threads_.telemetries()); }

  // Begins a graceful stop; a second call cuts what is still in flight.
  void Shutdown() { shutdown_->Begin(); }
  // True when everything has ended; false after `timeout_ms` (negative: no limit).
  bool Wait(int64_t timeout_ms) { return threads_.Wait(timeout_ms); }
  // Exchanges that were cut at the end of the grace period. REQUIRES: Wait() returned true.
  uint64_t exchanges_cut() const { return shutdown_->cut(); }

 private:
  // What was opened for a server before there is one.
  struct Opened {
    KeySets keys;
    std::unique_ptr<TlsFiles> tls;
    std::unique_ptr<RedisPool> redis;         // null: none
    std::unique_ptr<TrafficLog> traffic_log;  // null: disabled
  };

  static StatusOr<Opened> OpenFiles(const ServerOptions& options, const Router& router);
  Server(std::shared_ptr<Router> router, const ServerOptions& options, Opened opened);
  std::unique_ptr<IoThread> MakeThread();
  TlsFiles* tls_files() const { return opened_.tls->any() ? opened_.tls.get() : nullptr; }
  void FollowSettings();
  Status AddServices();
  void ConnectRedis();
  void ServeEndpoints(AdminServices services);
  Status Open();
  void Run();

  const ServerOptions options_;  // as at the start
  const std::string hop_name_;   // this server's name in Via
  const std::shared_ptr<Router> router_;
  const Opened opened_;
  ServerLimits limits_;
  LiveSettings settings_;
  const std::shared_ptr<Configuration> configuration_;
  std::unique_ptr<Admin> admin_;
  std::optional<Pipeline> pipeline_;        // of the admin's endpoints
  std::unique_ptr<LineWriter> access_log_;  // null: disabled
  ServerThreads threads_;
  ServerPorts ports_;
  ServerReloads reloads_;
  Metrics metrics_;
  Services services_;
  HealthChecker* health_ = nullptr;         // one of them
  OtherRouters* other_routers_ = nullptr;   // likewise; null: nothing is shared with other routers
  std::optional<ServerShutdown> shutdown_;  // once the admin is there
};

}  // namespace vllm_router
