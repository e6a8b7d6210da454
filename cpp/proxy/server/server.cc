#include "proxy/server/server.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "http/via.h"
#include "proxy/admin/feature.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/control/cache_capacity_poller.h"
#include "proxy/control/drainer.h"
#include "proxy/control/fleet_manager.h"
#include "proxy/control/hang_watch.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/load_poller.h"
#include "proxy/control/model_service.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/scale_service.h"
#include "proxy/exchange/connection.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache_metrics.h"
#include "proxy/server/completed_options.h"
#include "proxy/server/features.h"
#include "proxy/server/option_checks.h"
#include "proxy/server/server_redis.h"
#include "proxy/server/server_signals.h"
#include "proxy/steps/steps.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "redis/redis_link.h"

namespace vllm_router {
namespace {

constexpr int64_t kLastLinesMs = 1000;

// Leaves `keys` null if there is no file.
Status OpenKeys(
    std::string_view name, std::string flag, const std::string& path, KeySet::Attributes attributes,
    std::unique_ptr<KeyFile>* keys) {
  if (path.empty()) return absl::OkStatus();
  StatusOr<std::unique_ptr<KeyFile>> opened = KeyFile::Open(name, std::move(flag), path, attributes);
  if (opened.ok()) *keys = *std::move(opened);
  return opened.status();
}

StatusOr<KeySets> OpenAllKeys(const ServerOptions& options) {
  KeySets keys{.admin_port = options.admin_port >= 0};
  ROUTER_RETURN_IF_ERROR(OpenKeys(
      "client_keys", "--client-api-key-file", options.client_api_key_file, KeySet::Attributes::kTaken,
      &keys.clients));
  ROUTER_RETURN_IF_ERROR(OpenKeys(
      "admin_keys", "--admin-api-key-file", options.admin_api_key_file, KeySet::Attributes::kRejected,
      &keys.admins));
  if (options.api_key_validation_urls.empty()) return keys;
  StatusOr<std::unique_ptr<KeyValidator>> validator = KeyValidator::Make(
      {.urls = options.api_key_validation_urls,
       .remember_ms = options.api_key_validation_cache_ms,
       .timeout_ms = options.api_key_validation_timeout_ms});
  if (!validator.ok()) return validator.status();
  keys.validator = *std::move(validator);
  return keys;
}

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::Start(
    std::shared_ptr<Router> router, const ServerOptions& options) {
  ROUTER_RETURN_IF_ERROR(CheckExclusion(options));
  ROUTER_RETURN_IF_ERROR(router->RequireAddresses());
  StatusOr<Opened> opened = OpenFiles(options, *router);
  if (!opened.ok()) return opened.status();
  std::unique_ptr<Server> server(new Server(std::move(router), options, *std::move(opened)));
  ROUTER_RETURN_IF_ERROR(server->AddServices());
  ROUTER_RETURN_IF_ERROR(server->Open());
  server->Run();
  return server;
}

StatusOr<Server::Opened> Server::OpenFiles(const ServerOptions& options, const Router& router) {
  StatusOr<KeySets> keys = OpenAllKeys(options);
  if (!keys.ok()) return keys.status();
  for (const Feature* const feature : Features()) {
    if (feature->check != nullptr) ROUTER_RETURN_IF_ERROR(feature->check(options, router));
  }
  StatusOr<std::unique_ptr<TlsFiles>> tls = TlsFiles::Open(options);
  if (!tls.ok()) return tls.status();
  StatusOr<std::unique_ptr<RedisPool>> redis = OpenRedis(options, router);
  if (!redis.ok()) return redis.status();
  Opened opened{.keys = *std::move(keys), .tls = *std::move(tls), .redis = *std::move(redis)};
  if (!options.record_log.empty()) {
    StatusOr<std::unique_ptr<TrafficLog>> log = TrafficLog::Open(
        {.path = options.record_log,
         .salt_path = options.record_log_salt_file,
         .block_size = router.options().policy.block_size});
    if (!log.ok()) return log.status();
    opened.traffic_log = *std::move(log);
  }
  return opened;
}

Server::Server(std::shared_ptr<Router> router, const ServerOptions& options, Opened opened)
    : options_(CompletedOptions(options, *router)),
      hop_name_(HopName(Random::EntropySeed())),
      router_(std::move(router)),
      opened_(std::move(opened)),
      limits_(options_),
      settings_(options_, *router_, limits_),
      configuration_(std::make_shared<Configuration>(static_cast<int64_t>(UnixSeconds()))),
      access_log_(options.access_log ? std::make_unique<LineWriter>(&LogAccess) : nullptr),
      threads_(options.threads, [this] { return MakeThread(); }),
      ports_(options_, threads_),
      reloads_(
          threads_.control().loop,
          {opened_.keys.clients.get(), opened_.keys.admins.get(), tls_files(), opened_.traffic_log.get()},
          opened_.traffic_log.get()),
      metrics_(
          router_, threads_.telemetries(), limits_, threads_.control().clock,
          ServerFiles{
              .records = opened_.traffic_log.get(), .tls = tls_files(), .reloadables = reloads_.files()}),
      services_(threads_.control()) {
  if (opened_.redis != nullptr) ConnectRedis();
  IoThread& control = threads_.control();
  if (opened_.keys.validator != nullptr)
    opened_.keys.validator->Attach(&control.http, &control.telemetry.key_validations);
  FollowSettings();
}

std::unique_ptr<IoThread> Server::MakeThread() {
  const Logs logs{.access = access_log_.get(), .records = opened_.traffic_log.get()};
  return std::make_unique<IoThread>(
      options_, settings_.snapshot(), hop_name_, limits_, router_, opened_.keys, *opened_.tls, logs);
}

void Server::FollowSettings() {
  settings_.OnPublished([this](const std::shared_ptr<const Settings>& published) {
    for (const std::unique_ptr<IoThread>& thread : threads_.all()) {
      thread->loop.Post([&thread = *thread, published] {
        thread.upstreams.SetLimits(published->upstream_pool_size, published->upstream_pool_idle_ms);
      });
    }
    threads_.control().loop.Post([this] { services_.FollowSettings(); });
  });
}

// Those of features use those before them; those behind them use both.
Status Server::AddServices() {
  health_ = services_.Add<HealthChecker>([this](const std::shared_ptr<const Worker>& worker) {
    threads_.OnConnections([worker](Connection& connection) { connection.WorkerDied(*worker); });
  });
  auto* const models = services_.Add<ModelService>();
  services_.Add<HangWatch>(HangWatchThreads(threads_));
  services_.Add<LoadPoller>();
  services_.Add<CacheCapacityPoller>();
  auto* const drainer = services_.Add<Drainer>(
      [this](const std::shared_ptr<const Worker>& worker) {
        threads_.OnConnections([worker](Connection& connection) { connection.CutFrom(*worker); });
      },
      [this](const std::shared_ptr<const Worker>& worker) {
        threads_.OnConnections([worker](Connection& connection) { connection.HandOverFrom(*worker); });
      });
  const ServerParts parts{options_, *router_, threads_.all(), threads_.telemetries(), limits_, services_};
  for (const Feature* const feature : Features()) {
    if (feature->add != nullptr) ROUTER_RETURN_IF_ERROR(feature->add(parts));
  }
  other_routers_ = services_.Find<OtherRouters>();
  services_.Add<FleetManager>(*health_, *drainer, *models);
  auto* const scale = services_.Add<ScaleService>(threads_.telemetries(), other_routers_);
  SendHealthSignals(threads_, *health_, *models, other_routers_);
  metrics_.Add([this](MetricsPage* page) { services_.WriteMetrics(page); });
  if (opened_.redis != nullptr) {
    metrics_.Add([this](MetricsPage* page) {
      WriteRedis(*opened_.redis, limits_.features.Find<RedisResponses>(), page);
    });
  }
  ServeEndpoints({
      .router = router_,
      .control = &threads_.control(),
      .metrics = &metrics_,
      .configuration = configuration_.get(),
      .drainer = drainer,
      .health = health_,
      .models = models,
      .scale = scale,
      .services = &services_,
  });
  return absl::OkStatus();
}

// A page whose readers are too slow is cut in the connections that write it.
void Server::ServeEndpoints(AdminServices services) {
  admin_ = std::make_unique<Admin>(std::move(services), Features(), [this](const PageRenderer::Page& page) {
    for (const std::unique_ptr<IoThread>& thread : threads_.all()) {
      thread->loop.Post([&thread = *thread, page] {
        for (Connection* connection : thread.connections) connection->CutReader(*page);
      });
    }
  });
  pipeline_.emplace(Steps(), *admin_);
  metrics_.Add([this](MetricsPage* page) { configuration_->WriteMetrics(page); });
  metrics_.Add([this](MetricsPage* page) { admin_->pages().WriteMetrics(page); });
}

// Gives each thread its connections to Redis; the control thread has one.
void Server::ConnectRedis() {
  RedisPool& redis = *opened_.redis;
  const size_t clients = threads_.data().size();
  for (const std::unique_ptr<IoThread>& thread : threads_.all()) {
    const bool control = thread.get() == &threads_.control();
    thread->redis = std::make_unique<RedisLink>(
        redis, thread->loop, thread->buffers, thread->resolver, control ? 1 : redis.ConnectionsOf(clients),
        control ? RedisLink::Role::kProbes : RedisLink::Role::kUses);
  }
  services_.Offer(&redis);
}

Status Server::Open() {
  ROUTER_RETURN_IF_ERROR(ports_.OpenPublic(*pipeline_));
  for (const Feature* const feature : Features()) {
    if (feature->open != nullptr) ROUTER_RETURN_IF_ERROR(feature->open(services_));
  }
  return ports_.OpenAside(*pipeline_);
}

void Server::Run() {
  shutdown_.emplace(ServerShutdown::Parts{
      .threads = threads_,
      .ports = ports_,
      .reloads = reloads_,
      .services = services_,
      .admin = *admin_,
      .configuration = *configuration_,
      .validator = opened_.keys.validator.get()});
  ports_.Start();
  threads_.control().loop.Post([this] {
    services_.Start();
    reloads_.Start();
  });
  for (const std::unique_ptr<IoThread>& thread : threads_.all()) {
    if (thread->redis != nullptr) thread->loop.Post([link = thread->redis.get()] { link->Start(); });
  }
  threads_.Run([this] {
    if (access_log_ != nullptr) access_log_->Close();
    if (opened_.traffic_log != nullptr) opened_.traffic_log->writer().Close();
    FlushLog(kLastLinesMs);
  });
}

Server::~Server() {
  if (threads_.running()) {
    Shutdown();
    Shutdown();
    Wait(-1);
  }
  threads_.Join();
  if (admin_ != nullptr) admin_->StopPages();
  configuration_->Detach();
  reloads_.Stop();
  ports_.Close();
}

bool Server::any_worker_responded() const { return !health_->checks() || health_->any_responded(); }

bool Server::leads_peers() const { return other_routers_ == nullptr || other_routers_->presence().leads; }

}  // namespace vllm_router
