#include "proxy/control/kv_event_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/client/http_client.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

std::string EndpointOfRank(
    const std::map<std::string, NamedEndpoints>& named, const std::string& url, size_t rank) {
  const auto found = named.find(url);
  if (found == named.end() || rank >= found->second.endpoints.size()) return {};
  return found->second.endpoints[rank];
}

}  // namespace

void KvEventService::Start() {
  const FixedOptions& options = thread_.options;
  KvIndex* const index = thread_.router->pool().index();
  if (options.kv_events == KvEventsMode::kOff || index == nullptr) return;
  // Server::Start has checked them.
  for (const std::string& text : options.kv_event_sources) {
    StatusOr<NamedEndpoints> named = ParseNamedEndpoints("kv_event_source", text);
    if (named.ok()) named_[named->worker] = *std::move(named);
  }
  for (const std::string& text : options.kv_event_replay_sources) {
    StatusOr<NamedEndpoints> named = ParseNamedEndpoints("kv_event_replay_source", text);
    if (named.ok()) named_replays_[named->worker] = *std::move(named);
  }
  Begin();
}

void KvEventService::Stop() {
  HostPoller::Stop();
  const MutexLock lock(mutex_);
  subscriber_ = nullptr;
}

std::vector<KvSourceStatus> KvEventService::Report() const {
  const MutexLock lock(mutex_);
  return subscriber_ != nullptr ? subscriber_->Report() : std::vector<KvSourceStatus>();
}

bool KvEventService::Resync(std::string_view worker_url) {
  const MutexLock lock(mutex_);
  if (subscriber_ == nullptr) return false;
  bool found = false;
  for (const KvSource& source : told_) {
    if (source.url != worker_url) continue;
    found = true;
    subscriber_->Resync(source.worker);
  }
  return found;
}

int64_t KvEventService::Pass(const FleetView& fleet) {
  const int64_t now = thread_.clock.NowNanos();
  const Hosts all = HostsOf(fleet);
  const Hosts healthy = HostsOf(fleet, Which::kHealthy);
  std::erase_if(hosts_, [&all](const auto& entry) { return !all.contains(entry.first); });
  for (const auto& [base, workers] : all) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    const bool is_healthy = healthy.contains(base);
    if (!is_healthy && std::exchange(host->healthy, false)) {
      host->due_ns = now;  // once it is back
      if (subscriber_ != nullptr) {
        for (const std::shared_ptr<Worker>& worker : workers) subscriber_->ReportOutage(worker->id);
      }
    }
    if (!is_healthy) continue;
    host->healthy = true;
    std::vector<WorkerId> ids;
    for (const std::shared_ptr<Worker>& worker : workers) ids.push_back(worker->id);
    if (host->polling || (ids == host->workers && now < host->due_ns)) continue;
    host->workers = std::move(ids);
    host->due_ns = now + kAgainNanos;
    host->polling = true;
    Spawn(Poll(host, workers));
  }
  TellSubscriber(all);
  const int64_t half_life = thread_.options.kv_predict_ttl_ms * kNanosPerMs / 2;
  if (now - rotated_ns_ >= half_life) {
    rotated_ns_ = now;
    if (KvIndex* const index = thread_.router->pool().index(); index->reported().active())
      index->RotatePredictions();
  }
  return std::clamp<int64_t>(half_life, 1, kLookNanos);
}

Task<void> KvEventService::Poll(std::shared_ptr<Host> host, Workers workers) {
  const UnderWay under_way(*this);
  const WorkerUrl& url = workers.front()->url;
  const int64_t timeout = thread_.options.health_check_timeout_ms;
  bool responded = true;
  if (std::ranges::none_of(
          workers, [this](const auto& worker) { return named_.contains(worker->url.url); })) {
    StatusOr<HttpResponse> response = co_await thread_.http.Get(nullptr, url, "/kv_event_sources", timeout);
    responded = response.ok();
    std::optional<std::vector<ReportedSource>> sources;
    if (response.ok() && response->status == 200) sources = SourcesInReport(response->body);
    if (responded && !sources && !stopped()) {
      response = co_await thread_.http.Get(nullptr, url, "/server_info", timeout);
      if (response.ok() && response->status == 200) sources = SourcesInServerInfo(response->body);
    }
    if (responded) host->sources = sources.value_or(std::vector<ReportedSource>());
  }
  const bool any = !host->sources.empty() || std::ranges::any_of(workers, [this](const auto& worker) {
    return named_.contains(worker->url.url);
  });
  if (any && thread_.options.kv_event_model.empty() && !stopped()) {
    const StatusOr<HttpResponse> response = co_await thread_.http.Get(nullptr, url, "/v1/models", timeout);
    responded = responded && response.ok();
    if (response.ok() && response->status == 200) host->model = BaseModelIn(response->body);
  }
  host->polling = false;
  host->polled = responded;
  if (!responded) host->due_ns = thread_.clock.NowNanos() + kSoonNanos;
  if (thread_.options.kv_events == KvEventsMode::kOn && responded && !any &&
      !std::exchange(host->warned, true)) {
    Log(LogLevel::kWarning,
        Concat(
            "kv events: ", url.base,
            " names no source of KV events, so its cache is inferred from requests; start it with "
            "--kv-events-config "
            "'{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\","
            "\"replay_endpoint\":\"tcp://*:5558\"}', or name the endpoint with --kv-event-source"));
  }
}

std::vector<KvSource> KvEventService::SourcesOf(const Worker& worker, const Host& host) const {
  const FixedOptions& options = thread_.options;
  std::vector<KvSource> sources;
  const auto add = [&](uint32_t rank, std::string endpoint, std::string replay, std::string topic) {
    sources.push_back(
        {.worker = worker.id,
         .url = worker.url.url,
         .rank = rank,
         .endpoint = std::move(endpoint),
         .replay_endpoint = std::move(replay),
         .topic = std::move(topic),
         .model = options.kv_event_model.empty() ? host.model : options.kv_event_model});
  };
  if (const auto named = named_.find(worker.url.url); named != named_.end()) {
    const std::vector<std::string>& endpoints = named->second.endpoints;
    for (size_t i = 0; i < endpoints.size(); ++i) {
      // A worker that is one rank has one endpoint.
      const uint32_t rank = worker.url.rank.value_or(static_cast<uint32_t>(i));
      add(rank, endpoints[i], EndpointOfRank(named_replays_, worker.url.url, i), {});
      sources.back().any_rank = endpoints.size() == 1;
    }
    return sources;
  }
  for (const ReportedSource& reported : host.sources) {
    if (worker.url.rank && *worker.url.rank != reported.rank) continue;
    const std::string endpoint = ReachableEndpoint(reported.endpoint, worker.url.host);
    std::string replay = ReachableEndpoint(reported.replay_endpoint, worker.url.host);
    if (!CheckEndpoint("kv_event_sources", endpoint).ok()) continue;
    if (!CheckEndpoint("kv_event_sources", replay).ok()) replay.clear();
    add(reported.rank, endpoint, std::move(replay), reported.topic);
  }
  return sources;
}

void KvEventService::TellSubscriber(const Hosts& fleet) {
  std::vector<KvSource> sources;
  for (const auto& [base, workers] : fleet) {
    const Host& host = *hosts_[base];
    if (!host.polled) continue;
    for (const std::shared_ptr<Worker>& worker : workers) {
      for (KvSource& source : SourcesOf(*worker, host)) sources.push_back(std::move(source));
    }
  }
  if (sources == told_) return;
  const MutexLock lock(mutex_);
  if (subscriber_ == nullptr) {
    StatusOr<std::unique_ptr<EventSubscriber>> started =
        EventSubscriber::Start(&thread_.router->pool().index()->reported());
    if (!started.ok()) {
      if (!std::exchange(start_failed_, true))
        Log(LogLevel::kError, Concat(
                                  "kv events: ", std::string(started.status().message()),
                                  "; caches are inferred from requests"));
      return;
    }
    subscriber_ = *std::move(started);
    if (thread_.router->token_cache() == nullptr) {
      Log(LogLevel::kWarning,
          "kv events: engines name blocks of token ids, and --tokenize is never: prompts of text are matched "
          "by "
          "what was sent to each worker, not by its events; remove --tokenize never");
    }
  }
  told_ = sources;
  subscriber_->SetSources(std::move(sources));
}

}  // namespace vllm_router
