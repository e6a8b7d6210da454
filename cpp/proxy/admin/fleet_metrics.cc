#include "proxy/admin/fleet_metrics.h"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "proxy/telemetry/metrics_page.h"
#include "worker/declared_fleet.h"
#include "worker/fleet_view.h"
#include "worker/model_catalog.h"
#include "worker/worker_registry.h"

namespace vllm_router {

void WriteDiscovery(const WorkerRegistry& registry, int64_t now_ns, MetricsPage* page) {
  const std::vector<SourceReport> sources = registry.Sources();
  if (sources.empty()) return;
  std::map<std::pair<std::string, std::string_view>, uint64_t> states;
  for (const SourceReport& source : sources) {
    for (const std::string_view state : {"pending", "serving", "resting", "draining", "held", "left"})
      states[{source.name, state}] = 0;
  }
  for (const DeclaredFleet::Row& row : registry.Rows()) {
    const std::string owner = row.owners.empty() ? "none" : row.owners.front();
    ++states[{owner, DeclaredFleet::StateName(row)}];
  }
  const auto each = [&](auto value) {
    for (const SourceReport& source : sources) page->Add(value(source), {{"source", source.name}});
  };
  page->Gauge(
      "discovery_workers",
      "Workers by the source that declares them (none: they are not declared any more, and drain) and state: "
      "pending, serving, resting, draining, held or left.");
  for (const auto& [of, count] : states) page->Add(count, {{"source", of.first}, {"state", of.second}});
  page->Counter("discovery_syncs_total", "Lists of workers that were taken from the source.");
  each([](const SourceReport& source) { return source.syncs; });
  page->Counter("discovery_errors_total", "Failed looks at the source of workers, by kind.");
  for (const SourceReport& source : sources) {
    for (const auto& [kind, count] : source.errors)
      page->Add(count, {{"source", source.name}, {"kind", kind}});
  }
  page->Gauge(
      "discovery_last_success_timestamp_seconds",
      "Unix time of the last list that was taken from the source; 0: none yet.");
  each([&](const SourceReport& source) {
    if (!source.last_list_ns) return 0.0;
    return UnixSeconds() - static_cast<double>(now_ns - *source.last_list_ns) / 1e9;
  });
  page->Gauge(
      "discovery_held",
      "Workers that the source's list leaves out and that are kept for now (--discovery-guard, "
      "--discovery-hold-secs).");
  each([](const SourceReport& source) { return source.held; });
  page->Counter(
      "fleet_changes_total", "Changes of the fleet by the lists of the source: joined, left or changed.");
  for (const SourceReport& source : sources) {
    const auto add = [&](std::string_view change, uint64_t count) {
      page->Add(count, {{"source", source.name}, {"change", change}});
    };
    add("joined", source.joined);
    add("left", source.left);
    add("changed", source.changed);
  }
}

// By model for the first names, and for all others together.
void WriteModels(const FleetView& fleet, MetricsPage* page) {
  const ModelPools& pools = *fleet.models();
  constexpr std::array<std::string_view, 4> kStates = {"serving", "resting", "draining", "unhealthy"};
  using Counts = std::array<uint64_t, kStates.size()>;
  std::map<std::string_view, Counts> workers;
  struct Demand {
    uint64_t served = 0;
    uint64_t asleep = 0;
    uint64_t unknown = 0;
    int64_t waiting = 0;
  };
  std::map<std::string_view, Demand> demand;
  uint64_t listed = 0;
  const auto add_demand = [&demand](std::string_view label, const ModelDemand& counted) {
    Demand& sum = demand[label];
    sum.served += counted.served.load(std::memory_order_relaxed);
    sum.asleep += counted.asleep.load(std::memory_order_relaxed);
    sum.unknown += counted.unknown.load(std::memory_order_relaxed);
    sum.waiting += counted.waiting.load(std::memory_order_relaxed);
  };
  for (const std::string& id : pools.names->order) {
    const ModelPools::Name& name = *pools.Find(id);
    const std::string_view label = name.is_label ? std::string_view(id) : "other";
    if (name.is_label) add_demand(label, *name.demand);
    if (!name.is_listed()) continue;
    ++listed;
    Counts& counts = workers[label];
    for (const uint32_t position : name.workers) {
      const FleetView::Member& member = fleet.members()[position];
      ++counts[!member.healthy ? 3 : member.draining ? 2 : member.resting ? 1 : 0];
    }
  }
  add_demand("other", *pools.names->other);
  page->Gauge("models", "Models that workers of the fleet list, adapters among them.");
  page->Add(listed);
  page->Gauge(
      "model_workers",
      "Workers that list the model: serving, resting, draining or unhealthy; names beyond the first 256 are "
      "other.");
  for (const auto& [model, counts] : workers) {
    for (size_t i = 0; i < kStates.size(); ++i)
      page->Add(counts[i], {{"model", model}, {"state", kStates[i]}});
  }
  page->Counter(
      "model_demand_total",
      "Requests by model where their workers depend on it: served (it has workers), asleep (it had, or is in "
      "--models) or unknown (it never had; model is then other).");
  for (const auto& [model, counts] : demand) {
    const auto add = [&, model = model](std::string_view result, uint64_t count) {
      page->Add(count, {{"model", model}, {"result", result}});
    };
    add("served", counts.served);
    add("asleep", counts.asleep);
    if (model == "other") add("unknown", counts.unknown);
  }
  page->Gauge(
      "model_waiting_requests",
      "Requests that wait for a worker of their model (--model-wait-secs), later in queue_wait_seconds; "
      "names beyond the first 256 are other.");
  for (const auto& [model, counts] : demand) page->Add(counts.waiting, {{"model", model}});
}

}  // namespace vllm_router
