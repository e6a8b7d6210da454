#include "proxy/admin/worker_endpoints.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/query.h"
#include "net/task.h"
#include "peer_sync/admin_facts.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/fleet_call.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/model_report.h"
#include "proxy/client/probe_failure.h"
#include "proxy/control/drainer.h"
#include "proxy/control/model_service.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"
#include "worker/worker_declaration.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr std::string_view kDeclaredElsewhere = "WORKER_DECLARED_ELSEWHERE";

// For a path such as /workers/http%3A%2F%2Fgpu-0.
AdminReply NoSuchWorker(std::string_view message) {
  return JsonReply(404, {{"error", message}, {"code", "WORKER_NOT_FOUND"}});
}

AdminReply NoUrlInPath(std::string_view encoded) {
  return NoSuchWorker(Concat(
      "no worker ", Quoted(encoded), ": a '%' in the path must precede two hexadecimal digits; write the ",
      "worker's URL percent-encoded, for example /workers/http%3A%2F%2Fgpu-0%3A8000"));
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

AdminReply ListWorkers(AdminContext& admin, const PageCall& /*call*/) {
  json::array urls;
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  for (const FleetView::Member& member : fleet->members()) urls.emplace_back(member.worker->url.url);
  return JsonReply(200, json::object{{"urls", std::move(urls)}});
}

AdminReply Workers(AdminContext& admin, const PageCall& call) {
  json::array workers;
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  std::array<size_t, 3> counts{};  // by stage
  const std::vector<std::string_view> models = FirstModels(*fleet, admin.models->guarded());
  for (const FleetView::Member& member : fleet->members()) {
    workers.emplace_back(Describe(member, models[workers.size()]));
    ++counts[static_cast<size_t>(member.worker->stage)];
  }
  const size_t total = workers.size();
  const auto [regular, prefill, decode] = counts;
  json::object page = {
      {"workers", std::move(workers)},
      {"total", total},
      {"stats", {{"prefill_count", prefill}, {"decode_count", decode}, {"regular_count", regular}}}};
  admin.AddSections("/workers", call, &page);
  return JsonReply(200, page);
}

AdminReply OneWorker(AdminContext& admin, std::string_view encoded_url) {
  const std::optional<std::string> url = PercentDecoded(encoded_url, false);
  if (!url.has_value()) return NoUrlInPath(encoded_url);
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  const std::optional<uint32_t> position = fleet->Find(*url);
  if (!position.has_value()) return NoSuchWorker("Worker " + *url + " not found");
  return JsonReply(
      200, Describe(fleet->members()[*position], FirstModels(*fleet, admin.models->guarded())[*position]));
}

AdminReply Remove(AdminContext& admin, std::string_view url, bool as_json) {
  const Status removed = admin.router->RemoveWorker(url);
  const std::string message =
      removed.ok() ? "Successfully removed worker: " + std::string(url) : std::string(removed.message());
  json::object reply = {{"success", true}, {"message", message}};
  // Others may have a worker that is gone here.
  if (removed.ok() || absl::IsNotFound(removed))
    admin.TellPeers({.url = std::string(url), .holds = false}, &reply);
  if (as_json) {
    if (absl::IsPermissionDenied(removed))
      return JsonReply(409, {{"error", message}, {"code", kDeclaredElsewhere}});
    return removed.ok() ? JsonReply(200, std::move(reply)) : NoSuchWorker(message);
  }
  if (absl::IsPermissionDenied(removed)) return ErrorReply(HttpError::kInvalidArgument, message, 409);
  // The requested state holds, and programs that remove workers twice rely on success.
  if (removed.ok() || absl::IsNotFound(removed)) return TextReply(200, message);
  return ErrorReply(HttpError::kInvalidArgument, message);
}

AdminReply RemoveByPath(AdminContext& admin, std::string_view encoded_url) {
  const std::optional<std::string> url = PercentDecoded(encoded_url, false);
  return url.has_value() ? Remove(admin, *url, /*as_json=*/true) : NoUrlInPath(encoded_url);
}

AdminReply RemoveAsCalled(AdminContext& admin, IoThread& /*thread*/, const AdminRequest& request) {
  const StatusOr<FleetCall> call = ReadCall(request);
  if (!call.ok()) return RejectedReply(call.status());
  return Remove(admin, call->url, /*as_json=*/false);
}

AdminReply OneWorkerByMethod(AdminContext& admin, IoThread& /*thread*/, const AdminRequest& request) {
  const std::string_view encoded = request.path.substr(std::string_view("/workers/").size());
  return request.method == "DELETE" ? RemoveByPath(admin, encoded) : OneWorker(admin, encoded);
}

StatusOr<WorkerDeclaration> DeclarationOf(const FleetCall& call, bool receives_api_key) {
  StatusOr<WorkerDeclaration> worker = DeclareWorker(call.url, receives_api_key);
  if (!worker.ok()) return worker;
  worker->weight = call.weight;
  worker->role = call.role;
  return worker;
}

// A worker joins once it passes its health check, so that adding it never makes a request fail. Errors
// that are known without the check are reported before the wait.
Task<Status> AddWhenHealthy(
    AdminContext& admin, IoThread& thread, const AdminRequest& request, WorkerDeclaration added) {
  const Status may = admin.router->MayAddWorker(added);
  if (!may.ok()) co_return may;
  const WorkerUrl& worker = added.url;
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
        if (cards) admin.router->pool().registry().SetModels(worker.base, *cards, thread.clock.NowNanos());
        if (scope.cancelled()) break;
      }
      const Status joined = admin.router->AddWorker(added);
      admin.router->fleet()->MarkChecked(worker.base);
      admin.drainer->ForgetReturned();
      if (joined.ok() && !worker.receives_api_key && !thread.bearer.empty()) {
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

Task<AdminReply> Add(
    AdminContext& admin, IoThread& thread, const AdminRequest& request, FleetCall call, bool as_json) {
  const std::string& url = call.url;
  AdminFact told = {
      .url = url,
      .weight = static_cast<uint32_t>(std::lround(call.weight * kWeightOne)),
      .receives_api_key = request.has_admin_key,
      .role = call.role};
  StatusOr<WorkerDeclaration> worker = DeclarationOf(call, request.has_admin_key);
  Status status = worker.status();
  if (status.ok()) status = co_await AddWhenHealthy(admin, thread, request, *std::move(worker));
  const std::string message =
      status.ok() ? "Successfully added worker: " + url : std::string(status.message());
  json::object reply = {{"success", true}, {"message", message}};
  if (status.ok()) admin.TellPeers(std::move(told), &reply);
  if (as_json) {
    co_return status.ok() ? JsonReply(200, std::move(reply))
                          : JsonReply(400, {{"error", message}, {"code", "ADD_WORKER_FAILED"}});
  }
  if (status.ok()) co_return TextReply(200, message);
  co_return ErrorReply(HttpError::kInvalidArgument, message);
}

Task<AdminReply> AddAsCalled(
    AdminContext& admin, IoThread& thread, const AdminRequest& request, bool as_json) {
  if (!as_json &&
      admin.router->is_staged()) {  // POST /workers names the stage; the text is the reference router's
    co_return TextReply(400, "PD router requires specific add_prefill_server or add_decode_server methods");
  }
  StatusOr<FleetCall> call = as_json ? CallInBody(request.body) : ReadCall(request);
  if (!call.ok() && as_json) {
    co_return JsonReply(
        400, {{"error", std::string(call.status().message())}, {"code", "ADD_WORKER_FAILED"}});
  }
  if (!call.ok()) co_return RejectedReply(call.status());
  AdminReply reply = co_await Add(admin, thread, request, *std::move(call), as_json);
  co_return reply;
}

Task<AdminReply> PostWorkers(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  return AddAsCalled(admin, thread, request, /*as_json=*/true);
}

Task<AdminReply> AddWorker(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  return AddAsCalled(admin, thread, request, /*as_json=*/false);
}

constexpr OwnEndpoint kWorkerEndpoints[] = {
    {.path = "/list_workers", .methods = "GET, HEAD", .render = &ListWorkers},
    {.path = "/workers", .methods = "GET, HEAD, POST", .render = &Workers, .serve = &PostWorkers},
    {.path = "/workers/{url}", .methods = "GET, HEAD, DELETE", .respond = &OneWorkerByMethod},
    {.path = "/add_worker", .methods = "POST", .serve = &AddWorker},
    {.path = "/remove_worker", .methods = "POST", .respond = &RemoveAsCalled},
};

}  // namespace

std::span<const OwnEndpoint> WorkerEndpoints() { return kWorkerEndpoints; }

}  // namespace vllm_router
