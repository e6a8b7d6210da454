#include "proxy/events/kv_event_service.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "policy/kv_index.h"
#include "proxy/api/server_options.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/events/trtllm_poller.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kWarnAgainNanos = 60'000'000'000;
constexpr int kMaxDoublings = 6;  // of kSoonNanos: 64 s

std::string EndpointOfRank(
    const std::map<std::string, NamedEndpoints>& named, const std::string& url, size_t rank) {
  const auto found = named.find(url);
  if (found == named.end() || rank >= found->second.endpoints.size()) return {};
  return found->second.endpoints[rank];
}

// It tells what the host has, be it nothing. Other errors pass.
bool IsConclusive(const StatusOr<HttpResponse>& response) {
  if (!response.ok()) return false;
  const int status = response->status;
  return status == 200 || status == 404 || status == 405 || status == 501;
}

}  // namespace

void KvEventService::Start() {
  const FixedOptions& options = thread_.options;
  KvIndex* const index = thread_.router->pool().index();
  if (options.kv_events == KvEventsMode::kOff) return;
  if (index == nullptr) {
    if (options.kv_events == KvEventsMode::kOn || !options.kv_event_sources.empty() ||
        !options.kv_events_bind.empty() || polls()) {
      Log(LogLevel::kWarning, Concat(
                                  "kv events: the policy ", thread_.router->policy().name(),
                                  " matches no blocks, so KV events are not heard; use auto, or another "
                                  "policy that matches blocks"));
    }
    return;
  }
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

bool KvEventService::polls() const { return thread_.options.kv_events_engine == KvEventsEngine::kTrtllm; }

void KvEventService::Stop() {
  HostPoller::Stop();
  for (KvFeed* const feed : feeds_) feed->Stop();
}

std::vector<KvSourceStatus> KvEventService::Report() const {
  std::vector<KvSourceStatus> report;
  for (const KvFeed* const feed : feeds_) {
    for (KvSourceStatus& status : feed->Report()) report.push_back(std::move(status));
  }
  return report;
}

bool KvEventService::Resync(std::string_view worker_url) {
  bool found = false;
  for (KvFeed* const feed : feeds_) found |= feed->Resync(worker_url);
  return found;
}

int64_t KvEventService::Pass(const FleetView& fleet) {
  const int64_t now = thread_.clock.NowNanos();
  const Hosts all = HostsOf(fleet);
  const Hosts healthy = HostsOf(fleet, Which::kHealthy);
  const ReportedBlocks& reported = thread_.router->pool().index()->reported();
  std::erase_if(hosts_, [&all](const auto& entry) { return !all.contains(entry.first); });
  for (const auto& [base, workers] : all) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    const bool is_healthy = healthy.contains(base);
    if (!is_healthy && std::exchange(host->healthy, false)) {
      host->due_ns = now;  // once it is back
      for (const std::shared_ptr<Worker>& worker : workers) {
        for (KvFeed* const feed : feeds_) feed->ReportOutage(worker->id);
      }
    }
    if (!is_healthy) continue;
    host->healthy = true;
    std::vector<WorkerId> ids;
    for (const std::shared_ptr<Worker>& worker : workers) ids.push_back(worker->id);
    const bool is_silent = std::ranges::any_of(
        ids, [&](WorkerId worker) { return reported.TrustOf(worker) == KvTrust::kSilent; });
    if (!is_silent) host->silent_due_ns = 0;
    const bool is_due = now >= host->due_ns || (is_silent && now >= host->silent_due_ns);
    if (host->polling || (ids == host->workers && !is_due)) continue;
    host->workers = std::move(ids);
    host->due_ns = now + kAgainNanos;
    host->silent_due_ns = now + kSilentAgainNanos;
    host->polling = true;
    Spawn(Poll(host, workers));
  }
  FollowSources(all);
  WarnOfUnmatchedPrompts(now);
  const int64_t half_life = thread_.settings.Get()->kv_predict_ttl_ms * kNanosPerMs / 2;
  if (now - rotated_ns_ >= half_life) {
    rotated_ns_ = now;
    thread_.router->pool().index()->RotatePredictions(now, half_life > 0 ? kRepeatNanos : 0);
  }
  return std::clamp<int64_t>(half_life, 1, kLookNanos);
}

void KvEventService::WarnOfUnmatchedPrompts(int64_t now_ns) {
  const uint64_t prompts = thread_.router->pool().index()->prompts_without_ids();
  if (thread_.router->token_cache() == nullptr) return;  // there was a warning at the start
  if (prompts == warned_of_prompts_ || now_ns - warned_of_prompts_ns_ < kWarnAgainNanos) return;
  Log(LogLevel::kWarning,
      Concat(
          "kv events: ", prompts - warned_of_prompts_,
          prompts - warned_of_prompts_ == 1 ? " prompt was" : " prompts were",
          " matched by what was sent to workers, not by KV events, since no worker gave its token ids; see "
          "tokenize_calls_total, and raise --tokenize-timeout-ms if calls time out"));
  warned_of_prompts_ = prompts;
  warned_of_prompts_ns_ = now_ns;
}

Task<void> KvEventService::Poll(std::shared_ptr<Host> host, Workers workers) {
  const UnderWay under_way(*this);
  const WorkerUrl& url = workers.front()->url;
  const int64_t timeout = thread_.settings.Get()->health_check_timeout_ms;
  bool conclusive = true;  // what the host has is known
  const bool is_named =
      std::ranges::any_of(workers, [this](const auto& worker) { return named_.contains(worker->url.url); });
  if (!is_named && !polls()) {
    StatusOr<HttpResponse> response = co_await thread_.http.Get(nullptr, url, "/kv_event_sources", timeout);
    std::optional<std::vector<ReportedSource>> sources;
    if (response.ok() && response->status == 200) sources = SourcesInReport(response->body);
    conclusive = IsConclusive(response);
    if (conclusive && !sources && !stopped()) {
      response = co_await thread_.http.Get(nullptr, url, "/server_info", timeout);
      if (response.ok() && response->status == 200) sources = SourcesInServerInfo(response->body);
      conclusive = IsConclusive(response);
    }
    if (conclusive) {
      std::vector<ReportedSource> before =
          std::exchange(host->sources, sources.value_or(std::vector<ReportedSource>()));
      if (!before.empty() && before != host->sources)
        Log(LogLevel::kInfo, Concat("kv events: ", url.base, " names other sources than before"));
    }
  }
  const bool may_connect = !thread_.options.kv_events_bind.empty();
  const bool any = is_named || polls() || !host->sources.empty();
  if ((any || may_connect) && conclusive && !stopped()) {
    const StatusOr<HttpResponse> response = co_await thread_.http.Get(nullptr, url, "/v1/models", timeout);
    if (response.ok() && response->status == 200) host->models = BaseModelsIn(response->body);
    // Without the model's name no request meets its blocks.
    conclusive = !host->models.empty() || !thread_.options.kv_event_model.empty();
    if (!conclusive && !std::exchange(host->warned_of_model, true)) {
      Log(LogLevel::kWarning,
          Concat(
              "kv events: ", url.base,
              " names no model in /v1/models, so its KV events are not used; name it with --kv-event-model"));
    }
  }
  host->polling = false;
  host->polled = host->polled || conclusive;
  host->failures = conclusive ? 0 : std::min(host->failures + 1, kMaxDoublings);
  if (!conclusive) host->due_ns = thread_.clock.NowNanos() + (kSoonNanos << (host->failures - 1));
  if (thread_.options.kv_events == KvEventsMode::kOn && conclusive && !any && !may_connect &&
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

std::string KvEventService::ModelOf(const Host& host, const ReportedBlocks::ModelNames& names) const {
  if (!thread_.options.kv_event_model.empty()) return thread_.options.kv_event_model;
  // As on the hosts before, in whatever order this one has its names.
  for (const std::string& name : host.models) {
    if (const auto found = names.find(name); found != names.end()) return found->second;
  }
  return host.models.empty() ? std::string() : host.models.front();
}

std::vector<KvSource> KvEventService::SourcesOf(
    const Worker& worker, const Host& host, const std::string& model) const {
  std::vector<KvSource> sources;
  const auto add = [&](uint32_t rank, std::string endpoint, std::string replay, std::string topic) {
    sources.push_back(
        {.worker = worker.id,
         .url = worker.url.url,
         .rank = rank,
         .endpoint = std::move(endpoint),
         .replay_endpoint = std::move(replay),
         .topic = std::move(topic),
         .model = model});
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
  if (polls()) {
    add(worker.url.rank.value_or(0), TrtllmPoller::EndpointOf(worker.url), {}, {});
    sources.back().kind = KvSourceKind::kTrtllm;
    sources.back().any_rank = !worker.url.rank;
  }
  for (const ReportedSource& reported : host.sources) {
    if (worker.url.rank && *worker.url.rank != reported.rank) continue;
    const std::string endpoint = ReachableEndpoint(reported.endpoint, worker.url.host);
    std::string replay = ReachableEndpoint(reported.replay_endpoint, worker.url.host);
    // A worker may name its own host only: another one is for the operator to name.
    if (!CheckEndpoint("kv_event_sources", endpoint).ok() || !IsOnHost(endpoint, worker.url.host)) continue;
    if (!CheckEndpoint("kv_event_sources", replay).ok() || !IsOnHost(replay, worker.url.host)) replay.clear();
    add(reported.rank, endpoint, std::move(replay), reported.topic);
  }
  return sources;
}

void KvEventService::FollowSources(const Hosts& fleet) {
  KvFeed::Sources sources;
  ReportedBlocks::ModelNames names;
  bool one_model = true;
  std::set<std::string> unused;
  for (const auto& [url, named] : named_) unused.insert(url);
  for (const auto& [base, workers] : fleet) {
    const Host& host = *hosts_[base];
    for (const std::shared_ptr<Worker>& worker : workers) unused.erase(worker->url.url);
    if (!host.polled) continue;
    const std::string model = ModelOf(host, names);
    for (const std::string& name : host.models) names.try_emplace(name, model);
    if (!model.empty()) names.try_emplace(model, model);
    for (const std::shared_ptr<Worker>& worker : workers) {
      std::vector<KvSource> own = SourcesOf(*worker, host, model);
      if (own.empty() && !model.empty() && !thread_.options.kv_events_bind.empty())
        sources.may_connect.push_back({.worker = worker->id, .url = worker->url, .model = model});
      for (KvSource& source : own) sources.named.push_back(std::move(source));
    }
  }
  for (const std::string& url : unused) {
    if (!warned_of_unused_.insert(url).second) continue;
    Log(LogLevel::kWarning,
        Concat("kv events: --kv-event-source names ", Quoted(url), ", which is no worker of the fleet now"));
  }
  for (const auto& [name, model] : names) one_model = one_model && model == names.begin()->second;
  // A request without a name is for the only model.
  if (one_model && !names.empty()) names.try_emplace("", std::string(names.begin()->second));
  if (names != model_names_) {
    model_names_ = names;
    thread_.router->pool().index()->reported().SetModelNames(std::move(names));
  }
  bool any = false;
  for (KvFeed* const feed : feeds_) any |= feed->Follow(sources);
  if (any) WarnOfText();
}

void KvEventService::WarnOfText() {
  if (thread_.router->token_cache() != nullptr || std::exchange(warned_of_text_, true)) return;
  Log(LogLevel::kWarning,
      "kv events: engines name blocks of token ids, and --tokenize is never: prompts of text are matched "
      "by what was sent to each worker, not by its events; remove --tokenize never");
}

void KvEventService::AddConditions(const AddCondition& add) const {
  for (const KvSourceStatus& status : Report()) {
    if (status.trust != KvTrust::kSilent && status.trust != KvTrust::kMismatch) continue;
    const std::string rank =
        status.source.rank == 0 ? std::string() : Concat(", rank ", status.source.rank, ",");
    add("kv_events", Concat(status.source.url, "@", status.source.rank),
        Concat(
            "KV events of ", status.source.url, rank,
            status.trust == KvTrust::kSilent ? " are silent" : " name other blocks than its prompts have",
            ": what its cache holds is inferred from the requests sent to it, and fewer prompts may be "
            "found. "
            "The router's GET /admin/kv-events says why."));
  }
}

void KvEventService::WriteMetrics(MetricsPage* page) const {
  const std::vector<KvSourceStatus> sources = Report();
  if (sources.empty()) return;
  using Status = KvSourceStatus;
  const auto each = [&](auto value) {
    for (const Status& status : sources) {
      const std::string rank = std::to_string(status.source.rank);
      page->Add(value(status), {{"worker", status.source.url}, {"rank", rank}});
    }
  };
  const auto by_label = [&](std::string_view label, auto counts) {
    for (const Status& status : sources) {
      const std::string rank = std::to_string(status.source.rank);
      for (const auto& [name, count] : counts(status))
        page->Add(count, {{"worker", status.source.url}, {"rank", rank}, {label, name}});
    }
  };
  page->Gauge("kv_trust", "How far a source of KV events is trusted: 1 for its state, 0 for the others.");
  by_label("state", [](const Status& status) {
    std::vector<std::pair<std::string_view, int>> states;
    for (int state = 0; state < kKvTrustCount; ++state) {
      const auto trust = static_cast<KvTrust>(state);
      states.emplace_back(KvTrustName(trust), status.trust == trust ? 1 : 0);
    }
    return states;
  });
  page->Gauge("kv_source_connected", "1 while the router is connected to a publisher of KV events.");
  each([](const Status& status) { return status.connected ? 1 : 0; });
  page->Counter("kv_source_reconnects_total", "Connections to a publisher of KV events after the first.");
  each([](const Status& status) { return status.reconnects; });
  page->Counter("kv_batches_received_total", "Batches of KV events received, live and replayed.");
  each([](const Status& status) { return status.received_batches; });
  page->Counter("kv_batches_applied_total", "Batches of KV events applied to the index.");
  each([](const Status& status) { return status.applied_batches; });
  page->Counter(
      "kv_batches_lost_total",
      "Batches of KV events that were published and never received; a gap of more than 1,048,576 numbers is "
      "a restart and counts as none.");
  each([](const Status& status) { return status.lost_batches; });
  page->Counter(
      "kv_events_dropped_total",
      "KV events and batches that were not used, by reason; of TensorRT-LLM also partial_block (blocks that "
      "a prompt did not fill), other_window (layers whose attention reaches less far) and unnumbered (no "
      "number or rank can be read).");
  by_label("reason", [](const Status& status) -> const Status::Counts& { return status.dropped; });
  page->Counter("kv_replays_total", "Replays of KV events requested from a publisher, by result.");
  by_label("result", [](const Status& status) -> const Status::Counts& { return status.replays; });
  page->Counter(
      "kv_incarnations_total",
      "Times that everything known of a worker's cache was dropped: sequence, digest, end_mark or evidence "
      "(the engine restarted), audit (more blocks than it has), contradiction or reset.");
  by_label("cause", [](const Status& status) -> const Status::Counts& { return status.incarnations; });
  page->Counter(
      "kv_index_blocks_total",
      "Blocks of the engine that KV events named: stored, removed or unknown_removed.");
  by_label("op", [](const Status& status) {
    return Status::Counts{
        {"stored", status.stored_blocks},
        {"removed", status.removed_blocks},
        {"unknown_removed", status.unknown_removed_blocks}};
  });
  page->Gauge(
      "kv_index_pairs",
      "Blocks of --block-size tokens that a worker's cache holds by its KV events: gpu, host or external.");
  by_label("tier", [](const Status& status) {
    return Status::Counts{
        {"gpu", status.blocks[0]}, {"host", status.blocks[1]}, {"external", status.blocks[2]}};
  });
  page->Gauge(
      "kv_coverage_ratio",
      "Share of a worker's GPU cache that is known by KV events; 0 where the worker does not report how many "
      "blocks there are.");
  each([](const Status& status) { return status.coverage; });
  page->Gauge("kv_orphan_blocks", "Blocks of the engine whose parent is not known yet.");
  each([](const Status& status) { return status.orphan_blocks; });
  page->Gauge("kv_held_bytes", "Memory of batches that wait for a replay to end.");
  each([](const Status& status) { return status.held_bytes; });
  page->Gauge("kv_memory_bytes", "Memory of the map from the engine's block hashes to the index.");
  each([](const Status& status) { return status.bytes; });
  page->Gauge(
      "kv_event_lag_seconds",
      "Time from the engine's clock to the router's for the last batch of KV events.");
  each([](const Status& status) { return status.lag_seconds; });
}

}  // namespace vllm_router
