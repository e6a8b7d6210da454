#include "proxy/events/prefix_index_endpoints.h"

#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/time_units.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/admin/stats_table.h"
#include "proxy/control/services.h"
#include "proxy/events/events_feature.h"
#include "proxy/events/prefix_event_service.h"
#include "proxy/events/redis_prefix_index.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

json::value TimeOrNull(std::optional<int64_t> unix_seconds) {
  if (!unix_seconds) return nullptr;
  const auto seconds = static_cast<std::time_t>(*unix_seconds);
  std::tm utc{};
  char text[32];
  ::gmtime_r(&seconds, &utc);
  return json::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// Members of the next three replies, with their order and types, are those of Continuum Router.
AdminReply KvIndexStats(AdminContext& admin, const PageCall& call) {
  const PrefixTable* const table = PrefixTableOf(*admin.router);
  if (table == nullptr) return JsonReply(200, {{"enabled", false}});
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  StatsTable decisions("kv_overlap");
  admin.router->pool().Report(*fleet, &decisions);
  const uint64_t kv_aware = decisions.Value("kv_aware");
  const uint64_t fallback =
      decisions.Value("prefix_hash") + decisions.Value("overflow") + decisions.Value("fallback");
  const std::vector<PrefixSourceStatus> statuses = admin.services->Find<PrefixEventService>()->Report();
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
  const PolicyOptions& options = admin.router->options().policy;
  return JsonReply(
      200, {{"enabled", true},
            {"config",
             {{"backend", call.thread.features.Find<RedisPrefixIndex>() != nullptr ? "redis" : "memory"},
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

AdminReply KvIndexBackends(AdminContext& admin, const PageCall& /*call*/) {
  if (PrefixTableOf(*admin.router) == nullptr) return JsonReply(200, {{"enabled", false}});
  json::array backends;
  for (const PrefixSourceStatus& status : admin.services->Find<PrefixEventService>()->Report()) {
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
  return JsonReply(200, {{"enabled", true}, {"backends", std::move(backends)}});
}

Task<AdminReply> KvIndexClear(AdminContext& admin, IoThread& thread, const AdminRequest& /*request*/) {
  PrefixTable* const table = PrefixTableOf(*admin.router);
  if (table == nullptr) {
    co_return ErrorReply(
        HttpError::kInvalidArgument,
        "The prefix index is off, so there is nothing to clear; set --kv-index-max-entries, or "
        "kv_cache_index.enabled in the file of settings.",
        409);
  }
  PrefixTable::Cleared cleared;
  while (table->ClearNext(&cleared)) co_await thread.loop.Yield();
  co_return JsonReply(
      200, {{"success", true},
            {"entries_before_clear", cleared.entries},
            {"cleared_entries", cleared.workers.size()}});
}

constexpr OwnEndpoint kPrefixIndexEndpoints[] = {
    {.path = "/admin/kv-index/stats", .methods = "GET, HEAD", .render = &KvIndexStats},
    {.path = "/admin/kv-index/backends", .methods = "GET, HEAD", .render = &KvIndexBackends},
    {.path = "/admin/kv-index/clear", .methods = "POST", .serve = &KvIndexClear},
};

}  // namespace

std::span<const OwnEndpoint> PrefixIndexEndpoints() { return kPrefixIndexEndpoints; }

}  // namespace vllm_router
