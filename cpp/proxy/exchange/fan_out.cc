#include "proxy/exchange/fan_out.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "proxy/api/error_response.h"
#include "proxy/api/fan_out_paths.h"
#include "proxy/api/json_text.h"
#include "proxy/api/settings.h"
#include "proxy/client/hosts.h"
#include "proxy/client/http_client.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/own_endpoints.h"
#include "proxy/thread/server_limits.h"
#include "routing/json_scanner.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr size_t kFewResponses = 16;  // 1 MiB of JSON at most, merged at once

bool Did(const FanOutResponse& response) { return response.status >= 200 && response.status < 300; }

std::string HeadFor(const IoThread& thread, const WorkerUrl& url, const FanOutRequest& request) {
  UpstreamHeadParts parts = PartsFor(thread, url, request.client);
  if (request.head.framing != BodyFraming::kNone) parts.framing = BodyFraming::kLength;
  parts.content_length = request.body.size();
  std::string head;
  WriteUpstreamHead(request.head, parts, &head);
  return head;
}

Task<void> Ask(
    IoThread& thread, CancelScope& scope, const FanOutRequest& request, const WorkerUrl& url,
    FanOutResponse& response) {
  response.worker = url.base;
  StatusOr<HttpResponse> fetched =
      co_await thread.http.Send(&scope, url, HeadFor(thread, url, request), request.body, request.timeout_ms);
  if (!fetched.ok()) {
    response.error = std::string(fetched.status().message());
    co_return;
  }
  response.status = fetched->status;
  response.body = std::move(fetched->body);
  if (response.body.size() > kMaxFanOutResponseBytes) {
    response.body.resize(kMaxFanOutResponseBytes);
    response.body.shrink_to_fit();
  }
}

void AppendMember(std::string_view name, std::string_view value, std::string* text) {
  if (text->back() != '{') text->push_back(',');
  AppendJsonQuoted(name, text);
  text->append(":").append(value);
}

std::string Row(const FanOutResponse& response, bool is_json) {
  std::string row = "{";
  AppendMember("worker", JsonQuoted(response.worker), &row);
  AppendMember("status", std::to_string(response.status), &row);
  if (response.status == 0) {
    AppendMember("error", JsonQuoted(response.error), &row);
  } else {
    AppendMember("body", is_json ? response.body : JsonQuoted(response.body), &row);
  }
  return row + "}";
}

// The members that are equal in all the objects.
json::object CommonMembers(const std::vector<json::value>& bodies) {
  json::object common;
  if (bodies.empty() || !bodies.front().is_object()) return common;
  for (const json::key_value_pair& member : bodies.front().as_object()) {
    const bool everywhere = std::ranges::all_of(bodies, [&member](const json::value& body) {
      const json::value* other = body.is_object() ? body.as_object().if_contains(member.key()) : nullptr;
      return other != nullptr && *other == member.value();
    });
    if (everywhere && member.key() != "workers") common.emplace(member.key(), member.value());
  }
  return common;
}

}  // namespace

AdminReply MergeFanOut(const std::vector<FanOutResponse>& responses) {
  const auto did = static_cast<size_t>(std::ranges::count_if(responses, Did));
  const int first = responses.front().status;
  const bool alike = std::ranges::all_of(responses, [first](const auto& one) { return one.status == first; });
  AdminReply reply;
  reply.status = did == responses.size() ? 200 : did != 0 ? 207 : alike && first / 100 == 4 ? first : 502;

  std::vector<json::value> bodies;  // of workers that sent one
  std::string rows = "[";
  for (const FanOutResponse& response : responses) {
    boost::system::error_code error;
    json::value body = response.status == 0 ? json::value() : json::parse(response.body, error);
    const bool parsed = response.status != 0 && !error;
    if (rows.size() > 1) rows.push_back(',');
    rows.append(Row(response, parsed));
    const bool counts = did == 0 ? response.status != 0 : Did(response);
    if (counts) bodies.push_back(parsed ? std::move(body) : json::value());
  }
  rows.push_back(']');

  json::object common = CommonMembers(bodies);
  if (reply.status == 502) {
    const ErrorRow& row = ErrorOf(HttpError::kFanOutFailed);
    const std::string message = Concat(
        "None of ", responses.size(),
        " workers carried out the request; `workers` has the response of each.");
    common["error"] = json::parse(ErrorBody(message, row.type, row.code)).at("error");
    reply.error_code = row.code;
  }
  reply.body = JsonText(common);
  reply.body.pop_back();
  AppendMember("workers", rows, &reply.body);
  reply.body.push_back('}');
  return reply;
}

namespace {

// Logs what does not fit into the access log's one line.
void LogMissed(const FanOutRequest& request, const std::vector<FanOutResponse>& responses) {
  std::string missed;
  size_t count = 0;
  for (const FanOutResponse& response : responses) {
    if (Did(response) || ++count > kMaxFanOutNames) continue;
    const std::string why =
        response.status != 0 ? Concat("status ", response.status) : Concat("no response: ", response.error);
    missed.append(Concat(count > 1 ? ", " : "", response.worker, " (", why, ")"));
  }
  if (count == 0) return;
  Log(LogLevel::kWarning,
      Concat(
          "request ", request.client.request_id, " to ", request.head.path, " failed at ", count, " of ",
          responses.size(), " workers: ", missed, count > kMaxFanOutNames ? " and others" : ""));
}

}  // namespace

namespace {

std::string TextAt(std::string_view text, std::string_view name) {
  boost::system::error_code error;
  const json::value body = json::parse(WithoutByteOrderMark(text), error);
  const json::object* const object = error ? nullptr : body.if_object();
  const json::value* const value = object != nullptr ? object->if_contains(name) : nullptr;
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool ChangesAdapters(std::string_view path) {
  return path.ends_with("/load_lora_adapter") || path.ends_with("/unload_lora_adapter");
}

// Keeps, for a request to load or unload an adapter, the hosts that serve its parent, or the adapter; else all. An error
// if it does not say of which of several models the adapter is. An alias is all its models.
std::optional<AdminReply> KeepServing(
    const FleetView& fleet, const ModelAliases& aliases, const FanOutRequest& request, bool are_private,
    std::vector<uint32_t>* hosts) {
  const ModelPools& pools = *fleet.models();
  if (!ChangesAdapters(request.head.path) || !pools.decides()) return std::nullopt;
  const bool unloads = request.head.path.ends_with("/unload_lora_adapter");
  std::string name = TextAt(request.body, unloads ? "lora_name" : "base_model_name");
  if (name.empty() && !unloads && pools.names->bases.size() == 1) name = pools.names->bases.front();
  std::set<std::string_view> serving;
  const auto add_hosts_of = [&](std::string_view model) {
    const ModelPools::Name* const known = pools.Find(model);
    if (known == nullptr) return;
    for (const uint32_t position : known->workers) serving.insert(fleet.worker(position).url.base);
  };
  if (const ModelAliases::Alias* const alias = unloads ? nullptr : aliases.Find(name)) {
    for (const ModelAliases::Target& target : alias->targets) add_hosts_of(target.model);
  } else {
    add_hosts_of(name);
  }
  if (!serving.empty()) {
    std::erase_if(*hosts, [&](uint32_t host) { return !serving.contains(fleet.worker(host).url.base); });
    return std::nullopt;
  }
  if (unloads || (name.empty() && pools.names->bases.empty())) return std::nullopt;
  const ErrorRow& row = ErrorOf(name.empty() ? HttpError::kModelRequired : HttpError::kModelNotFound);
  const std::string message =
      name.empty() ? "Workers serve several models; name that of the adapter as the member base_model_name."
                   : UnknownModelMessage(name, pools, aliases, are_private);
  return AdminReply{
      .status = row.status,
      .body = ErrorBody(message, row.type, row.code, "base_model_name"),
      .error_code = row.code};
}

}  // namespace

Task<AdminReply> FanOut(
    IoThread& thread, CancelScope& scope, OwnEndpoints& own, const FanOutRequest& request) {
  const std::shared_ptr<const FleetView> fleet = thread.router->fleet();
  std::vector<uint32_t> hosts = HostsOf(*fleet);
  if (hosts.empty()) {
    const ErrorRow& row = ErrorOf(HttpError::kNoWorkers);
    co_return AdminReply{
        .status = row.status,
        .body = ErrorBody("There are no workers to send the request to.", row.type, row.code),
        .error_code = row.code};
  }
  const std::shared_ptr<const Settings> settings = thread.settings.Get();
  std::optional<AdminReply> rejection = KeepServing(
      *fleet, settings->model_aliases, request,
      thread.limits.models_are_private.load(std::memory_order_relaxed), &hosts);
  if (rejection) co_return *std::move(rejection);
  std::vector<FanOutResponse> responses(hosts.size());
  co_await ForEach(hosts.size(), kMaxFanOutAtOnce, [&](size_t i) {
    return Ask(thread, scope, request, fleet->worker(hosts[i]).url, responses[i]);
  });

  if (FanOutPaths::EmptiesCache(request.head.path)) {
    std::set<std::string_view> emptied;
    for (const FanOutResponse& response : responses) {
      if (Did(response)) emptied.insert(response.worker);
    }
    for (const FleetView::Member& member : fleet->members()) {
      if (!emptied.contains(member.worker->url.base)) continue;
      thread.router->pool().ForgetCache(member.worker->id);
      thread.health.cache_emptied(member.worker);
    }
  }
  if (ChangesAdapters(request.head.path)) thread.health.models_changed();
  if (!scope.cancelled()) LogMissed(request, responses);
  if (responses.size() <= kFewResponses) co_return MergeFanOut(responses);
  const std::function<AdminReply()> merge = [all = std::make_shared<const std::vector<FanOutResponse>>(
                                                 std::move(responses))] { return MergeFanOut(*all); };
  std::shared_ptr<const AdminReply> merged = co_await own.Elsewhere(thread, scope, merge);
  if (merged != nullptr) co_return AdminReply::Of(std::move(merged));
  const ErrorRow& row = ErrorOf(HttpError::kFanOutFailed);
  co_return AdminReply{
      .status = row.status,
      .body = ErrorBody("The responses of the workers could not be merged in time.", row.type, row.code),
      .error_code = row.code};
}

}  // namespace vllm_router
