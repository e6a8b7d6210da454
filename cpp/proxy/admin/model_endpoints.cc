#include "proxy/admin/model_endpoints.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "http/query.h"
#include "net/task.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/error_response.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/model_report.h"
#include "proxy/client/probe_failure.h"
#include "proxy/control/model_service.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr int64_t kModelsTimeoutMs = 5'000;
constexpr size_t kPolledPerTurn = 16;        // of thousands of workers that are polled at once
constexpr size_t kMaxQueriesWithKeys = 512;  // at once, of hosts, for clients with keys of theirs

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

// The models that workers list, and those that are remembered.
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
  return JsonReply(200, listed);
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
    if (model.at("id").as_string() == id) return JsonReply(200, model);
  }
  return NoSuchModel(id);
}

// What workers list to the router, or, with a client's credentials, what hosts that have keys of their own list to that
// client. All workers are queried at once; those that are down or slow are left out.
Task<AdminReply> GatherModels(
    AdminContext& admin, IoThread& thread, CancelScope& scope, const std::string& credentials) {
  struct Gathering {
    std::vector<StatusOr<HttpResponse>> responses;
    size_t open = 0;
    Signal all_in;
  } gathering;
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  std::set<std::string> polled;
  std::vector<WorkerUrl> hosts;
  for (const uint32_t position : fleet->eligible()) {
    const WorkerUrl& url = fleet->worker(position).url;
    if (polled.insert(url.base).second) hosts.push_back(url);
  }
  GuardedHosts& guarded = admin.models->guarded();
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
      if (cards) admin.router->pool().registry().SetModels(hosts[i].base, *cards, thread.clock.NowNanos());
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
  if (is_kept) admin.router->pool().registry().PublishModels();
  if (any) co_return JsonReply(200, {{"object", "list"}, {"data", std::move(data)}});
  if (any_refused) {
    co_return ErrorReply(
        HttpError::kInvalidApiKey,
        "The workers list their models to requests with their own key only; send it, or set the router's "
        "--api-key.");
  }
  co_return ErrorReply(HttpError::kNoWorkers, "No worker returned its list of models.");
}

// Their replies are shared with nobody. So that one client does not make the router open connections without end, a
// number of hosts is asked at once for all such clients.
Task<AdminReply> ModelsFor(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  const size_t hosts = admin.router->fleet()->members().size();
  const size_t others = admin.queries_with_keys.fetch_add(hosts, std::memory_order_relaxed);
  AdminReply reply = ErrorReply(
      HttpError::kQueueFull,
      "Other requests for models wait for workers that have keys of their own; retry later.");
  if (others == 0 || others + hosts <= kMaxQueriesWithKeys)
    reply = co_await GatherModels(admin, thread, request.scope, request.credentials);
  admin.queries_with_keys.fetch_sub(hosts, std::memory_order_relaxed);
  co_return reply;
}

// From what workers have said; they are asked if they said nothing yet, with ?refresh=1, or if nothing asks them
// regularly.
Task<AdminReply> ModelList(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  GuardedHosts& guarded = admin.models->guarded();
  if (!request.credentials.empty() && guarded.any()) {
    AdminReply list = co_await ModelsFor(admin, thread, request);
    if (list.status != 200 || request.settings.model_aliases.empty() || request.scope.cancelled())
      co_return list;
    PageRenderer::Render work = [list, settings = thread.settings.Get()] {
      return WithAliases(list, *settings);
    };
    PageRenderer::Page page = co_await admin.pages.Elsewhere(thread, request.scope, std::move(work));
    if (page != nullptr) co_return AdminReply::Of(std::move(page));
    co_return list;
  }
  const bool is_kept = request.settings.model_refresh_ms > 0;
  const StatusOr<std::optional<std::string>> refresh = QueryValue(request.query, "refresh");
  if (!refresh.ok()) co_return RejectedReply(refresh.status());
  const bool asks = *refresh == "1" || *refresh == "true";
  AdminReply reply;
  // What was learnt with a client's key is not for one without. It is private before it is in any snapshot.
  std::shared_ptr<const ModelPools> pools;
  const auto knows_for_all = [&] {
    pools = admin.router->fleet()->models();
    return is_kept && pools->names->any_said &&
           !thread.limits.models_are_private.load(std::memory_order_relaxed);
  };
  if (asks || !knows_for_all()) reply = co_await admin.Shared(admin.model_lists, thread, request.scope);
  const bool knows = knows_for_all();
  if (!knows && !request.credentials.empty() && guarded.any() && !request.scope.cancelled()) {
    reply = co_await ModelList(admin, thread, request);  // that hosts want a key was not known before
    co_return reply;
  }
  const bool is_whole = reply.status != 200 || request.settings.model_aliases.empty();
  if (!knows && (is_whole || request.scope.cancelled())) co_return reply;
  PageRenderer::Render render = [&thread, settings = thread.settings.Get(), knows, reply, pools] {
    if (!knows) return WithAliases(reply, *settings);
    json::array data = KnownModels(*pools, *settings, thread.clock.NowNanos());
    for (json::value& alias : AliasesOf(*settings)) data.push_back(std::move(alias));
    return JsonReply(200, {{"object", "list"}, {"data", std::move(data)}});
  };
  PageKey key{Route::kModels, knows ? "" : "of workers"};
  AdminReply page = co_await admin.Page(thread, request.scope, std::move(key), std::move(render));
  co_return page;
}

// A card of that list, or OpenAI's 404.
Task<AdminReply> OneModel(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  const std::string_view encoded_id = request.path.substr(std::string_view("/v1/models/").size());
  const Settings& settings = request.settings;
  const std::optional<std::string> id = PercentDecoded(encoded_id, false);
  if (!id) {
    co_return ErrorReply(
        HttpError::kInvalidArgument,
        Concat("The path ends in ", Quoted(encoded_id), ", which is no percent-encoded name of a model."));
  }
  if (const ModelAliases::Alias* const alias = settings.model_aliases.Find(*id))
    co_return JsonReply(200, Describe(*alias));
  GuardedHosts& guarded = admin.models->guarded();
  const bool is_kept = settings.model_refresh_ms > 0;
  const auto are_private = [&thread] {
    return thread.limits.models_are_private.load(std::memory_order_relaxed);
  };
  const auto asks_as_client = [&] { return !request.credentials.empty() && guarded.any(); };
  const auto known = [&]() -> std::optional<AdminReply> {
    const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
    if (are_private() || asks_as_client()) return std::nullopt;
    const ModelPools::Name* const name = is_kept ? fleet->models()->Find(*id) : nullptr;
    if (name == nullptr || !name->IsKnown(thread.clock.NowNanos(), settings.model_memory_ns()))
      return std::nullopt;
    return JsonReply(200, Describe(name->card));
  };
  std::optional<AdminReply> card = known();
  if (card) co_return *std::move(card);
  AdminReply list;
  const bool asks_all =
      !is_kept || !admin.router->fleet()->models()->names->any_said || are_private() || guarded.any();
  if (asks_all && !asks_as_client()) {
    list = co_await admin.Shared(admin.model_lists, thread, request.scope);
    card = known();
    if (card) co_return *std::move(card);
  }
  if (asks_as_client() && !request.scope.cancelled()) {
    list = co_await ModelsFor(admin, thread, request);
    if (list.status != 200 || request.scope.cancelled()) co_return list;
    PageRenderer::Render work = [list, id = *id] { return ModelIn(list, id); };
    PageRenderer::Page page = co_await admin.pages.Elsewhere(thread, request.scope, std::move(work));
    if (page != nullptr) co_return AdminReply::Of(std::move(page));
    co_return ErrorReply(HttpError::kNoWorkers, "The workers did not respond in time.");
  }
  if (asks_all) {
    if (list.status != 200 || request.scope.cancelled()) co_return list;
    PageRenderer::Render render = [list, id = *id] { return ModelIn(list, id); };
    PageKey key{Route::kModel, *id};
    AdminReply page = co_await admin.Page(thread, request.scope, std::move(key), std::move(render));
    co_return page;
  }
  co_return NoSuchModel(*id);
}

constexpr OwnEndpoint kModelEndpoints[] = {
    {.path = "/v1/models", .serve = &ModelList},
    {.path = "/v1/models/{id}", .serve = &OneModel},
};

}  // namespace

Task<SharedReply::Reply> FetchModels(AdminContext& admin, IoThread& thread, CancelScope& scope) {
  const std::string no_credentials;
  AdminReply reply = co_await GatherModels(admin, thread, scope, no_credentials);
  co_return std::make_shared<const AdminReply>(std::move(reply));
}

std::span<const OwnEndpoint> ModelEndpoints() { return kModelEndpoints; }

}  // namespace vllm_router
