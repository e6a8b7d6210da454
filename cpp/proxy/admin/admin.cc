#include "proxy/admin/admin.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <boost/json/src.hpp>  // Boost.JSON's one translation unit in this extension
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "events/kv_push.h"
#include "http/query.h"
#include "net/task.h"
#include "proxy/admin/cache_report.h"
#include "proxy/admin/configuration.h"
#include "proxy/admin/discovery_report.h"
#include "proxy/admin/kv_push_call.h"
#include "proxy/admin/metrics.h"
#include "proxy/admin/peer_report.h"
#include "proxy/admin/scale_reply.h"
#include "proxy/admin/stats_table.h"
#include "proxy/api/error_response.h"
#include "proxy/api/json_text.h"
#include "proxy/client/http_client.h"
#include "proxy/client/load_query.h"
#include "proxy/client/model_report.h"
#include "proxy/client/probe_failure.h"
#include "proxy/control/drainer.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/kv_event_service.h"
#include "proxy/control/model_service.h"
#include "proxy/control/pd_registration_service.h"
#include "proxy/control/peer_sync_service.h"
#include "proxy/control/prefix_event_service.h"
#include "proxy/control/response_cache_service.h"
#include "proxy/control/scale_service.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr int64_t kModelsTimeoutMs = 5'000;
constexpr int64_t kMostDrainSeconds = 31'536'000;  // a year
constexpr int64_t kMostWaitSeconds = 3'600;
constexpr int64_t kDrainLookNanos = 50 * kNanosPerMs;
constexpr int64_t kLoadsTimeoutMs = 5'000;   // per query; a worker gets at most three
constexpr size_t kMaxQueriesWithKeys = 512;  // at once, of hosts, for clients with keys of theirs

AdminReply Json(int status, const json::value& value) { return {.status = status, .body = JsonText(value)}; }

AdminReply Text(int status, std::string text) {
  return {.status = status, .body = std::move(text), .content_type = kText};
}

AdminReply Error(HttpError error, std::string_view message, int status = 0) {
  const ErrorRow& row = ErrorOf(error);
  return {
      .status = status != 0 ? status : row.status,
      .body = ErrorBody(message, row.type, row.code),
      .error_code = row.code};
}

AdminReply Refusal(const Status& status) {
  return Error(HttpError::kInvalidArgument, std::string(status.message()));
}

// Value of `name` in a query string, decoded; nullopt if it is absent.
StatusOr<std::optional<std::string>> QueryValue(std::string_view query, std::string_view name) {
  std::optional<std::string> value;
  while (const std::optional<QueryPair> pair = TakeQueryPair(&query)) {
    if (pair->name != name || !pair->value) continue;
    if (value.has_value()) {
      return absl::InvalidArgumentError(Concat("The query parameter '", name, "' is given more than once"));
    }
    value = PercentDecoded(*pair->value, true);
    if (!value.has_value()) {
      return absl::InvalidArgumentError(Concat(
          "The query parameter '", name, "' is ", Quoted(*pair->value),
          ", which has a '%' without two hexadecimal digits"));
    }
  }
  return value;
}

// The arguments of a call that changes the fleet, in the query (`?url=...&weight=2`) or as a JSON object
// in the body.
struct FleetCall {
  std::string url;
  double weight = 1.0;
  std::optional<double> timeout_secs;
  std::optional<double> wait;
  WorkerRole role = {};  // in a body only
};

StatusOr<std::optional<double>> NumberInQuery(std::string_view query, std::string_view name) {
  const StatusOr<std::optional<std::string>> text = QueryValue(query, name);
  if (!text.ok()) return text.status();
  if (!text->has_value()) return std::optional<double>();
  const std::string& digits = **text;
  const char* const end = digits.data() + digits.size();
  double number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error == std::errc() && stop == end) return std::optional(number);
  return absl::InvalidArgumentError(
      Concat("The query parameter '", name, "' is ", Quoted(digits), "; it must be a number such as 2.5."));
}

StatusOr<FleetCall> CallInQuery(std::string_view query) {
  StatusOr<std::optional<std::string>> url = QueryValue(query, "url");
  if (!url.ok() || url->value_or("").empty()) {
    return absl::InvalidArgumentError(Concat(
        url.ok() ? std::string("The query parameter 'url' is missing") : std::string(url.status().message()),
        "; write for example ?url=http://gpu-0:8000."));
  }
  const StatusOr<std::optional<double>> weight = NumberInQuery(query, "weight");
  if (!weight.ok()) return weight.status();
  const StatusOr<std::optional<double>> timeout = NumberInQuery(query, "timeout_secs");
  if (!timeout.ok()) return timeout.status();
  const StatusOr<std::optional<double>> wait = NumberInQuery(query, "wait");
  if (!wait.ok()) return wait.status();
  return FleetCall{**std::move(url), weight->value_or(1.0), *timeout, *wait};
}

StatusOr<std::optional<double>> NumberInBody(const json::object& object, std::string_view name) {
  const json::value* given = object.if_contains(name);
  if (given == nullptr) return std::optional<double>();
  boost::system::error_code error;
  const double number = given->to_number<double>(error);
  if (!error) return std::optional(number);
  return absl::InvalidArgumentError(Concat("'", name, "' must be a number"));
}

StatusOr<WorkerRole> RoleInBody(const json::object& object) {
  WorkerRole role;
  if (const json::value* type = object.if_contains("worker_type"); type != nullptr && !type->is_null()) {
    const std::optional<Stage> stage =
        type->is_string() ? StageByName(std::string_view(type->as_string())) : std::nullopt;
    if (!stage) return absl::InvalidArgumentError("'worker_type' must be one of regular, prefill, decode");
    role.stage = *stage;
  }
  if (const json::value* port = object.if_contains("bootstrap_port"); port != nullptr && !port->is_null()) {
    boost::system::error_code error;
    const auto number = port->to_number<uint16_t>(error);
    if (error || number == 0) {
      return absl::InvalidArgumentError("'bootstrap_port' must be a whole number between 1 and 65535");
    }
    role.bootstrap_port = number;
  }
  // Without it the worker would be a partner of all.
  for (const std::string_view mistake : {"kv-group", "kvgroup", "kvGroup", "KV_GROUP"}) {
    if (object.contains(mistake))
      return absl::InvalidArgumentError(Concat("'", mistake, "' is not known; did you mean 'kv_group'?"));
  }
  if (const json::value* group = object.if_contains("kv_group"); group != nullptr && !group->is_null()) {
    if (!group->is_string()) return absl::InvalidArgumentError("'kv_group' must be a string");
    role.kv_group = group->as_string();
  }
  return role;
}

StatusOr<FleetCall> CallInBody(std::string_view body) {
  boost::system::error_code error;
  const json::value parsed = json::parse(WithoutByteOrderMark(body), error);
  const json::object* object = error ? nullptr : parsed.if_object();
  const json::value* url = object == nullptr ? nullptr : object->if_contains("url");
  if (url == nullptr || !url->is_string()) {
    return absl::InvalidArgumentError(
        R"(the body must be a JSON object with a string member 'url', for example {"url": "http://gpu-0:8000"})");
  }
  const StatusOr<std::optional<double>> weight = NumberInBody(*object, "weight");
  if (!weight.ok()) return weight.status();
  const StatusOr<std::optional<double>> timeout = NumberInBody(*object, "timeout_secs");
  if (!timeout.ok()) return timeout.status();
  const StatusOr<std::optional<double>> wait = NumberInBody(*object, "wait");
  if (!wait.ok()) return wait.status();
  const StatusOr<WorkerRole> role = RoleInBody(*object);
  if (!role.ok()) return role.status();
  return FleetCall{std::string(url->as_string()), weight->value_or(1.0), *timeout, *wait, *role};
}

// The body counts only without a query.
StatusOr<FleetCall> ReadCall(const AdminRequest& request) {
  return request.query.empty() && !request.body.empty() ? CallInBody(request.body)
                                                        : CallInQuery(request.query);
}

// Of POST /admin/reload, which knows this argument only: what is misspelt must not become a real reload.
StatusOr<bool> DryRunOf(const AdminRequest& request) {
  constexpr std::string_view kName = "dry_run";
  std::string_view rest = request.query;
  while (const std::optional<QueryPair> pair = TakeQueryPair(&rest)) {
    if (pair->name.empty() && !pair->value) continue;
    if (pair->name != kName) {
      return absl::InvalidArgumentError(Concat(
          "The query parameter ", Quoted(pair->name),
          " is unknown here; there is one, dry_run=1, and nothing was ", "reloaded."));
    }
    if (!pair->value) {
      return absl::InvalidArgumentError("The query parameter 'dry_run' has no value; write dry_run=1.");
    }
  }
  if (!request.body.empty() && request.body != "{}") {
    return absl::InvalidArgumentError(
        "A reload takes no body, and nothing was reloaded; the one argument is in the query: ?dry_run=1.");
  }
  const StatusOr<std::optional<std::string>> given = QueryValue(request.query, kName);
  if (!given.ok()) return given.status();
  const std::string value = given->value_or("0");
  if (value == "1" || value == "true") return true;
  if (value == "0" || value == "false") return false;
  return absl::InvalidArgumentError(
      Concat("The query parameter 'dry_run' is ", Quoted(value), "; it must be 1, 0, true or false."));
}

constexpr std::string_view kModelDetail = "model=";
constexpr std::string_view kUrlDetail = "url=";
constexpr size_t kPolledPerTurn = 16;  // of thousands of workers that are polled at once

// What the page depends on besides the route.
StatusOr<std::string> DetailOf(const AdminRequest& request) {
  if (request.route == Route::kCacheStats)
    return std::string(request.query == "detail=1" ? request.query : std::string_view());
  if (request.route == Route::kDrainStatus) {
    const StatusOr<std::optional<std::string>> url = QueryValue(request.query, "url");
    if (!url.ok()) return url.status();
    return url->has_value() ? Concat(kUrlDetail, **url) : std::string();
  }
  if (request.route != Route::kScale) return std::string();
  const StatusOr<std::optional<std::string>> model = QueryValue(request.query, "model");
  if (!model.ok()) return model.status();
  return model->has_value() ? Concat(kModelDetail, **model) : std::string();
}

constexpr std::string_view kDeclaredElsewhere = "WORKER_DECLARED_ELSEWHERE";

// For a path such as /workers/http%3A%2F%2Fgpu-0.
AdminReply NoSuchWorker(std::string_view message) {
  return Json(404, {{"error", message}, {"code", "WORKER_NOT_FOUND"}});
}

AdminReply NoUrlInPath(std::string_view encoded) {
  return NoSuchWorker(Concat(
      "no worker ", Quoted(encoded), ": a '%' in the path must precede two hexadecimal digits; write the ",
      "worker's URL percent-encoded, for example /workers/http%3A%2F%2Fgpu-0%3A8000"));
}

// Null without a prefix index.
PrefixTable* TableOf(const Router& router) {
  const KvIndex* const index = router.pool().index();
  return index != nullptr ? index->prefixes() : nullptr;
}

json::value TimeOrNull(std::optional<int64_t> unix_seconds) {
  if (!unix_seconds) return nullptr;
  const auto seconds = static_cast<std::time_t>(*unix_seconds);
  std::tm utc{};
  char text[32];
  ::gmtime_r(&seconds, &utc);
  return json::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// By position in the fleet, the model that each worker lists first; an adapter only where it lists nothing else.
// What a host lists only to clients with its key is told to nobody else.
std::vector<std::string_view> FirstModels(const FleetView& fleet, GuardedHosts& guarded) {
  std::vector<std::string_view> models(fleet.members().size(), "unknown");
  std::vector<bool> is_model(models.size());
  for (const std::string& id : fleet.models()->names->order) {
    const ModelPools::Name& name = *fleet.models()->Find(id);
    for (const uint32_t position : name.workers) {
      if (is_model[position] || (!name.card.parent.empty() && models[position] != "unknown")) continue;
      models[position] = id;
      is_model[position] = name.card.parent.empty();
    }
  }
  if (!guarded.any()) return models;
  for (uint32_t position = 0; position < models.size(); ++position) {
    if (guarded.Contains(fleet.worker(position).url.base)) models[position] = "unknown";
  }
  return models;
}

json::object Describe(const FleetView::Member& member, std::string_view model) {
  const Worker& worker = *member.worker;
  json::object described = {
      {"url", worker.url.url},
      {"model_id", model},
      {"worker_type", StageName(worker.stage)},
      {"is_healthy", member.healthy},
      {"load", worker.load.open_requests()},
      {"connection_mode", "Http"},
      {"priority", 50},
      {"cost", 1.0},
      {"draining", member.draining},
      {"circuit_breaker", BreakerStateName(worker.breaker.state())},
      {"weight", static_cast<double>(worker.weight) / kWeightOne}};
  if (member.in_doubt) described["in_doubt"] = true;
  if (member.overloaded) described["overloaded"] = true;
  if (worker.bootstrap_port) described["bootstrap_port"] = *worker.bootstrap_port;
  if (!worker.kv_group.empty()) described["kv_group"] = worker.kv_group;
  if (const auto id = worker.engine_id.Load()) described["engine_id"] = *id;
  if (member.held) described["held"] = true;
  if (member.pair != PairState::kReady) described["not_chosen"] = PairStateText(member.pair);
  if (worker.peer) {
    described["zmq_address"] = worker.peer->zmq_address;
    described["tp_size"] = worker.peer->tp_size;
    described["dp_size"] = worker.peer->dp_size;
    if (worker.peer->mode) described["transfer_mode"] = MoriioModeName(*worker.peer->mode);
  }
  return described;
}

// Workers of a stage, and those of them that are in rotation.
json::object Describe(const FleetView& stage) {
  const auto total = std::ranges::count_if(
      stage.members(), [](const FleetView::Member& member) { return !member.other_stage; });
  return {{"healthy", stage.in_rotation()}, {"total", total}};
}

// By position; -1: not reported. Of a fleet with stages also as the reference router has it.
json::object DescribeLoads(const FleetView& fleet, const std::vector<int64_t>& of_workers) {
  const bool is_staged = fleet.stages() != nullptr;
  json::array workers;
  json::object loads;
  json::array errors;
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    const Worker& worker = fleet.worker(position);
    const int64_t load = of_workers[position];
    json::object row{{"worker", worker.url.url}, {"load", load}};
    if (is_staged) {
      const std::string_view stage = StageName(worker.stage);
      row["worker_type"] = stage;
      if (load < 0) {
        errors.push_back(json::string(Concat("Failed to get load from ", stage, " ", worker.url.url)));
      } else {
        loads[Concat(stage, "_", worker.url.url)] = load;
      }
    }
    workers.push_back(std::move(row));
  }
  json::object described{{"workers", std::move(workers)}};
  if (is_staged) {
    described["loads"] = std::move(loads);
    described["errors"] = std::move(errors);
  }
  return described;
}

json::object Describe(const ModelCard& card) {
  return {
      {"id", card.id},
      {"object", "model"},
      {"created", card.created},
      {"owned_by", card.owned_by.empty() ? std::string_view("vllm-router") : std::string_view(card.owned_by)},
      {"root", card.root.empty() ? card.id : card.root},
      {"parent", card.parent.empty() ? json::value(nullptr) : json::value(card.parent)},
      {"max_model_len", card.max_model_len != 0 ? json::value(card.max_model_len) : json::value(nullptr)}};
}

json::object Describe(const ModelAliases::Alias& alias) {
  const auto heaviest = std::ranges::max_element(alias.targets, {}, &ModelAliases::Target::weight);
  return Describe(ModelCard{.id = alias.name, .root = heaviest->model});
}

json::array AliasesOf(const Settings& settings) {
  json::array cards;
  for (const ModelAliases::Alias& alias : settings.model_aliases.aliases()) cards.push_back(Describe(alias));
  return cards;
}

// Those that workers list, and those that are remembered.
json::array KnownModels(const ModelPools& pools, const Settings& settings, int64_t now_ns) {
  json::array cards;
  for (const std::string& id : pools.names->order) {
    const ModelPools::Name& name = *pools.Find(id);
    if (name.IsKnown(now_ns, settings.model_memory_ns()) && settings.model_aliases.Find(id) == nullptr)
      cards.push_back(Describe(name.card));
  }
  return cards;
}

// A list of workers' models, and the aliases.
AdminReply WithAliases(const AdminReply& list, const Settings& settings) {
  boost::system::error_code error;
  json::value listed = json::parse(list.text(), error);
  if (error) return list;
  for (json::value& alias : AliasesOf(settings))
    listed.as_object()["data"].as_array().push_back(std::move(alias));
  return Json(200, listed);
}

AdminReply NoSuchModel(std::string_view id) {
  const ErrorRow& row = ErrorOf(HttpError::kModelNotFound);
  const std::string message =
      Concat("The model ", Quoted(id), " does not exist; GET /v1/models lists those that do.");
  return {
      .status = row.status,
      .body = ErrorBody(message, row.type, row.code, row.param),
      .error_code = row.code};
}

AdminReply ModelIn(const AdminReply& list, std::string_view id) {
  boost::system::error_code error;
  const json::value listed = json::parse(list.text(), error);
  if (error) return list;
  for (const json::value& model : listed.at("data").as_array()) {
    if (model.at("id").as_string() == id) return Json(200, model);
  }
  return NoSuchModel(id);
}

json::array PushedSources(const KvPushReceiver& pushes, const Router& router) {
  json::array sources;
  const std::shared_ptr<const FleetView> fleet = router.fleet();
  for (const KvPushReceiver::Status& status : pushes.Report()) {
    const auto member = std::ranges::find(
        fleet->members(), status.worker, [](const FleetView::Member& one) { return one.worker->id; });
    if (member == fleet->members().end()) continue;
    const KvTrust trust = router.pool().index()->reported().TrustOf(status.worker);
    sources.push_back(json::object{
        {"worker", member->worker->url.url},
        {"rank", status.rank},
        {"trust", KvTrustName(trust)},
        {"complete", status.complete},
        {"next_number", status.next},
        {"block_size", status.block_size},
        {"gpu_blocks", status.blocks[0]},
        {"host_blocks", status.blocks[1]},
        {"external_blocks", status.blocks[2]},
        {"events", status.events},
        {"unusable_events", status.unusable}});
  }
  return sources;
}

}  // namespace

Admin::Admin(std::shared_ptr<Router> router)
    : router_(std::move(router)),
      models_([this](IoThread& thread, CancelScope& scope) { return Models(thread, scope); }),
      loads_([this](IoThread& thread, CancelScope& scope) { return Loads(thread, scope); }) {}

Admin::~Admin() = default;

void Admin::set_control(IoThread* control) {
  models_.set_control(control);
  loads_.set_control(control);
}

Task<AdminReply> Admin::Shared(SharedReply& shared, IoThread& thread, CancelScope& scope) {
  SharedReply::Reply reply = co_await shared.Get(thread, scope);
  if (reply != nullptr) co_return AdminReply::Of(std::move(reply));
  co_return Error(HttpError::kNoWorkers, "The workers did not respond in time.");
}

Task<AdminReply> Admin::Page(IoThread& thread, CancelScope& scope, PageKey key, PageRenderer::Render render) {
  PageRenderer::Page page = co_await pages_.Get(thread, scope, std::move(key), std::move(render));
  if (page != nullptr) co_return AdminReply::Of(std::move(page));
  co_return Error(
      HttpError::kQueueFull,
      Concat(
          RenderQueue::kMaxPages,
          " other requests to this endpoint, with other parameters, wait to be served; ", "retry later."));
}

Task<PageRenderer::Page> Admin::Elsewhere(IoThread& thread, CancelScope& scope, PageRenderer::Render work) {
  PageRenderer::Page done = co_await pages_.Elsewhere(thread, scope, std::move(work));
  co_return done;
}

void Admin::TellPeers(AdminFact fact, json::object* reply) const {
  if (peers_ == nullptr) return;
  const std::string scope = peers_->TellAdmin(std::move(fact));
  if (!scope.empty()) (*reply)["scope"] = scope;
}

AdminReply Admin::Peers(Route route) const {
  if (peers_ == nullptr) {
    return Error(
        HttpError::kNotFound,
        "This router shares nothing with others; --peer-sync redis://… connects it with those of its fleet.");
  }
  if (route == Route::kPeerWorkers) return PeerWorkers(*router_->fleet());
  const PeerSyncReport report = peers_->Report();
  return route == Route::kPeerHealth ? PeerHealth(report) : PeerStatus(report);
}

AdminReply Admin::Render(const IoThread& thread, const Settings& settings, const PageKey& page) const {
  switch (page.route) {
    case Route::kHealth:
      return Health(settings);
    case Route::kReadiness:
      return Readiness(settings, !health_->checks() || health_->any_responded());
    case Route::kListWorkers:
      return ListWorkers();
    case Route::kWorkers:
      return Workers();
    case Route::kDrainStatus:
      return DrainStatus(page.detail.empty() ? page.detail : page.detail.substr(kUrlDetail.size()));
    case Route::kDiscovery:
      return DiscoveryReport(
          router_->pool().registry(), thread.clock.NowNanos(),
          registrations_ != nullptr ? std::optional(registrations_->Report()) : std::nullopt);
    case Route::kPeerStatus:
    case Route::kPeerHealth:
    case Route::kPeerWorkers:
      return Peers(page.route);
    case Route::kScale:
      return ScaleReply(
          *scale_->Report(),
          page.detail.empty() ? std::nullopt : std::optional(page.detail.substr(kModelDetail.size())));
    case Route::kConfig:
      return configuration_->Config();
    case Route::kPrefixRoutingStats:
      return PrefixRouting(settings);
    case Route::kIndexStats:
      return IndexStats();
    case Route::kKvEvents:
      return KvEvents(thread);
    case Route::kKvIndexStats:
      return KvIndexStats(thread);
    case Route::kKvIndexBackends:
      return KvIndexBackends();
    case Route::kCacheStats:
      return CacheStats(thread, settings, !page.detail.empty());
    default:
      return {.body = metrics_->Text(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  }
}

Task<AdminReply> Admin::Respond(IoThread& thread, AdminRequest request) {
  switch (request.route) {
    case Route::kRoot:  // that there is a router is all that it says
      co_return AdminReply{};
    case Route::kLiveness:
      co_return Text(200, "OK");
    case Route::kWorkers:
      if (request.method == "POST") {
        AdminReply reply = co_await AddAsCalled(thread, request, /*as_json=*/true);
        co_return reply;
      }
      [[fallthrough]];
    case Route::kHealth:
    case Route::kReadiness:
    case Route::kListWorkers:
    case Route::kDrainStatus:
    case Route::kDiscovery:
    case Route::kPeerStatus:
    case Route::kPeerHealth:
    case Route::kPeerWorkers:
    case Route::kScale:
    case Route::kConfig:
    case Route::kPrefixRoutingStats:
    case Route::kKvEvents:
    case Route::kKvIndexStats:
    case Route::kKvIndexBackends:
    case Route::kCacheStats:
    case Route::kIndexStats:
    case Route::kMetrics: {
      StatusOr<std::string> detail = DetailOf(request);
      if (!detail.ok()) co_return Refusal(detail.status());
      PageKey key{request.route, *std::move(detail)};
      PageRenderer::Render render = [this, &thread, settings = thread.settings.Get(), key] {
        return Render(thread, *settings, key);
      };
      AdminReply reply = co_await Page(thread, request.scope, std::move(key), std::move(render));
      co_return reply;
    }
    case Route::kLoads: {
      AdminReply reply = co_await Shared(loads_, thread, request.scope);
      co_return reply;
    }
    case Route::kDrain: {
      AdminReply reply = co_await Drain(thread, request);
      co_return reply;
    }
    case Route::kDiscoveryAdopt:
      co_return AdoptDiscovered(thread, request);
    case Route::kReload: {
      AdminReply reply = co_await ReloadSettings(thread, request);
      co_return reply;
    }
    case Route::kKvEventsResync:
      co_return ResyncKvEvents(request);
    case Route::kKvEventsPush:
      co_return PushKvEvents(thread, request);
    case Route::kKvIndexClear: {
      AdminReply reply = co_await KvIndexClear(thread);
      co_return reply;
    }
    case Route::kCacheInvalidate: {
      AdminReply reply = co_await CacheInvalidate(thread, request);
      co_return reply;
    }
    case Route::kIndexClear:
      co_return IndexClear();
    case Route::kFinishSession:
      co_return FinishSession(request);
    case Route::kServerOptions:
      co_return Text(200, "");
    case Route::kModels: {
      AdminReply reply = co_await ModelList(thread, request);
      co_return reply;
    }
    case Route::kModel: {
      const std::string_view encoded = request.path.substr(std::string_view("/v1/models/").size());
      AdminReply reply = co_await OneModel(thread, request, encoded);
      co_return reply;
    }
    case Route::kWorker: {
      const std::string_view encoded = request.path.substr(std::string_view("/workers/").size());
      co_return request.method == "DELETE" ? RemoveByPath(encoded) : OneWorker(encoded);
    }
    case Route::kRemoveWorker:
      co_return RemoveAsCalled(request);
    case Route::kAddWorker: {
      AdminReply reply = co_await AddAsCalled(thread, request, /*as_json=*/false);
      co_return reply;
    }
    default:
      co_return Error(HttpError::kNotFound, ErrorOf(HttpError::kNotFound).message);
  }
}

// 200 while any worker serves: one unhealthy worker must not take the whole router out of a load
// balancer. An unchecked worker gets requests, so it counts as serving, and the text says that this is
// assumed. With --health-compat 503 as soon as one is unhealthy, as in the reference router. That router
// opens its port once its workers are healthy, so 503 as well while one is unchecked.
AdminReply Admin::Health(const Settings& settings) const {
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  const bool checks = health_->checks();
  json::array unhealthy;
  size_t unknown = 0;
  for (const FleetView::Member& member : fleet->members()) {
    if (!member.healthy) {
      unhealthy.emplace_back(member.worker->url.url);
    } else if (checks && !member.worker->health_known.load(std::memory_order_relaxed)) {
      ++unknown;
    }
  }
  const StageViews* const stages = fleet->stages();
  const bool has_pair =
      stages == nullptr || (stages->prefill->in_rotation() != 0 && stages->decode->in_rotation() != 0);
  // Without a member there is nothing to be ill, unless workers are expected.
  const bool is_idle = fleet->members().empty() && !(stages != nullptr && settings.pd.discovers);
  const bool serves = (fleet->in_rotation() != 0 && has_pair) || is_idle;
  const bool is_awaited = !serves && settings.pd.discovers;
  const bool good = settings.health_compat ? unhealthy.empty() && unknown == 0 && !is_awaited : serves;
  const bool panic = fleet->in_rotation() != 0 && fleet->eligible().empty();
  if (good && !panic && unhealthy.empty() && unknown == 0) return Text(200, "All servers healthy");
  std::string text;
  const auto add = [&text](std::string_view sentence) {
    text.append(text.empty() ? "" : ". ").append(sentence);
  };
  if (good) add("Serving");
  if (panic) add("Panic mode: all circuit breakers are open");
  if (unknown != 0) {
    add(Concat("Not checked yet: ", unknown, " of ", fleet->members().size(), " servers"));
  }
  if (!unhealthy.empty()) add("Unhealthy servers: " + JsonText(unhealthy));
  if (!serves && !has_pair) add(AwaitedPairMessage(settings.pd, *fleet));
  if (text.empty()) add("All servers are draining");
  return Text(good ? 200 : 503, std::move(text));
}

// `tried`: a worker has passed a health check. Workers count as healthy until a check fails, but at the
// start that means nothing yet.
AdminReply Admin::Readiness(const Settings& settings, bool tried) const {
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  if (fleet->stages() != nullptr) return StagedReadiness(settings, *fleet, tried);
  const size_t total = fleet->members().size();
  if (draining_.load(std::memory_order_relaxed)) {
    return Json(503, {{"status", "not_ready"}, {"reason", "shutting down"}, {"total_workers", total}});
  }
  if (fleet->in_rotation() == 0) {
    const std::string awaited = AwaitedSource(router_->pool().registry());
    const std::string_view reason =
        awaited.empty() ? "no healthy workers available" : std::string_view(awaited);
    return Json(503, {{"status", "not_ready"}, {"reason", reason}, {"total_workers", total}});
  }
  if (!tried) {
    return Json(
        503, {{"status", "not_ready"},
              {"reason", "no worker has passed a health check yet"},
              {"total_workers", total}});
  }
  return Json(
      200, {{"status", "ready"}, {"healthy_workers", fleet->in_rotation()}, {"total_workers", total}});
}

// A request needs a worker of each stage.
AdminReply Admin::StagedReadiness(const Settings& settings, const FleetView& fleet, bool tried) const {
  const FleetView& prefill = *fleet.stages()->prefill;
  const FleetView& decode = *fleet.stages()->decode;
  std::string reason;
  if (draining_.load(std::memory_order_relaxed)) {
    reason = "shutting down";
  } else if (prefill.eligible().empty() || decode.eligible().empty()) {
    reason = AwaitedSource(router_->pool().registry());
    if (reason.empty()) reason = AwaitedPairMessage(settings.pd, fleet);
  } else if (!tried) {
    reason = "no worker has passed a health check yet";
  }
  json::object body = {
      {"status", reason.empty() ? "ready" : "not_ready"},
      {"prefill", Describe(prefill)},
      {"decode", Describe(decode)}};
  if (reason.empty()) return Json(200, std::move(body));
  body["reason"] = reason;
  return Json(503, std::move(body));
}

// The same members for every policy: without prefix_aware nothing is enabled and nothing counted.
AdminReply Admin::PrefixRouting(const Settings& settings) const {
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  StatsTable stats("prefix_routing");
  router_->pool().Report(*fleet, &stats);
  const PolicyOptions& options = router_->options().policy;
  const uint64_t overflow = stats.Value("overflow");
  const uint64_t total = stats.Value("prefix_hash") + overflow + stats.Value("fallback");
  char rate[32];
  std::snprintf(
      rate, sizeof rate, "%.4f",
      total == 0 ? 0.0 : static_cast<double>(overflow) / static_cast<double>(total));
  json::array distribution;
  for (const FleetView::Member& member : fleet->members()) {
    distribution.push_back(json::object{
        {"backend", member.worker->url.url}, {"in_flight_requests", member.worker->load.open_requests()}});
  }
  return Json(
      200, {{"enabled", stats.found()},
            {"config",
             {{"max_prefix_length", router_->options().max_prefix_length},
              {"load_factor_epsilon", static_cast<double>(options.load_factor_epsilon) / 1000},
              {"virtual_nodes", options.virtual_nodes},
              {"prefix_load_floor", options.prefix_load_floor},
              {"anthropic_cache_control_injection", settings.anthropic_cache_control_injection}}},
            {"routing_decisions",
             {{"total", total},
              {"prefix_hash", stats.Value("prefix_hash")},
              {"overflow", overflow},
              {"fallback", stats.Value("fallback")},
              {"overflow_rate", rate}}},
            {"backend_distribution", std::move(distribution)},
            {"unique_prefixes", stats.Value("unique_prefixes")}});
}

// The same members for every policy: one that matches no blocks has none.
AdminReply Admin::IndexStats() const {
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  StatsTable stats("block_index");
  router_->pool().Report(*fleet, &stats);
  json::array workers;
  for (size_t i = 0; stats.found() && i < fleet->members().size(); ++i) {
    workers.push_back(json::object{
        {"url", fleet->worker(static_cast<uint32_t>(i)).url.url},
        {"blocks", stats.OfWorker("workers", i)},
        {"max_blocks", stats.OfWorker("max_blocks", i)},
        {"block_size", stats.OfWorker("block_sizes", i)}});
  }
  return Json(
      200, {{"enabled", stats.found()},
            {"policy", std::string(router_->policy().name())},
            {"block_size", router_->options().policy.block_size},
            {"max_blocks_per_worker", router_->options().policy.max_blocks_per_worker},
            {"blocks", stats.Value("blocks")},
            {"worker_blocks", stats.Value("worker_blocks")},
            {"bytes", stats.Value("bytes")},
            {"recorded_requests", stats.Value("recorded_requests")},
            {"evicted_blocks", stats.Value("evicted_blocks")},
            {"prompt_blocks", stats.Value("prompt_blocks")},
            {"matched_blocks", stats.Value("matched_blocks")},
            {"workers", std::move(workers)}});
}

AdminReply Admin::IndexClear() const {
  KvIndex* const index = router_->pool().index();
  const uint64_t held = index != nullptr ? index->tracker().stats().worker_blocks() : 0;
  if (index != nullptr) index->Clear();
  return Json(200, {{"cleared_worker_blocks", held}});
}

// `?session_id=S`, or as a JSON object in the body. A repeated call gets the same response.
AdminReply Admin::CacheStats(const IoThread& thread, const Settings& settings, bool detail) const {
  std::optional<SharedCacheFigures> shared;
  if (shared_responses_.service != nullptr) {
    const RedisResponses::Stats stats = shared_responses_.responses->stats();
    const std::optional<int64_t> entries = shared_responses_.service->entries();
    shared = {
        .pool = shared_responses_.pool,
        .refused = shared_responses_.responses->refused(),
        .entries = static_cast<uint64_t>(entries.value_or(0)),
        .late = stats.late,
        .dropped = stats.dropped};
  }
  return CacheStatsReply(thread.limits.response_cache, settings.response_cache, shared, detail);
}

// What Redis was told of an invalidation. It holds here at once in any case.
Task<SharedInvalidation> Admin::InvalidateShared(IoThread& thread, CancelScope& scope, bool deletes) const {
  struct Call {
    EventLoop& loop;
    CancelScope* waiting;  // null: not any more
    SharedInvalidation done;
  };
  const auto call = std::make_shared<Call>(Call{thread.loop, &scope, {}});
  shared_responses_.control->loop.Post([call, deletes, service = shared_responses_.service] {
    Spawn([](ResponseCacheService& service, std::shared_ptr<Call> call, bool deletes) -> Task<void> {
      SharedInvalidation done;
      if (deletes) {
        const StatusOr<int64_t> cleared = co_await service.Clear(nullptr);
        done.cleared = static_cast<uint64_t>(cleared.ok() ? *cleared : 0);
      }
      done.told = co_await service.Told();
      call->loop.Post([call, done] {
        call->done = done;
        if (call->waiting != nullptr) call->waiting->EndPause();
      });
    }(*service, call, deletes));
  });
  constexpr int64_t kToldNanos = kNanosPerSecond;
  const int64_t most = deletes ? ResponseCacheService::kClearNanos + 5 * kNanosPerSecond : kToldNanos;
  co_await scope.Pause(thread.loop, most);
  call->waiting = nullptr;
  co_return call->done;
}

Task<AdminReply> Admin::CacheInvalidate(IoThread& thread, const AdminRequest& request) const {
  if (!request.settings.response_cache.enabled) {
    co_return InvalidateRefused(409, "the response cache is off; set response_cache.enabled to true");
  }
  const StatusOr<InvalidateCall> call = ReadInvalidateCall(request.body);
  if (!call.ok()) co_return InvalidateRefused(400, std::string(call.status().message()));
  ResponseCache& cache = thread.limits.response_cache;
  const bool is_shared = shared_responses_.service != nullptr;
  uint64_t cleared = 0;
  SharedInvalidation shared;
  if (const auto* const one = std::get_if<InvalidateResponse>(&*call)) {
    cleared = cache.memory.Delete(one->key) ? 1 : 0;
    shared.told = is_shared && shared_responses_.responses->usable();
    if (thread.redis_responses != nullptr) thread.redis_responses->Delete(one->key);
  } else if (const auto* const model = std::get_if<InvalidateModelResponses>(&*call);
             model != nullptr && request.settings.response_cache.rules.has_generations()) {
    cache.InvalidateModel(model->model);
    // Requests for an alias are judged as ones for the model that they went to.
    if (const ModelAliases::Alias* const alias = request.settings.model_aliases.Find(model->model)) {
      for (const ModelAliases::Target& target : alias->targets) cache.InvalidateModel(target.model);
    }
    if (is_shared) shared = co_await InvalidateShared(thread, request.scope, /*deletes=*/false);
  } else {
    cleared = cache.InvalidateAll(/*deletes=*/false);
    if (is_shared) shared = co_await InvalidateShared(thread, request.scope, /*deletes=*/true);
    cleared += shared.cleared;
  }
  co_return InvalidatedReply(*call, cleared, is_shared ? std::optional(shared.told) : std::nullopt);
}

AdminReply Admin::FinishSession(const AdminRequest& request) const {
  std::string session;
  if (request.query.empty()) {
    boost::system::error_code error;
    const json::value body = json::parse(WithoutByteOrderMark(request.body), error);
    const json::value* id = !error && body.is_object() ? body.as_object().if_contains("session_id") : nullptr;
    if (id != nullptr && id->is_string()) session = std::string(id->as_string());
  } else {
    StatusOr<std::optional<std::string>> id = QueryValue(request.query, "session_id");
    if (!id.ok()) return Refusal(id.status());
    session = std::move(*id).value_or(std::string());
  }
  if (session.empty()) {
    return Error(
        HttpError::kInvalidArgument,
        "'session_id' is missing; send it as ?session_id=S, or as {\"session_id\": \"S\"}.");
  }
  const bool known = router_->FinishSession(session);
  // clients of vllm-project/router read `status` and `session_id`.
  return Json(
      200, {{"success", true},
            {"known", known},
            {"status", "ok"},
            {"session_id", json::parse(JsonQuoted(session))}});
}

AdminReply Admin::KvEvents(const IoThread& thread) const {
  const KvIndex* const index = router_->pool().index();
  json::array sources;
  const std::vector<KvSourceStatus> statuses =
      kv_events_ != nullptr ? kv_events_->Report() : std::vector<KvSourceStatus>();
  const auto counts = [](const KvSourceStatus::Counts& by_label) {
    json::object object;
    for (const auto& [label, count] : by_label) object[label] = count;
    return object;
  };
  for (const KvSourceStatus& status : statuses) {
    sources.push_back(json::object{
        {"worker", status.source.url},
        {"rank", status.source.rank},
        {"kind", KvSourceKindName(status.source.kind)},
        {"endpoint", status.source.endpoint},
        {"replay_endpoint", status.source.replay_endpoint},
        {"model", status.source.model},
        {"trust", KvTrustName(status.trust)},
        {"trust_seconds", status.trust_seconds},
        {"connected", status.connected},
        {"reconnects", status.reconnects},
        {"incarnation", status.incarnation},
        {"next_number", status.next_number},
        {"lag_seconds", status.lag_seconds},
        {"block_size", status.block_size},
        {"coverage", status.coverage},
        {"gpu_blocks", status.blocks[0]},
        {"host_blocks", status.blocks[1]},
        {"external_blocks", status.blocks[2]},
        {"orphan_blocks", status.orphan_blocks},
        {"stored_blocks", status.stored_blocks},
        {"removed_blocks", status.removed_blocks},
        {"received_batches", status.received_batches},
        {"applied_batches", status.applied_batches},
        {"lost_batches", status.lost_batches},
        {"held_bytes", status.held_bytes},
        {"replays", counts(status.replays)},
        {"incarnations", counts(status.incarnations)},
        {"dropped", counts(status.dropped)}});
  }
  json::object response{
      {"enabled", index != nullptr && index->reported().active()},
      {"block_size", router_->options().policy.block_size},
      {"sources", std::move(sources)},
      {"pushed", pushes_ != nullptr ? PushedSources(*pushes_, *router_) : json::array()}};
  if (!thread.options.kv_events_bind.empty()) {
    json::array listeners;
    for (const DialInStatus& status :
         kv_events_ != nullptr ? kv_events_->DialInReport() : std::vector<DialInStatus>()) {
      listeners.push_back(json::object{
          {"endpoint", status.endpoint},
          {"bound", status.bound},
          {"unknown_worker", status.unknown_worker},
          {"malformed", status.malformed}});
    }
    response["listeners"] = std::move(listeners);
  }
  if (thread.limits.shared_pool != nullptr) {
    const MooncakePool::State state = thread.limits.shared_pool->state();
    response["shared_pool"] = {
        {"type", "hicache"},
        {"urls", json::array(state.masters.begin(), state.masters.end())},
        {"layouts", json::array(state.layouts.begin(), state.layouts.end())},
        {"page_size", state.page_size},
        {"paused", state.paused},
        {"hits", state.hits}};
  }
  return Json(200, response);
}

AdminReply Admin::ResyncKvEvents(const AdminRequest& request) const {
  const StatusOr<FleetCall> call =
      request.query.empty() ? CallInBody(request.body) : CallInQuery(request.query);
  if (!call.ok()) return Refusal(call.status());
  if (kv_events_ == nullptr || !kv_events_->Resync(call->url)) {
    return Error(
        HttpError::kNotFound,
        Concat(
            "worker ", Quoted(call->url),
            " has no source of KV events; GET /admin/kv-events lists those that have one"));
  }
  return Json(202, {{"url", call->url}, {"resync", true}});
}

void Admin::TakePushedKvEvents() {
  pushes_ = std::make_unique<KvPushReceiver>(&router_->pool().index()->reported());
}

AdminReply Admin::PushKvEvents(const IoThread& thread, const AdminRequest& request) {
  if (pushes_ == nullptr) {
    return Error(
        HttpError::kNotFound, "This router takes no KV events by request; start it with --kv-events-push.");
  }
  const StatusOr<KvPushCall> call = ReadKvPushCall(request.body);
  if (!call.ok()) return Refusal(call.status());
  const std::string& model = call->model.empty() ? thread.options.kv_event_model : call->model;
  if (model.empty()) {
    return Error(
        HttpError::kInvalidArgument,
        "'model' is missing: the base model's name as requests have it, for all pushes --kv-event-model");
  }
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  const std::optional<uint32_t> position = fleet->Find(call->worker);
  const auto unknown = [&call] {
    return Error(HttpError::kNotFound, Concat("worker ", Quoted(call->worker), " is not in the fleet"));
  };
  if (!position) return unknown();
  const WorkerId worker = fleet->worker(*position).id;
  KvIndex& index = *router_->pool().index();
  const KvPushReceiver::Result result = pushes_->Push(
      {.worker = worker,
       .rank = call->rank,
       .number = call->number,
       .reset = call->reset,
       .model = model,
       .payload = std::span(reinterpret_cast<const uint8_t*>(call->payload.data()), call->payload.size())},
      thread.clock.NowNanos());
  switch (result.verdict) {
    case KvPushReceiver::Verdict::kGap:
      return Json(409, {{"accepted", false}, {"expected_seq", result.next}});
    case KvPushReceiver::Verdict::kMalformed:
      return Error(HttpError::kInvalidArgument, "'events' is no list of KV events; nothing was applied");
    case KvPushReceiver::Verdict::kWorkerLeft:
      return unknown();
    case KvPushReceiver::Verdict::kOtherModel:
      return Error(
          HttpError::kInvalidArgument,
          "'model' is another than the one whose blocks this rank has; push with \"reset\": true", 409);
    case KvPushReceiver::Verdict::kTooManyModels:
      return Error(
          HttpError::kInvalidArgument,
          Concat("'model' is one more than the ", ReportedBlocks::kMaxPushedModels, " that were pushed"),
          409);
    case KvPushReceiver::Verdict::kAccepted:
      break;
  }
  if (call->reset || result.cleared) index.ForgetPredictions(worker);
  json::object reply{{"accepted", true}, {"next_seq", result.next}};
  if (result.unusable != 0) {
    reply["unusable_events"] = result.unusable;
    reply["reason"] = result.why;
  }
  return Json(202, std::move(reply));
}

// Members, order and types of the next three are those of Continuum Router.
AdminReply Admin::KvIndexStats(const IoThread& thread) const {
  const PrefixTable* const table = TableOf(*router_);
  if (table == nullptr) return Json(200, {{"enabled", false}});
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  StatsTable decisions("kv_overlap");
  router_->pool().Report(*fleet, &decisions);
  const uint64_t kv_aware = decisions.Value("kv_aware");
  const uint64_t fallback =
      decisions.Value("prefix_hash") + decisions.Value("overflow") + decisions.Value("fallback");
  const std::vector<PrefixSourceStatus> statuses = prefix_events_->Report();
  json::array sources;
  for (const PrefixSourceStatus& status : statuses) {
    sources.push_back(json::object{
        {"backend_name", status.name},
        {"connected", status.connected},
        {"events_received", status.received},
        {"events_dropped", status.dropped},
        {"last_event_at", TimeOrNull(status.last_event_secs)},
        {"reconnect_count", status.reconnects}});
  }
  const PrefixTable::Stats stats = table->stats();
  const PolicyOptions& options = router_->options().policy;
  return Json(
      200, {{"enabled", true},
            {"config",
             {{"backend", thread.shared_prefixes != nullptr ? "redis" : "memory"},
              {"max_entries", table->options().max_entries},
              {"entry_ttl_seconds", table->options().ttl_ns / kNanosPerSecond},
              {"event_sources_count", statuses.size()},
              {"scoring",
               {{"overlap_weight", options.kv_overlap_weight},
                {"load_weight", options.kv_load_weight},
                {"health_weight", options.kv_health_weight},
                {"min_overlap_threshold", options.kv_min_overlap_threshold}}}}},
            {"index",
             {{"prefix_count", stats.prefixes},
              {"entry_count", stats.entries},
              {"total_hits", stats.hits},
              {"total_evictions", stats.evictions}}},
            {"event_sources", std::move(sources)},
            {"routing_decisions",
             {{"kv_aware", kv_aware}, {"fallback", fallback}, {"total", kv_aware + fallback}}},
            {"query_latency_count", kv_aware + fallback},
            {"overlap_score_count", kv_aware}});
}

AdminReply Admin::KvIndexBackends() const {
  if (TableOf(*router_) == nullptr) return Json(200, {{"enabled", false}});
  json::array backends;
  for (const PrefixSourceStatus& status : prefix_events_->Report()) {
    backends.push_back(json::object{
        {"backend_name", status.name},
        {"connection",
         {{"connected", status.connected},
          {"reconnect_count", status.reconnects},
          {"last_event_at", TimeOrNull(status.last_event_secs)}}},
        {"events",
         {{"received", status.received},
          {"dropped", status.dropped},
          {"index_created", status.created},
          {"index_evicted", status.evicted}}}});
  }
  return Json(200, {{"enabled", true}, {"backends", std::move(backends)}});
}

Task<AdminReply> Admin::KvIndexClear(IoThread& thread) const {
  PrefixTable* const table = TableOf(*router_);
  if (table == nullptr) {
    co_return Error(
        HttpError::kInvalidArgument,
        "The prefix index is off, so there is nothing to clear; set --kv-index-max-entries, or "
        "kv_cache_index.enabled in the file of settings.",
        409);
  }
  PrefixTable::Cleared cleared;
  while (table->ClearNext(&cleared)) co_await thread.loop.Yield();
  co_return Json(
      200, {{"success", true},
            {"entries_before_clear", cleared.entries},
            {"cleared_entries", cleared.workers.size()}});
}

namespace {

// Of one worker or of the ranks of a host: `ended` once none of them drains any more.
json::object Describe(const std::vector<Drainer::Row>& rows, int64_t now) {
  json::array workers;
  bool ended = true;
  for (const Drainer::Row& row : rows) {
    const bool drains = row.state == Drainer::State::kDraining;
    ended = ended && !drains;
    workers.push_back(json::object{
        {"url", row.url},
        {"state", Drainer::StateName(row.state)},
        {"open_requests", row.open_requests},
        {"seconds", static_cast<double>(((drains ? now : row.ended_ns) - row.begun_ns) / kNanosPerMs) / 1000},
        {"timeout_secs", static_cast<double>(row.timeout_ms) / 1000}});
  }
  return {{"ended", ended}, {"workers", std::move(workers)}};
}

StatusOr<int64_t> WaitOf(const FleetCall& call) {
  const double seconds = call.wait.value_or(0);
  if (seconds >= 0 && seconds <= kMostWaitSeconds) return static_cast<int64_t>(seconds * kNanosPerSecond);
  return absl::InvalidArgumentError(Concat(
      "'wait' is ", JsonText(seconds), "; it must be a number of seconds between 0 and ", kMostWaitSeconds,
      ", for which the response waits for the end of the drain"));
}

}  // namespace

Task<AdminReply> Admin::Drain(IoThread& thread, const AdminRequest& request) {
  const StatusOr<FleetCall> call =
      request.query.empty() ? CallInBody(request.body) : CallInQuery(request.query);
  if (!call.ok()) co_return Refusal(call.status());
  const StatusOr<int64_t> wait_ns = WaitOf(*call);
  if (!wait_ns.ok()) co_return Refusal(wait_ns.status());
  const bool back = request.method == "DELETE";
  int64_t timeout_ms = request.settings.drain_timeout_ms;
  if (call->timeout_secs.has_value() && !back) {
    const double seconds = *call->timeout_secs;
    if (!(seconds >= 0 && seconds <= kMostDrainSeconds)) {
      co_return Error(
          HttpError::kInvalidArgument,
          Concat(
              "'timeout_secs' is ", JsonText(seconds), "; it must be a number of seconds between 0 and ",
              kMostDrainSeconds, " (--drain-timeout-secs when it is missing)"));
    }
    timeout_ms = static_cast<int64_t>(seconds * 1000);
  }
  const Status done = back ? drainer_->Cancel(call->url) : drainer_->Begin(call->url, timeout_ms);
  if (!done.ok()) co_return Error(HttpError::kNotFound, std::string(done.message()));
  json::object reply = {{"url", call->url}, {"draining", !back}};
  if (!back) reply["timeout_secs"] = static_cast<double>(timeout_ms) / 1000;
  TellPeers(
      {.kind = AdminFact::Kind::kDrain,
       .url = call->url,
       .holds = !back,
       .timeout_ms = static_cast<uint32_t>(timeout_ms)},
      &reply);
  if (back || *wait_ns == 0) co_return Json(back ? 200 : 202, std::move(reply));
  co_await WaitForDrain(thread, request.scope, call->url, *wait_ns);
  const std::vector<Drainer::Row> rows = drainer_->Rows(call->url);
  const bool has_left = !router_->pool().registry().Named(call->url).ok();
  if (rows.empty() && has_left) {  // so many ended with it that its row is gone
    reply["draining"] = false;
    reply["ended"] = true;
    co_return Json(200, std::move(reply));
  }
  if (rows.empty()) {
    co_return Error(
        HttpError::kInvalidArgument,
        Concat(
            "worker ", Quoted(call->url),
            " serves again: its drain was ended by DELETE /admin/drain, or it was added ",
            "again; do not stop it"),
        409);
  }
  json::object state = Describe(rows, drainer_->Now());
  const bool ended = state["ended"].as_bool();
  reply["draining"] = !ended;
  for (auto& [name, value] : state) reply[name] = std::move(value);
  co_return Json(ended ? 200 : 202, std::move(reply));
}

Task<void> Admin::WaitForDrain(IoThread& thread, CancelScope& scope, std::string_view url, int64_t wait_ns) {
  const int64_t until_ns = thread.clock.NowNanos() + wait_ns;
  scope.set_long();
  if (thread.draining) scope.Cancel();
  for (;;) {
    const int64_t left_ns = until_ns - thread.clock.NowNanos();
    const std::vector<Drainer::Row> rows = drainer_->Rows(url);
    const bool drains = std::ranges::any_of(
        rows, [](const Drainer::Row& row) { return row.state == Drainer::State::kDraining; });
    if (!drains || left_ns <= 0) co_return;
    const bool go_on = co_await scope.Pause(thread.loop, std::min(left_ns, kDrainLookNanos));
    if (!go_on) co_return;
  }
}

AdminReply Admin::DrainStatus(std::string_view url) const {
  const std::vector<Drainer::Row> rows = drainer_->Rows(url);
  json::object state = Describe(rows, drainer_->Now());
  if (url.empty()) return Json(200, {{"workers", std::move(state["workers"])}});
  if (!rows.empty()) return Json(200, std::move(state));
  return Error(
      HttpError::kNotFound,
      Concat(
          "worker ", Quoted(url),
          " does not drain, and none of that URL has been drained since it joined; POST ",
          "/admin/drain begins it, GET /admin/drain/status without a URL lists all"));
}

AdminReply Admin::AdoptDiscovered(const IoThread& thread, const AdminRequest& request) const {
  const StatusOr<std::optional<std::string>> source = QueryValue(request.query, "source");
  if (!source.ok()) return Refusal(source.status());
  if (source->value_or("").empty()) {
    return Error(
        HttpError::kInvalidArgument,
        "The query parameter 'source' is missing; write for example ?source=file.");
  }
  const StatusOr<std::vector<std::string>> left =
      router_->pool().registry().Adopt(**source, thread.clock.NowNanos());
  if (!left.ok()) return Error(HttpError::kNotFound, std::string(left.status().message()));
  return Json(200, {{"source", **source}, {"left", json::array(left->begin(), left->end())}});
}

Task<AdminReply> Admin::ReloadSettings(IoThread& thread, const AdminRequest& request) {
  const StatusOr<bool> dry_run = DryRunOf(request);
  if (!dry_run.ok()) co_return Refusal(dry_run.status());
  AdminReply reply = co_await configuration_->Reload(thread, request.scope, *dry_run);
  co_return reply;
}

AdminReply Admin::ListWorkers() const {
  json::array urls;
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  for (const FleetView::Member& member : fleet->members()) urls.emplace_back(member.worker->url.url);
  return Json(200, json::object{{"urls", std::move(urls)}});
}

AdminReply Admin::Workers() const {
  json::array workers;
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  std::array<size_t, 3> counts{};  // by stage
  const std::vector<std::string_view> models = FirstModels(*fleet, model_service_->guarded());
  for (const FleetView::Member& member : fleet->members()) {
    workers.emplace_back(Describe(member, models[workers.size()]));
    ++counts[static_cast<size_t>(member.worker->stage)];
  }
  const size_t total = workers.size();
  const auto [regular, prefill, decode] = counts;
  return Json(
      200, {{"workers", std::move(workers)},
            {"total", total},
            {"stats", {{"prefill_count", prefill}, {"decode_count", decode}, {"regular_count", regular}}}});
}

AdminReply Admin::OneWorker(std::string_view encoded_url) const {
  const std::optional<std::string> url = PercentDecoded(encoded_url, false);
  if (!url.has_value()) return NoUrlInPath(encoded_url);
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  const std::optional<uint32_t> position = fleet->Find(*url);
  if (!position.has_value()) return NoSuchWorker("Worker " + *url + " not found");
  return Json(
      200, Describe(fleet->members()[*position], FirstModels(*fleet, model_service_->guarded())[*position]));
}

AdminReply Admin::Remove(std::string_view url, bool as_json) {
  const Status removed = router_->RemoveWorker(url);
  const std::string message =
      removed.ok() ? "Successfully removed worker: " + std::string(url) : std::string(removed.message());
  json::object reply = {{"success", true}, {"message", message}};
  // Others may have a worker that is gone here.
  if (removed.ok() || absl::IsNotFound(removed)) TellPeers({.url = std::string(url), .holds = false}, &reply);
  if (as_json) {
    if (absl::IsPermissionDenied(removed))
      return Json(409, {{"error", message}, {"code", kDeclaredElsewhere}});
    return removed.ok() ? Json(200, std::move(reply)) : NoSuchWorker(message);
  }
  if (absl::IsPermissionDenied(removed)) return Error(HttpError::kInvalidArgument, message, 409);
  // The requested state holds, and programs that remove workers twice rely on success.
  if (removed.ok() || absl::IsNotFound(removed)) return Text(200, message);
  return Error(HttpError::kInvalidArgument, message);
}

AdminReply Admin::RemoveByPath(std::string_view encoded_url) {
  const std::optional<std::string> url = PercentDecoded(encoded_url, false);
  return url.has_value() ? Remove(*url, /*as_json=*/true) : NoUrlInPath(encoded_url);
}

AdminReply Admin::RemoveAsCalled(const AdminRequest& request) {
  const StatusOr<FleetCall> call = ReadCall(request);
  if (!call.ok()) return Refusal(call.status());
  return Remove(call->url, /*as_json=*/false);
}

Task<AdminReply> Admin::Add(IoThread& thread, const AdminRequest& request, NewWorker worker, bool as_json) {
  const std::string url = worker.url;
  AdminFact told = {
      .url = url,
      .weight = static_cast<uint32_t>(std::lround(worker.weight * kWeightOne)),
      .receives_api_key = worker.receives_api_key,
      .role = worker.role};
  const Status status = co_await AddWhenHealthy(thread, request, std::move(worker));
  const std::string message =
      status.ok() ? "Successfully added worker: " + url : std::string(status.message());
  json::object reply = {{"success", true}, {"message", message}};
  if (status.ok()) TellPeers(std::move(told), &reply);
  if (as_json) {
    co_return status.ok() ? Json(200, std::move(reply))
                          : Json(400, {{"error", message}, {"code", "ADD_WORKER_FAILED"}});
  }
  if (status.ok()) co_return Text(200, message);
  co_return Error(HttpError::kInvalidArgument, message);
}

// A worker joins once it passes its health check, so that adding it never makes a request fail. Errors
// that are known without the check are reported before the wait.
Task<Status> Admin::AddWhenHealthy(IoThread& thread, const AdminRequest& request, NewWorker added) {
  const Status may = router_->MayAddWorker(added.url, added.weight, added.role);
  if (!may.ok()) co_return may;
  WorkerUrl worker = *ParseWorkerUrl(added.url);
  worker.receives_api_key = added.receives_api_key;
  const Settings& settings = request.settings;
  CancelScope& scope = request.scope;
  const int64_t give_up = thread.clock.NowNanos() + settings.worker_startup_timeout_ms * kNanosPerMs;
  scope.set_long();
  if (thread.draining) scope.Cancel();
  while (!scope.cancelled()) {
    const StatusOr<HttpResponse> response = co_await thread.http.Get(
        &scope, worker, settings.health_check_endpoint, settings.health_check_timeout_ms);
    if (IsSuccess(response)) {
      if (settings.model_refresh_ms > 0) {  // its models are known before it gets a request
        const StatusOr<HttpResponse> list = co_await thread.http.Get(
            &scope, worker, "/v1/models", settings.health_check_timeout_ms, kMaxModelReportBytes);
        std::optional<std::vector<ModelCard>> cards;
        if (list.ok() && list->status == 200) cards = ModelsInReport(list->body);
        if (cards) router_->pool().registry().SetModels(worker.base, *cards, thread.clock.NowNanos());
        if (scope.cancelled()) break;
      }
      const Status joined = router_->AddWorker(added.url, added.weight, added.receives_api_key, added.role);
      router_->fleet()->MarkChecked(worker.base);
      drainer_->ForgetReturned();
      if (joined.ok() && !added.receives_api_key && !thread.bearer.empty()) {
        Log(LogLevel::kWarning,
            "worker " + worker.url +
                " was added by a request without an admin key, so it does not receive --api-key; set "
                "--admin-api-key-file and add it again, or name it in --worker-urls");
      }
      co_return joined;
    }
    if (response.ok() && response->status == ErrorOf(HttpError::kLoopDetected).status) {
      co_return absl::InvalidArgumentError(
          "worker " + worker.url + " leads back to this router; give the address of an engine");
    }
    const int64_t left = give_up - thread.clock.NowNanos();
    const int64_t pause = std::min(left, settings.worker_startup_check_ms * kNanosPerMs);
    const bool go_on = co_await scope.Pause(thread.loop, pause);
    if (go_on && thread.clock.NowNanos() < give_up) continue;
    co_return absl::DeadlineExceededError(
        "worker " + worker.url + " did not pass its health check (" + settings.health_check_endpoint +
        ") within " + std::to_string(settings.worker_startup_timeout_ms / 1000) +
        " s (--worker-startup-timeout-secs): it " +
        ProbeFailure(worker, settings.health_check_endpoint, response, thread.http.KeyUseFor(worker)) +
        "; start it, then add it again");
  }
  co_return absl::CancelledError("the request was cancelled");
}

Task<AdminReply> Admin::AddAsCalled(IoThread& thread, const AdminRequest& request, bool as_json) {
  if (!as_json &&
      router_->is_staged()) {  // POST /workers names the stage; the text is the reference router's
    co_return Text(400, "PD router requires specific add_prefill_server or add_decode_server methods");
  }
  const StatusOr<FleetCall> call = as_json ? CallInBody(request.body) : ReadCall(request);
  if (!call.ok() && as_json) {
    co_return Json(400, {{"error", std::string(call.status().message())}, {"code", "ADD_WORKER_FAILED"}});
  }
  if (!call.ok()) co_return Refusal(call.status());
  NewWorker worker{
      .url = call->url,
      .weight = call->weight,
      .receives_api_key = request.has_admin_key,
      .role = call->role};
  AdminReply reply = co_await Add(thread, request, std::move(worker), as_json);
  co_return reply;
}

// As the workers report, all polled at once; -1 for one that does not report.
Task<SharedReply::Reply> Admin::Loads(IoThread& thread, CancelScope& scope) {
  struct Gathering {
    std::map<std::string, std::vector<uint32_t>> hosts;  // positions
    std::vector<int64_t> loads;
    size_t open = 0;
    Signal all_in;
  } gathering;
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  gathering.loads.assign(fleet->members().size(), -1);
  for (uint32_t position = 0; position < fleet->members().size(); ++position) {
    gathering.hosts[fleet->worker(position).url.base].push_back(position);
  }
  gathering.open = gathering.hosts.size();
  size_t polled = 0;
  for (const auto& [base, positions] : gathering.hosts) {
    Spawn(
        [](IoThread& thread, CancelScope& scope, const FleetView& fleet,
           const std::vector<uint32_t>& positions, Gathering& gathering) -> Task<void> {
          std::vector<std::optional<uint32_t>> ranks;
          for (const uint32_t position : positions) ranks.push_back(fleet.worker(position).url.rank);
          LoadSource source;
          const WorkerUrl& host = fleet.worker(positions.front()).url;
          const LoadResponse response =
              co_await QueryLoad(thread.http, &scope, host, ranks, &source, kLoadsTimeoutMs);
          for (size_t i = 0; i < positions.size(); ++i)
            gathering.loads[positions[i]] = response.loads[i] ? response.loads[i]->requests : -1;
          if (--gathering.open == 0) gathering.all_in.Notify();
        }(thread, scope, *fleet, positions, gathering));
    if (++polled % kPolledPerTurn == 0) co_await thread.loop.Yield();
  }
  while (gathering.open > 0) co_await gathering.all_in;
  co_return std::make_shared<const AdminReply>(Json(200, DescribeLoads(*fleet, gathering.loads)));
}

// From what workers have said; they are asked if they said nothing yet, with ?refresh=1, or if nothing asks them
// regularly.
Task<AdminReply> Admin::ModelList(IoThread& thread, const AdminRequest& request) {
  GuardedHosts& guarded = model_service_->guarded();
  if (!request.credentials.empty() && guarded.any()) {
    AdminReply list = co_await ModelsFor(thread, request);
    if (list.status != 200 || request.settings.model_aliases.empty() || request.scope.cancelled())
      co_return list;
    PageRenderer::Render work = [list, settings = thread.settings.Get()] {
      return WithAliases(list, *settings);
    };
    PageRenderer::Page page = co_await Elsewhere(thread, request.scope, std::move(work));
    if (page != nullptr) co_return AdminReply::Of(std::move(page));
    co_return list;
  }
  const bool is_kept = request.settings.model_refresh_ms > 0;
  const StatusOr<std::optional<std::string>> refresh = QueryValue(request.query, "refresh");
  if (!refresh.ok()) co_return Refusal(refresh.status());
  const bool asks = *refresh == "1" || *refresh == "true";
  AdminReply reply;
  // What was learnt with a client's key is not for one without. It is private before it is in any snapshot.
  std::shared_ptr<const ModelPools> pools;
  const auto knows_for_all = [&] {
    pools = router_->fleet()->models();
    return is_kept && pools->names->any_said &&
           !thread.limits.models_are_private.load(std::memory_order_relaxed);
  };
  if (asks || !knows_for_all()) reply = co_await Shared(models_, thread, request.scope);
  const bool knows = knows_for_all();
  if (!knows && !request.credentials.empty() && guarded.any() && !request.scope.cancelled()) {
    reply = co_await ModelList(thread, request);  // that hosts want a key was not known before
    co_return reply;
  }
  const bool is_whole = reply.status != 200 || request.settings.model_aliases.empty();
  if (!knows && (is_whole || request.scope.cancelled())) co_return reply;
  PageRenderer::Render render = [&thread, settings = thread.settings.Get(), knows, reply, pools] {
    if (!knows) return WithAliases(reply, *settings);
    json::array data = KnownModels(*pools, *settings, thread.clock.NowNanos());
    for (json::value& alias : AliasesOf(*settings)) data.push_back(std::move(alias));
    return Json(200, {{"object", "list"}, {"data", std::move(data)}});
  };
  PageKey key{Route::kModels, knows ? "" : "of workers"};
  AdminReply page = co_await Page(thread, request.scope, std::move(key), std::move(render));
  co_return page;
}

// A card of that list, or OpenAI's 404.
Task<AdminReply> Admin::OneModel(IoThread& thread, const AdminRequest& request, std::string_view encoded_id) {
  const Settings& settings = request.settings;
  const std::optional<std::string> id = PercentDecoded(encoded_id, false);
  if (!id) {
    co_return Error(
        HttpError::kInvalidArgument,
        Concat("The path ends in ", Quoted(encoded_id), ", which is no percent-encoded name of a model."));
  }
  if (const ModelAliases::Alias* const alias = settings.model_aliases.Find(*id))
    co_return Json(200, Describe(*alias));
  GuardedHosts& guarded = model_service_->guarded();
  const bool is_kept = settings.model_refresh_ms > 0;
  const auto are_private = [&thread] {
    return thread.limits.models_are_private.load(std::memory_order_relaxed);
  };
  const auto asks_as_client = [&] { return !request.credentials.empty() && guarded.any(); };
  const auto known = [&]() -> std::optional<AdminReply> {
    const std::shared_ptr<const FleetView> fleet = router_->fleet();
    if (are_private() || asks_as_client()) return std::nullopt;
    const ModelPools::Name* const name = is_kept ? fleet->models()->Find(*id) : nullptr;
    if (name == nullptr || !name->IsKnown(thread.clock.NowNanos(), settings.model_memory_ns()))
      return std::nullopt;
    return Json(200, Describe(name->card));
  };
  std::optional<AdminReply> card = known();
  if (card) co_return *std::move(card);
  AdminReply list;
  const bool asks_all =
      !is_kept || !router_->fleet()->models()->names->any_said || are_private() || guarded.any();
  if (asks_all && !asks_as_client()) {
    list = co_await Shared(models_, thread, request.scope);
    card = known();
    if (card) co_return *std::move(card);
  }
  if (asks_as_client() && !request.scope.cancelled()) {
    list = co_await ModelsFor(thread, request);
    if (list.status != 200 || request.scope.cancelled()) co_return list;
    PageRenderer::Render work = [list, id = *id] { return ModelIn(list, id); };
    PageRenderer::Page page = co_await Elsewhere(thread, request.scope, std::move(work));
    if (page != nullptr) co_return AdminReply::Of(std::move(page));
    co_return Error(HttpError::kNoWorkers, "The workers did not respond in time.");
  }
  if (asks_all) {
    if (list.status != 200 || request.scope.cancelled()) co_return list;
    PageRenderer::Render render = [list, id = *id] { return ModelIn(list, id); };
    PageKey key{Route::kModel, *id};
    AdminReply page = co_await Page(thread, request.scope, std::move(key), std::move(render));
    co_return page;
  }
  co_return NoSuchModel(*id);
}

// Their replies are shared with nobody. So that one client does not make the router open connections without end, a
// number of hosts is asked at once for all such clients.
Task<AdminReply> Admin::ModelsFor(IoThread& thread, const AdminRequest& request) {
  const size_t hosts = router_->fleet()->members().size();
  const size_t others = queries_with_keys_.fetch_add(hosts, std::memory_order_relaxed);
  AdminReply reply = Error(
      HttpError::kQueueFull,
      "Other requests for models wait for workers that have keys of their own; retry later.");
  if (others == 0 || others + hosts <= kMaxQueriesWithKeys)
    reply = co_await GatherModels(thread, request.scope, request.credentials);
  queries_with_keys_.fetch_sub(hosts, std::memory_order_relaxed);
  co_return reply;
}

Task<SharedReply::Reply> Admin::Models(IoThread& thread, CancelScope& scope) {
  const std::string no_credentials;
  AdminReply reply = co_await GatherModels(thread, scope, no_credentials);
  co_return std::make_shared<const AdminReply>(std::move(reply));
}

// All workers are queried at once; those that are down or slow are left out.
Task<AdminReply> Admin::GatherModels(IoThread& thread, CancelScope& scope, const std::string& credentials) {
  struct Gathering {
    std::vector<StatusOr<HttpResponse>> responses;
    size_t open = 0;
    Signal all_in;
  } gathering;
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  std::set<std::string> polled;
  std::vector<WorkerUrl> hosts;
  for (const uint32_t position : fleet->eligible()) {
    const WorkerUrl& url = fleet->worker(position).url;
    if (polled.insert(url.base).second) hosts.push_back(url);
  }
  GuardedHosts& guarded = model_service_->guarded();
  gathering.responses.assign(hosts.size(), absl::UnknownError("not requested"));
  gathering.open = hosts.size();
  for (size_t i = 0; i < hosts.size(); ++i) {
    Spawn(
        [](IoThread& thread, CancelScope& scope, WorkerUrl url, Gathering& gathering, size_t i,
           std::string lines) -> Task<void> {
          gathering.responses[i] =
              co_await thread.http.GetWith(std::move(lines), &scope, url, "/v1/models", kModelsTimeoutMs);
          if (--gathering.open == 0) gathering.all_in.Notify();
        }(thread, scope, hosts[i], gathering, i,
                              guarded.Contains(hosts[i].base) ? credentials : std::string()));
    if (i % kPolledPerTurn + 1 == kPolledPerTurn) co_await thread.loop.Yield();
  }
  while (gathering.open > 0) co_await gathering.all_in;

  json::array data;
  std::set<std::string> seen;
  bool any = false;
  bool any_refused = false;
  const bool is_kept = thread.settings.Get()->model_refresh_ms > 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const StatusOr<HttpResponse>& response = gathering.responses[i];
    if (IsRefusal(response)) {
      any_refused = true;
      if (thread.http.KeyUseFor(hosts[i]) != HttpClient::KeyUse::kSent) guarded.Set(hosts[i].base, true);
    }
    if (!response.ok() || response->status != 200) continue;
    if (credentials.empty()) guarded.Set(hosts[i].base, false);
    if (is_kept && response->body.size() <= kMaxModelReportBytes) {
      std::optional<std::vector<ModelCard>> cards = ModelsInReport(response->body);
      if (cards && !credentials.empty() && guarded.Contains(hosts[i].base)) {
        thread.limits.models_are_private.store(true, std::memory_order_relaxed);  // before they are known
        cards = guarded.Learn(hosts[i].base, *cards);
      }
      if (cards) router_->pool().registry().SetModels(hosts[i].base, *cards, thread.clock.NowNanos());
    }
    boost::system::error_code error;
    const json::value models = json::parse(response->body, error);
    if (error || !models.is_object()) continue;
    const json::value* list = models.as_object().if_contains("data");
    if (list == nullptr || !list->is_array()) continue;
    any = true;
    for (const json::value& model : list->as_array()) {
      const json::value* id = model.is_object() ? model.as_object().if_contains("id") : nullptr;
      if (id != nullptr && id->is_string() && seen.insert(std::string(id->as_string())).second)
        data.push_back(model);
    }
  }
  if (is_kept) router_->pool().registry().PublishModels();
  if (any) co_return Json(200, {{"object", "list"}, {"data", std::move(data)}});
  if (any_refused) {
    co_return Error(
        HttpError::kInvalidApiKey,
        "The workers list their models to requests with their own key only; send it, or set the router's "
        "--api-key.");
  }
  co_return Error(HttpError::kNoWorkers, "No worker returned its list of models.");
}

}  // namespace vllm_router
