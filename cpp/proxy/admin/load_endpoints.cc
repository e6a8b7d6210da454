#include "proxy/admin/load_endpoints.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "net/task.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/client/load_query.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr int64_t kLoadsTimeoutMs = 5'000;  // per query; a worker gets at most three
constexpr size_t kPolledPerTurn = 16;       // of thousands of workers that are polled at once

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

Task<AdminReply> Loads(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  return admin.Shared(admin.loads, thread, request.scope);
}

constexpr OwnEndpoint kLoadEndpoints[] = {
    {.path = "/get_loads", .serve = &Loads},
};

}  // namespace

Task<SharedReply::Reply> FetchLoads(AdminContext& admin, IoThread& thread, CancelScope& scope) {
  struct Gathering {
    std::map<std::string, std::vector<uint32_t>> hosts;  // positions
    std::vector<int64_t> loads;
    size_t open = 0;
    Signal all_in;
  } gathering;
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
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
  co_return std::make_shared<const AdminReply>(JsonReply(200, DescribeLoads(*fleet, gathering.loads)));
}

std::span<const OwnEndpoint> LoadEndpoints() { return kLoadEndpoints; }

}  // namespace vllm_router
