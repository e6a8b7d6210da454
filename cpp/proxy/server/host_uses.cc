#include "proxy/server/host_uses.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "worker/fleet_view.h"

namespace vllm_router {

std::vector<HostUse> HostUses(const FleetView& fleet, const std::vector<const Telemetry*>& telemetries) {
  std::map<std::string_view, HostUse> hosts;
  const auto host_of = [&hosts](const Worker& worker) -> HostUse& {
    HostUse& use = hosts[worker.url.base];
    use.url = worker.url.base;
    return use;
  };
  for (const FleetView::Member& member : fleet.members())
    host_of(*member.worker).requests += member.worker->load.requests();
  for (const Telemetry* const telemetry : telemetries) {
    const WorkerCounterMap& workers = telemetry->shard().workers;
    MutexLock lock(workers.mutex);
    for (const FleetView::Member& member : fleet.members()) {
      const WorkerCounters* const counters = workers.Find(member.worker->id);
      if (counters != nullptr) host_of(*member.worker).cached_tokens += counters->cached_tokens.count();
    }
  }
  std::vector<HostUse> uses;
  for (auto& [base, use] : hosts) uses.push_back(std::move(use));
  return uses;
}

}  // namespace vllm_router
