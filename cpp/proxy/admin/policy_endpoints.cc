#include "proxy/admin/policy_endpoints.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/admin/stats_table.h"
#include "proxy/api/json_text.h"
#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"
#include "routing/json_scanner.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

// The same members for every policy: without prefix_aware nothing is enabled and nothing counted.
AdminReply PrefixRouting(AdminContext& admin, const PageCall& call) {
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  StatsTable stats("prefix_routing");
  admin.router->pool().Report(*fleet, &stats);
  const PolicyOptions& options = admin.router->options().policy;
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
  return JsonReply(
      200, {{"enabled", stats.found()},
            {"config",
             {{"max_prefix_length", admin.router->options().max_prefix_length},
              {"load_factor_epsilon", static_cast<double>(options.load_factor_epsilon) / 1000},
              {"virtual_nodes", options.virtual_nodes},
              {"prefix_load_floor", options.prefix_load_floor},
              {"anthropic_cache_control_injection", call.settings.anthropic_cache_control_injection}}},
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
AdminReply IndexStats(AdminContext& admin, const PageCall& /*call*/) {
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  StatsTable stats("block_index");
  admin.router->pool().Report(*fleet, &stats);
  json::array workers;
  for (size_t i = 0; stats.found() && i < fleet->members().size(); ++i) {
    workers.push_back(json::object{
        {"url", fleet->worker(static_cast<uint32_t>(i)).url.url},
        {"blocks", stats.OfWorker("workers", i)},
        {"max_blocks", stats.OfWorker("max_blocks", i)},
        {"block_size", stats.OfWorker("block_sizes", i)}});
  }
  return JsonReply(
      200, {{"enabled", stats.found()},
            {"policy", std::string(admin.router->policy().name())},
            {"block_size", admin.router->options().policy.block_size},
            {"max_blocks_per_worker", admin.router->options().policy.max_blocks_per_worker},
            {"blocks", stats.Value("blocks")},
            {"worker_blocks", stats.Value("worker_blocks")},
            {"bytes", stats.Value("bytes")},
            {"recorded_requests", stats.Value("recorded_requests")},
            {"evicted_blocks", stats.Value("evicted_blocks")},
            {"prompt_blocks", stats.Value("prompt_blocks")},
            {"matched_blocks", stats.Value("matched_blocks")},
            {"workers", std::move(workers)}});
}

AdminReply IndexClear(AdminContext& admin, IoThread& /*thread*/, const AdminRequest& /*request*/) {
  KvIndex* const index = admin.router->pool().index();
  const uint64_t held = index != nullptr ? index->tracker().stats().worker_blocks() : 0;
  if (index != nullptr) index->Clear();
  return JsonReply(200, {{"cleared_worker_blocks", held}});
}

// `?session_id=S`, or as a JSON object in the body. A repeated call gets the same response.
AdminReply FinishSession(AdminContext& admin, IoThread& /*thread*/, const AdminRequest& request) {
  std::string session;
  if (request.query.empty()) {
    boost::system::error_code error;
    const json::value body = json::parse(WithoutByteOrderMark(request.body), error);
    const json::value* id = !error && body.is_object() ? body.as_object().if_contains("session_id") : nullptr;
    if (id != nullptr && id->is_string()) session = std::string(id->as_string());
  } else {
    StatusOr<std::optional<std::string>> id = QueryValue(request.query, "session_id");
    if (!id.ok()) return RejectedReply(id.status());
    session = std::move(*id).value_or(std::string());
  }
  if (session.empty()) {
    return ErrorReply(
        HttpError::kInvalidArgument,
        "'session_id' is missing; send it as ?session_id=S, or as {\"session_id\": \"S\"}.");
  }
  const bool known = admin.router->FinishSession(session);
  // clients of vllm-project/router read `status` and `session_id`.
  return JsonReply(
      200, {{"success", true},
            {"known", known},
            {"status", "ok"},
            {"session_id", json::parse(JsonQuoted(session))}});
}

constexpr OwnEndpoint kPolicyEndpoints[] = {
    {.path = "/admin/prefix-routing/stats", .methods = "GET, HEAD", .render = &PrefixRouting},
    {.path = "/admin/index/stats", .methods = "GET, HEAD", .render = &IndexStats},
    {.path = "/admin/index/clear", .methods = "POST", .respond = &IndexClear},
    {.path = "/finish_session", .methods = "POST", .access = Access::kClient, .respond = &FinishSession},
};

}  // namespace

std::span<const OwnEndpoint> PolicyEndpoints() { return kPolicyEndpoints; }

}  // namespace vllm_router
