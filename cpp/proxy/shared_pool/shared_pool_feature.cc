#include "proxy/shared_pool/shared_pool_feature.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/shared_pool/mooncake_pool.h"
#include "proxy/shared_pool/shared_pool_counts.h"
#include "proxy/shared_pool/shared_pool_service.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "shared_pool/pool_report.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

Status Check(const ServerOptions& options, const Router& /*router*/) {
  for (const std::string& text : options.shared_cache_urls) {
    const StatusOr<WorkerUrl> url = ParseWorkerUrl(text);
    if (!url.ok()) return url.status();
    if (url->is_name || url->rank) {
      return absl::InvalidArgumentError(Concat(
          "shared_cache_url is ", Quoted(text),
          "; it is the URL of a Mooncake master's HTTP port, such as http://mooncake:9003"));
    }
  }
  if (options.shared_cache_layout.empty()) return absl::OkStatus();
  const StatusOr<PagePool> pool = PoolInLayout(options.shared_cache_layout);
  if (pool.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("shared_cache_layout cannot be used: ", std::string(pool.status().message())));
}

Status Add(const ServerParts& server) {
  const ServerOptions& options = server.options;
  if (options.shared_cache_type != SharedCacheType::kHicache) return absl::OkStatus();
  MooncakePool* const pool = server.limits.features.Own(std::make_unique<MooncakePool>(
      options.shared_cache_verifies_all ? PageQuery::Verify::kAll : PageQuery::Verify::kEdges,
      options.shared_cache_timeout_ms));
  std::vector<SharedPoolCounts*> counts;
  for (const std::unique_ptr<IoThread>& thread : server.threads)
    counts.push_back(thread->features.Own(std::make_unique<SharedPoolCounts>()));
  server.services.Add<SharedPoolService>(pool, std::move(counts));
  return absl::OkStatus();
}

void AddState(AdminContext& /*admin*/, const PageCall& call, json::object* page) {
  const auto* const pool = call.thread.limits.features.Find<MooncakePool>();
  if (pool == nullptr) return;
  const MooncakePool::State state = pool->state();
  (*page)["shared_pool"] = {
      {"type", "hicache"},
      {"urls", json::array(state.masters.begin(), state.masters.end())},
      {"layouts", json::array(state.layouts.begin(), state.layouts.end())},
      {"page_size", state.page_size},
      {"paused", state.paused},
      {"hits", state.hits}};
}

constexpr PageSection kSections[] = {{.path = "/admin/kv-events", .add = &AddState}};

}  // namespace

extern constexpr Feature kSharedPoolFeature = {
    .name = "shared_pool", .check = &Check, .add = &Add, .sections = kSections};

}  // namespace vllm_router
