// Server: the router with sockets. N threads serve clients. One more thread, the control thread, serves
// metrics, checks the workers' health and carries out shutdown.
//
//   StatusOr<std::unique_ptr<Server>> server = Server::Start(router, {.port = 0});
//   … (*server)->port() …
//   (*server)->Shutdown();            // SIGTERM: settle, stop accepting, finish what is in flight, then cut
//   int cut = (*server)->Wait();      // exchanges that had to be cut
//
// Start() returns when every port is open. All methods from any thread. The destructor cuts what is
// left.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "net/listener.h"
#include "proxy/admin/admin.h"
#include "proxy/admin/configuration.h"
#include "proxy/admin/metrics.h"
#include "proxy/api/server_options.h"
#include "proxy/client/tls_files.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/services.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/step.h"
#include "proxy/telemetry/traffic_log.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "redis/redis_pool.h"
#include "routing/router.h"
#include "worker/declared_fleet.h"
#include "worker/worker_declaration.h"

namespace vllm_router {

class ModelService;
class OtherRouters;

class Server {
 public:
  static StatusOr<std::unique_ptr<Server>> Start(
      std::shared_ptr<Router> router, const ServerOptions& options);
  ~Server();

  uint16_t port() const { return port_; }
  std::optional<uint16_t> metrics_port() const;
  std::optional<uint16_t> admin_port() const;
  const ServerOptions& options() const { return options_; }
  const Services& services() const { return *services_; }
  // Whether a worker has passed a health check since the start; true if health checks are off.
  bool any_worker_responded() const;
  std::string MetricsText() const { return metrics_->Text(); }

  // The settings of requests that begin now; and other ones for those that begin from now on. A change of
  // what settings() returned is lost if another is published meanwhile.
  std::shared_ptr<const Settings> settings() const { return settings_.Load(); }
  void Publish(Settings settings);

  // What may change at once while the server runs.
  struct Change {
    Settings settings;
    GuardOptions guard;
    std::optional<std::vector<WorkerDeclaration>> workers;  // all of the settings; null: as they are
  };
  // All of it or, with an error, nothing. `dry_run`: only whether there would be an error.
  StatusOr<Difference> Apply(Change change, bool dry_run);

  // Reads the key files again, which also happens when they change, and the TLS files, and reopens the
  // logs. The result is logged. Returns when that is done.
  void Reload();
  // Opens the files of the log and of the traffic log again, which may have been moved.
  void ReopenLogs();
  // For the program that reads settings again.
  const std::shared_ptr<Configuration>& configuration() const { return configuration_; }
  bool has_something_to_reload() const { return !reloadables_.empty(); }

  // Whether this router does what one of those that --peer-sync connects has to do: the first of them, or it is
  // alone. False while the others cannot be heard.
  bool leads_peers() const;
  // What each host has to do for all routers, and how many tokens its cache saved, as its responses to this router
  // told so far.
  struct HostUse {
    std::string url;
    int64_t requests = 0;
    uint64_t cached_tokens = 0;
  };
  std::vector<HostUse> HostUses() const;

  // Begins a graceful stop; a second call cuts what is still in flight.
  void Shutdown();
  // True when everything has ended; false after `timeout_ms` (negative: no limit).
  bool Wait(int64_t timeout_ms);
  // Exchanges that were cut at the end of the grace period. REQUIRES: Wait() returned true.
  uint64_t exchanges_cut() const { return cut_; }

 private:
  Server(
      std::shared_ptr<Router> router, const ServerOptions& options, KeySets keys,
      std::unique_ptr<TlsFiles> tls, std::unique_ptr<RedisPool> redis,
      std::unique_ptr<TrafficLog> record_log);
  Status AddServices();
  void FollowHealthSignals(ModelService* models);
  void ConnectRedis();
  void ServeEndpoints(AdminServices services);
  void WatchHangs();
  void ExpectModels(const Settings& settings);
  Status Open();
  Status OpenAside(
      const std::string& host, int32_t port, ListenerKind listener_kind, std::unique_ptr<Listener>* opened);
  void Run();
  static void OnReloadTimer(void* server);
  Task<void> ShutDown();
  bool YieldPort(size_t ours);
  Task<void> WaitUntil(std::function<bool()> done, int64_t nanos, bool may_hurry);
  void ForEachDataThread(const std::function<void(IoThread&, Listener&)>& action);  // on each data thread
  int64_t OpenConnections() const;                                                  // of the data threads
  bool MakeRoom(IoThread& thread, ListenerKind listener_kind);

  const ServerOptions options_;  // as at the start
  Snapshot<Settings> settings_;
  const std::string hop_name_;  // this server's name in Via
  const std::shared_ptr<Router> router_;
  const KeySets keys_;
  const std::unique_ptr<TlsFiles> tls_;
  const std::unique_ptr<RedisPool> redis_;  // null: none
  ServerLimits limits_;
  const std::shared_ptr<Configuration> configuration_;
  std::unique_ptr<Admin> admin_;
  std::optional<Pipeline> pipeline_;                   // of the admin's endpoints
  const std::unique_ptr<TrafficLog> record_log_;       // null: disabled
  std::unique_ptr<LineWriter> access_log_;             // likewise
  std::vector<std::unique_ptr<IoThread>> io_threads_;  // the last one is the control thread
  std::vector<const Telemetry*> telemetries_;          // of all threads
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::unique_ptr<Listener> admin_listener_;
  std::unique_ptr<Listener> metrics_listener_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Services> services_;
  HealthChecker* health_ = nullptr;        // one of them
  OtherRouters* other_routers_ = nullptr;  // likewise; null: nothing is shared with other routers
  Mutex apply_mutex_;                      // held during Apply()
  Mutex reload_mutex_;                     // guards the reloading, and is held while files are read
  Mutex reopen_mutex_;                     // the same of logs, whose disk no other thread shall wait for
  std::vector<Reloadable*> reloadables_;
  Timer reload_timer_;  // of the control thread
  std::vector<std::thread> threads_;
  uint16_t port_ = 0;

  std::atomic<size_t> running_{0};  // threads
  std::atomic<bool> shutting_down_{false};
  std::atomic<bool> cut_now_{false};
  std::atomic<uint64_t> cut_{0};
  Mutex mutex_;
  std::condition_variable ended_signal_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace vllm_router
