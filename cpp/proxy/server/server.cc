#include "proxy/server/server.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/via.h"
#include "proxy/admin/feature.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/control/cache_capacity_poller.h"
#include "proxy/control/drainer.h"
#include "proxy/control/fleet_manager.h"
#include "proxy/control/hang_watch.h"
#include "proxy/control/load_poller.h"
#include "proxy/control/model_service.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/scale_service.h"
#include "proxy/control/services.h"
#include "proxy/exchange/exchange.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache_metrics.h"
#include "proxy/server/completed_options.h"
#include "proxy/server/features.h"
#include "proxy/server/option_checks.h"
#include "proxy/server/server_redis.h"
#include "proxy/steps/steps.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "redis/redis_link.h"

namespace vllm_router {
namespace {

constexpr int64_t kReloadPollMs = 1000;
constexpr int64_t kLastLinesMs = 1000;
constexpr size_t kMaxBodiesRead = 16;  // of each thread, for one look at a silent worker

// Leaves `keys` null if there is no file.
Status OpenKeys(
    std::string_view name, std::string flag, const std::string& path, KeySet::Attributes attributes,
    std::unique_ptr<KeyFile>* keys) {
  if (path.empty()) return absl::OkStatus();
  StatusOr<std::unique_ptr<KeyFile>> opened = KeyFile::Open(name, std::move(flag), path, attributes);
  if (opened.ok()) *keys = *std::move(opened);
  return opened.status();
}

}  // namespace

StatusOr<std::unique_ptr<Server>> Server::Start(
    std::shared_ptr<Router> router, const ServerOptions& options) {
  ROUTER_RETURN_IF_ERROR(CheckExclusion(options));
  ROUTER_RETURN_IF_ERROR(router->RequireAddresses());
  KeySets keys{.admin_port = options.admin_port >= 0};
  ROUTER_RETURN_IF_ERROR(OpenKeys(
      "client_keys", "--client-api-key-file", options.client_api_key_file, KeySet::Attributes::kTaken,
      &keys.clients));
  ROUTER_RETURN_IF_ERROR(OpenKeys(
      "admin_keys", "--admin-api-key-file", options.admin_api_key_file, KeySet::Attributes::kRejected,
      &keys.admins));
  if (!options.api_key_validation_urls.empty()) {
    StatusOr<std::unique_ptr<KeyValidator>> validator = KeyValidator::Make(
        {.urls = options.api_key_validation_urls,
         .remember_ms = options.api_key_validation_cache_ms,
         .timeout_ms = options.api_key_validation_timeout_ms});
    if (!validator.ok()) return validator.status();
    keys.validator = *std::move(validator);
  }
  for (const Feature* const feature : Features()) {
    if (feature->check != nullptr) ROUTER_RETURN_IF_ERROR(feature->check(options, *router));
  }
  StatusOr<std::unique_ptr<TlsFiles>> tls = TlsFiles::Open(options);
  if (!tls.ok()) return tls.status();
  StatusOr<std::unique_ptr<RedisPool>> redis = OpenRedis(options, *router);
  if (!redis.ok()) return redis.status();
  std::unique_ptr<TrafficLog> record_log;
  if (!options.record_log.empty()) {
    StatusOr<std::unique_ptr<TrafficLog>> opened = TrafficLog::Open(
        {.path = options.record_log,
         .salt_path = options.record_log_salt_file,
         .block_size = router->options().policy.block_size});
    if (!opened.ok()) return opened.status();
    record_log = *std::move(opened);
  }
  std::unique_ptr<Server> server(new Server(
      std::move(router), options, std::move(keys), *std::move(tls), *std::move(redis),
      std::move(record_log)));
  ROUTER_RETURN_IF_ERROR(server->AddServices());
  ROUTER_RETURN_IF_ERROR(server->Open());
  server->Run();
  return server;
}

Server::Server(
    std::shared_ptr<Router> router, const ServerOptions& options, KeySets keys, std::unique_ptr<TlsFiles> tls,
    std::unique_ptr<RedisPool> redis, std::unique_ptr<TrafficLog> record_log)
    : options_(CompletedOptions(options, *router)),
      settings_(std::make_shared<const Settings>(options_)),
      hop_name_(HopName(Random::EntropySeed())),
      router_(std::move(router)),
      keys_(std::move(keys)),
      tls_(std::move(tls)),
      redis_(std::move(redis)),
      limits_(options_),
      configuration_(std::make_shared<Configuration>(static_cast<int64_t>(UnixSeconds()))),
      record_log_(std::move(record_log)) {
  if (options.access_log) access_log_ = std::make_unique<LineWriter>(&LogAccess);
  const Logs logs{.access = access_log_.get(), .records = record_log_.get()};
  for (uint32_t i = 0; i <= std::max(1u, options.threads); ++i) {
    io_threads_.push_back(
        std::make_unique<IoThread>(options_, settings_, hop_name_, limits_, router_, keys_, *tls_, logs));
    telemetries_.push_back(&io_threads_.back()->telemetry);
  }
  services_ = std::make_unique<Services>(*io_threads_.back());
  if (redis_ != nullptr) ConnectRedis();
  if (keys_.validator != nullptr)
    keys_.validator->Attach(&io_threads_.back()->http, &io_threads_.back()->telemetry);
  TlsFiles* const tls_files = tls_->any() ? tls_.get() : nullptr;
  for (Reloadable* const file : std::initializer_list<Reloadable*>{
           keys_.clients.get(), keys_.admins.get(), tls_files, record_log_.get()}) {
    if (file != nullptr) reloadables_.push_back(file);
  }
  metrics_ = std::make_unique<Metrics>(
      router_, telemetries_, limits_, io_threads_.back()->clock,
      ServerFiles{.records = record_log_.get(), .tls = tls_files, .reloadables = reloadables_});
  ExpectModels(options_);
}

// Those of features use those before them; those behind them use both.
Status Server::AddServices() {
  health_ = services_->Add<HealthChecker>([this](const std::shared_ptr<const Worker>& worker) {
    ForEachDataThread([worker](IoThread& thread, Listener&) {
      for (Connection* connection : thread.connections) connection->WorkerDied(*worker);
    });
  });
  auto* const models = services_->Add<ModelService>();
  WatchHangs();
  services_->Add<LoadPoller>();
  services_->Add<CacheCapacityPoller>();
  auto* const drainer = services_->Add<Drainer>(
      [this](const std::shared_ptr<const Worker>& worker) {
        ForEachDataThread([worker](IoThread& thread, Listener&) {
          for (Connection* connection : thread.connections) connection->CutFrom(*worker);
        });
      },
      [this](const std::shared_ptr<const Worker>& worker) {
        ForEachDataThread([worker](IoThread& thread, Listener&) {
          for (Connection* connection : thread.connections) connection->HandOverFrom(*worker);
        });
      });
  const ServerParts parts{options_, *router_, io_threads_, telemetries_, limits_, *services_};
  for (const Feature* const feature : Features()) {
    if (feature->add != nullptr) ROUTER_RETURN_IF_ERROR(feature->add(parts));
  }
  other_routers_ = services_->Find<OtherRouters>();
  services_->Add<FleetManager>(*health_, *drainer, *models);
  auto* const scale = services_->Add<ScaleService>(telemetries_, other_routers_);
  FollowHealthSignals(models);
  metrics_->Add([this](MetricsPage* page) { services_->WriteMetrics(page); });
  if (redis_ != nullptr) {
    metrics_->Add(
        [this](MetricsPage* page) { WriteRedis(*redis_, limits_.features.Find<RedisResponses>(), page); });
  }
  ServeEndpoints({
      .router = router_,
      .control = io_threads_.back().get(),
      .metrics = metrics_.get(),
      .configuration = configuration_.get(),
      .drainer = drainer,
      .health = health_,
      .models = models,
      .scale = scale,
      .services = services_.get(),
  });
  return absl::OkStatus();
}

// What requests and health checks find out about workers.
void Server::FollowHealthSignals(ModelService* models) {
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    thread->health = {
        .suspect =
            [this](const std::shared_ptr<Worker>& worker) {
              if (other_routers_ != nullptr && !worker->suspected.load(std::memory_order_relaxed))
                other_routers_->Suspect(worker);
              health_->ReportPassiveFailure(worker);
            },
        .recovered = [this](const std::shared_ptr<Worker>& worker) { health_->Recovered(worker); },
        .lacks_model = [models](const std::shared_ptr<Worker>& worker) { models->ReportMissing(worker); },
        .models_changed = [models] { models->PollAll(); },
        .cache_emptied =
            [this](const std::shared_ptr<Worker>& worker) {
              if (other_routers_ != nullptr) other_routers_->CacheEmptied(worker);
            }};
  }
}

// A page whose readers are too slow is cut in the connections that write it.
void Server::ServeEndpoints(AdminServices services) {
  admin_ = std::make_unique<Admin>(std::move(services), Features(), [this](const PageRenderer::Page& page) {
    for (const std::unique_ptr<IoThread>& thread : io_threads_) {
      thread->loop.Post([&thread = *thread, page] {
        for (Connection* connection : thread.connections) connection->CutReader(*page);
      });
    }
  });
  pipeline_.emplace(Steps(), *admin_);
  metrics_->Add([this](MetricsPage* page) { configuration_->WriteMetrics(page); });
  metrics_->Add([this](MetricsPage* page) { admin_->pages().WriteMetrics(page); });
}

// Gives each thread its connections to Redis; the control thread has one.
void Server::ConnectRedis() {
  const size_t clients = io_threads_.size() - 1;
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    const bool control = thread == io_threads_.back();
    thread->redis = std::make_unique<RedisLink>(
        *redis_, thread->loop, thread->buffers, thread->resolver,
        control ? 1 : redis_->ConnectionsOf(clients),
        control ? RedisLink::Role::kProbes : RedisLink::Role::kUses);
  }
  services_->Offer(redis_.get());
}

Status Server::Open() {
  port_ = options_.port;
  for (size_t i = 0; i + 1 < io_threads_.size(); ++i) {
    IoThread& thread = *io_threads_[i];
    StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(
        thread.loop, {.host = options_.host, .port = port_, .join = i > 0 || options_.reuse_port},
        [this, &thread](Socket socket, Endpoint peer) {
          if (!MakeRoom(thread, ListenerKind::kPublic)) return;
          Connection::Serve(thread, std::move(socket), std::move(peer), ListenerKind::kPublic, *pipeline_);
        });
    if (!listener.ok()) return listener.status();
    listeners_.push_back(*std::move(listener));
    port_ = listeners_.back()->port();
  }
  for (const Feature* const feature : Features()) {
    if (feature->open != nullptr) ROUTER_RETURN_IF_ERROR(feature->open(*services_));
  }
  ROUTER_RETURN_IF_ERROR(
      OpenAside(options_.admin_host, options_.admin_port, ListenerKind::kAdmin, &admin_listener_));
  return OpenAside(
      options_.prometheus_host, options_.prometheus_port, ListenerKind::kMetrics, &metrics_listener_);
}

// Opens a port that the control thread serves, if one is configured.
Status Server::OpenAside(
    const std::string& host, int32_t port, ListenerKind listener_kind, std::unique_ptr<Listener>* opened) {
  if (port < 0) return absl::OkStatus();
  IoThread& thread = *io_threads_.back();
  StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(
      thread.loop, {.host = host, .port = static_cast<uint16_t>(port), .join = options_.reuse_port},
      [this, &thread, listener_kind](Socket socket, Endpoint peer) {
        if (!MakeRoom(thread, listener_kind)) return;
        Connection::Serve(thread, std::move(socket), std::move(peer), listener_kind, *pipeline_);
      });
  if (!listener.ok()) return listener.status();
  *opened = *std::move(listener);
  return absl::OkStatus();
}

void Server::Run() {
  for (const std::unique_ptr<Listener>& listener : listeners_) listener->Start();
  if (admin_listener_ != nullptr) admin_listener_->Start();
  if (metrics_listener_ != nullptr) metrics_listener_->Start();
  io_threads_.back()->loop.Post([this] {
    services_->Start();
    if (!reloadables_.empty()) OnReloadTimer(this);
  });
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    if (thread->redis != nullptr) thread->loop.Post([link = thread->redis.get()] { link->Start(); });
  }
  running_ = io_threads_.size();
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    threads_.emplace_back([this, &thread = *thread] {
      thread.loop.Run();
      thread.telemetry.Flush();
      if (running_.fetch_sub(1) > 1) return;
      if (access_log_ != nullptr) access_log_->Close();
      if (record_log_ != nullptr) record_log_->writer().Close();
      FlushLog(kLastLinesMs);
      MutexLock lock(mutex_);
      ended_ = true;
      ended_signal_.notify_all();
    });
  }
}

Server::~Server() {
  if (!threads_.empty()) {
    Shutdown();
    Shutdown();
    Wait(-1);
  }
  for (std::thread& thread : threads_) thread.join();
  if (admin_ != nullptr) admin_->StopPages();
  configuration_->Detach();
  reload_timer_.Disarm();
  admin_listener_.reset();
  metrics_listener_.reset();
  listeners_.clear();
}

std::optional<uint16_t> Server::metrics_port() const {
  if (metrics_listener_ == nullptr) return std::nullopt;
  return metrics_listener_->port();
}

std::optional<uint16_t> Server::admin_port() const {
  if (admin_listener_ == nullptr) return std::nullopt;
  return admin_listener_->port();
}

void Server::OnReloadTimer(void* server) {
  auto* self = static_cast<Server*>(server);
  {
    MutexLock lock(self->reload_mutex_);
    for (Reloadable* const file : self->reloadables_) file->Poll(static_cast<int64_t>(UnixSeconds()));
  }
  self->reload_timer_.Arm(
      self->io_threads_.back()->loop.timers(), kReloadPollMs, &Server::OnReloadTimer, self);
}

void Server::Publish(Settings settings) {
  CompleteSettings(&settings, settings_.Load().get(), *router_);
  settings.pd.kv_connector = options_.kv_connector;
  settings.pd.discovers = options_.pd.discovers;
  limits_.Follow(settings);
  for (const Feature* const feature : Features()) {
    if (feature->follow != nullptr) feature->follow(limits_, settings);
  }
  ExpectModels(settings);
  const auto published = std::make_shared<const Settings>(std::move(settings));
  settings_.Publish(published);
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    thread->loop.Post([&thread = *thread, published] {
      thread.upstreams.SetLimits(published->upstream_pool_size, published->upstream_pool_idle_ms);
    });
  }
  io_threads_.back()->loop.Post([this] { services_->FollowSettings(); });
}

void Server::ExpectModels(const Settings& settings) {
  router_->pool().registry().ExpectModels(settings.models, settings.model_memory_ns(), settings.lora_spread);
}

StatusOr<Difference> Server::Apply(Change change, bool dry_run) {
  MutexLock lock(apply_mutex_);
  const bool checks = settings_.Load()->health_check_interval_ms > 0;
  const bool will_check = change.settings.health_check_interval_ms > 0;
  if (checks != will_check) {
    return absl::InvalidArgumentError(
        "health_check_interval_secs cannot become 0, or another value than 0, while the server runs");
  }
  ROUTER_RETURN_IF_ERROR(CheckExclusion(change.settings));
  for (const Feature* const feature : Features()) {
    if (feature->may_follow != nullptr) ROUTER_RETURN_IF_ERROR(feature->may_follow(change.settings));
  }
  Difference difference;
  if (change.workers) {
    StatusOr<Difference> changed =
        dry_run ? router_->WouldReconcile(DeclaredFleet::kStatic, *change.workers, true)
                : router_->Reconcile(DeclaredFleet::kStatic, *change.workers, true, {});
    if (!changed.ok()) return changed.status();
    difference = *std::move(changed);
  }
  if (dry_run) return difference;
  // From here on nothing fails.
  router_->pool().registry().SetGuard(change.guard);
  Publish(std::move(change.settings));
  return difference;
}

void Server::Reload() {
  {
    MutexLock lock(reload_mutex_);
    for (Reloadable* const file : reloadables_) {
      if (file != record_log_.get()) (void)file->Reload(static_cast<int64_t>(UnixSeconds()));
    }
  }
  ReopenLogs();
}

void Server::ReopenLogs() {
  ReopenLog();
  if (record_log_ == nullptr) return;
  MutexLock lock(reopen_mutex_);
  (void)record_log_->Reload(static_cast<int64_t>(UnixSeconds()));
}

bool Server::leads_peers() const { return other_routers_ == nullptr || other_routers_->presence().leads; }

std::vector<Server::HostUse> Server::HostUses() const {
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  std::map<std::string_view, HostUse> hosts;
  const auto host_of = [&hosts](const Worker& worker) -> HostUse& {
    HostUse& use = hosts[worker.url.base];
    use.url = worker.url.base;
    return use;
  };
  for (const FleetView::Member& member : fleet->members())
    host_of(*member.worker).requests += member.worker->load.requests();
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    const Telemetry::Shard& shard = thread->telemetry.shard();
    MutexLock lock(shard.mutex);
    for (const FleetView::Member& member : fleet->members()) {
      const WorkerCounters* const counters = shard.Find(member.worker->id);
      if (counters != nullptr) host_of(*member.worker).cached_tokens += counters->cached_tokens.count();
    }
  }
  std::vector<HostUse> uses;
  for (auto& [base, use] : hosts) uses.push_back(std::move(use));
  return uses;
}

bool Server::any_worker_responded() const { return !health_->checks() || health_->any_responded(); }

// Whether a connection that `thread` has accepted may stay. At the limit it replaces an idle one: the
// longest idle of its own thread or, if that has none, of the thread with the most. The kernel spreads
// connections evenly, so the longest idle one here is about as old as any; finding the oldest over all
// threads would delay each new connection. Another thread closes its connection in its next turn. If all
// of its idle ones have become busy by then, the limit is exceeded by one until a connection ends.
bool Server::MakeRoom(IoThread& thread, ListenerKind listener_kind) {
  const int64_t open =
      OpenConnections() + io_threads_.back()->telemetry.client_connections.load(std::memory_order_relaxed);
  const int64_t reserved = listener_kind == ListenerKind::kPublic ? 0 : kReservedAdminConnections;
  if (open < thread.settings.Get()->max_connections + reserved) return true;
  if (Connection::CloseLongestIdle(thread)) return true;
  IoThread* most_idle = io_threads_.front().get();
  for (const std::unique_ptr<IoThread>& other : io_threads_) {
    if (other->idle.size() > most_idle->idle.size()) most_idle = other.get();
  }
  if (most_idle != &thread && most_idle->idle.Claim()) {
    most_idle->loop.Post([most_idle] {
      most_idle->idle.EndClaim();
      Connection::CloseLongestIdle(*most_idle);
    });
    return true;
  }
  thread.telemetry.connections_rejected.fetch_add(1, std::memory_order_relaxed);
  return false;
}

int64_t Server::OpenConnections() const {
  int64_t sum = 0;
  for (size_t i = 0; i + 1 < io_threads_.size(); ++i) {
    sum += io_threads_[i]->telemetry.client_connections.load(std::memory_order_relaxed);
  }
  return sum;
}

bool Server::Wait(int64_t timeout_ms) {
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; };
  MutexLock lock(mutex_);
  if (timeout_ms < 0) {
    ended_signal_.wait(lock.native(), ended);
    return true;
  }
  return ended_signal_.wait_for(lock.native(), std::chrono::milliseconds(timeout_ms), ended);
}

void Server::Shutdown() {
  if (shutting_down_.exchange(true)) {
    cut_now_.store(true);
    return;
  }
  io_threads_.back()->loop.Post([this] { Spawn(ShutDown()); });
}

void Server::WatchHangs() {
  struct Lists {
    size_t missing;
    HangWatch::Threads::Waits waits;
  };
  using Waits = HangWatch::Threads::Waits;
  const auto list = [this](const std::shared_ptr<Worker>& worker, const std::function<void(Waits)>& done) {
    const auto lists = std::make_shared<Lists>(Lists{.missing = io_threads_.size() - 1, .waits = {}});
    EventLoop& control = io_threads_.back()->loop;
    ForEachDataThread([worker, done, lists, &control](IoThread& thread, Listener&) {
      Waits waits;
      size_t reads_bodies = kMaxBodiesRead;
      for (Connection* connection : thread.connections) {
        if (connection->exchange() != nullptr)
          connection->exchange()->AddWaits(*worker, &reads_bodies, &waits);
      }
      control.Post([done, lists, waits = std::move(waits)] {  // the lists are the control thread's
        lists->waits.insert(lists->waits.end(), waits.begin(), waits.end());
        if (--lists->missing == 0) done(std::move(lists->waits));
      });
    });
  };
  const auto move = [this](const std::shared_ptr<Worker>& worker, const HangDetector::Doubt& doubt) {
    const auto rule = std::make_shared<const HangDetector::Doubt>(doubt);
    ForEachDataThread([worker, rule](IoThread& thread, Listener&) {
      size_t reads_bodies = kMaxBodiesRead;
      for (Connection* connection : thread.connections) {
        Exchange* const exchange = connection->exchange();
        if (exchange != nullptr && exchange->MoveFrom(*worker, *rule, &reads_bodies))
          thread.telemetry.requests_moved.fetch_add(1, std::memory_order_relaxed);
      }
    });
  };
  services_->Add<HangWatch>(HangWatch::Threads{.list = list, .move = move});
}

void Server::ForEachDataThread(const std::function<void(IoThread&, Listener&)>& action) {
  for (size_t i = 0; i + 1 < io_threads_.size(); ++i) {
    io_threads_[i]->loop.Post([action, thread = io_threads_[i].get(), listener = listeners_[i].get()] {
      action(*thread, *listener);
    });
  }
}

}  // namespace vllm_router
