#include "proxy/control/scale_service.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/control/other_routers.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/place_queues.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/declared_fleet.h"
#include "worker/model_catalog.h"
#include "worker/worker_registry.h"

namespace vllm_router {

ScaleService::ScaleService(
    IoThread& control, std::vector<const Telemetry*> telemetries, const OtherRouters* peers)
    : thread_(control),
      telemetries_(std::move(telemetries)),
      peers_(peers),
      delay_(control.loop),
      report_(std::make_shared<const ScaleReport>()) {}

void ScaleService::Start() { Spawn(Run()); }

void ScaleService::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

std::shared_ptr<const ScaleReport> ScaleService::Report() const {
  const MutexLock lock(mutex_);
  return report_;
}

Task<void> ScaleService::Run() {
  runs_ = true;
  while (!stopped_) {
    co_await delay_.For(kTickNanos);
    if (!stopped_) Tick();
  }
  runs_ = false;
}

void ScaleService::Tick() {
  auto report = std::make_shared<ScaleReport>();
  // Before the first lists the fleet looks empty, and an empty fleet wants nothing.
  if (!begun_) report->awaited = thread_.router->pool().registry().Awaited();
  if (report->awaited.empty()) {
    begun_ = true;
    const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
    const int64_t now = thread_.clock.NowNanos();
    FollowFleet(*fleet);
    FollowPending();
    FollowPaces(*fleet, now - std::exchange(ticked_ns_, now));
    if (peers_ != nullptr) {
      const OtherRouters::Presence presence = peers_->presence();
      hears_routers_ = presence.connected;
      routers_ = presence.routers;
    }
    const std::vector<Asked> models = Models(*fleet, now);
    for (const Asked& model : models) report->models.push_back(Look(*fleet, model, models.size() == 1, now));
    std::erase_if(signals_, [&models](const auto& entry) {
      return std::ranges::find(models, entry.first, &Asked::name) == models.end();
    });
  }
  const MutexLock lock(mutex_);
  report_ = std::move(report);
}

void ScaleService::FollowFleet(const FleetView& fleet) {
  if (membership_ == fleet.membership_version()) return;
  membership_ = fleet.membership_version();
  all_.resize(fleet.members().size());
  std::iota(all_.begin(), all_.end(), 0u);
  host_of_.clear();
  std::map<std::string_view, uint32_t> numbers;
  for (const FleetView::Member& member : fleet.members()) {
    const auto next = static_cast<uint32_t>(numbers.size());
    host_of_.push_back(numbers.try_emplace(member.worker->url.base, next).first->second);
  }
  hosts_.assign(numbers.size(), {});
}

void ScaleService::FollowPending() {
  const WorkerRegistry& registry = thread_.router->pool().registry();
  if (registry.rows_version() == rows_version_) return;
  pending_.clear();
  std::set<std::string> seen;
  for (const DeclaredFleet::Row& row : registry.Rows(&rows_version_)) {
    if (row.state != DeclaredFleet::State::kPending || !seen.insert(row.spec.url.base).second) continue;
    pending_.push_back({.base = row.spec.url.base, .models = row.spec.models});
  }
}

void ScaleService::FollowPaces(const FleetView& fleet, int64_t passed_ns) {
  std::map<WorkerId, PrefillPace> paces;
  for (const FleetView::Member& member : fleet.members()) {
    const WorkerId id = member.worker->id;
    const auto known = paces_.find(id);
    paces.emplace(id, known != paces_.end() ? known->second : PrefillPace());
  }
  std::map<WorkerId, PrefillPace::Counts> counts;
  for (const Telemetry* telemetry : telemetries_) {
    const WorkerCounterMap& workers = telemetry->shard().workers;
    MutexLock lock(workers.mutex);
    for (const auto& [id, pace] : paces) {
      const WorkerCounters* const worker = workers.Find(id);
      if (worker == nullptr) continue;
      PrefillPace::Counts& sum = counts[id];
      sum.alone += worker->prefill.alone.count();
      sum.alone_tokens += worker->prefill.alone_tokens.count();
      sum.alone_micros += worker->prefill.alone_micros.count();
      sum.streamed_wait += worker->prefill.streamed_wait.count();
      sum.whole_wait += worker->prefill.whole_wait.count();
    }
  }
  for (auto& [id, pace] : paces) pace.Follow(counts[id], passed_ns);
  // Evictions and programs read it.
  for (const FleetView::Member& member : fleet.members()) {
    const double known = paces[member.worker->id].tokens_per_second().value_or(0);
    member.worker->prefill_pace.store(static_cast<float>(known), std::memory_order_relaxed);
  }
  paces_ = std::move(paces);
}

std::vector<ScaleService::Asked> ScaleService::Models(const FleetView& fleet, int64_t now_ns) {
  uint64_t undecided = 0;
  for (const Telemetry* telemetry : telemetries_) undecided += telemetry->shard().undecided_demand.count();
  const ModelPools::Names& names = *fleet.models()->names;
  const int64_t memory_ns = thread_.settings.Get()->model_memory_ns();
  const auto demand_of = [](const ModelPools::Name& name) {
    return name.demand->served.load(std::memory_order_relaxed) +
           name.demand->asleep.load(std::memory_order_relaxed);
  };
  struct OfAdapters {
    uint64_t demand = 0;
    int64_t waiting = 0;
  };
  std::map<std::string_view, OfAdapters> of_adapters;  // by their parents
  std::vector<Asked> models;
  for (const std::string& id : names.order) {
    const ModelPools::Name& name = *fleet.models()->Find(id);
    if (!name.is_label) continue;  // an adapter's demand is its parent's
    const int64_t waiting = name.demand->waiting.load(std::memory_order_relaxed);
    if (!name.card.parent.empty()) {
      OfAdapters& sum = of_adapters[name.card.parent];
      sum.demand += demand_of(name);
      sum.waiting += waiting;
    } else if (name.IsKnown(now_ns, memory_ns)) {
      const ModelPools::Positions& positions =
          name.has_pool() ? names.pools[name.pool].workers : names.anything;
      models.push_back(
          {.name = id,
           .positions = positions,
           .known = name.workers,
           .demand = demand_of(name) + undecided,
           .waiting = waiting});
    }
  }
  if (models.empty()) models.push_back({.name = {}, .positions = all_, .known = all_, .demand = undecided});
  for (Asked& model : models) {
    const auto found = of_adapters.find(model.name);
    if (found == of_adapters.end()) continue;
    model.demand += found->second.demand;
    model.waiting += found->second.waiting;
  }
  return models;
}

ScaleReport::Model ScaleService::Look(
    const FleetView& fleet, const Asked& asked, bool is_only, int64_t now_ns) {
  const Settings& settings = *thread_.settings.Get();
  ++turn_;
  std::vector<uint32_t> hosts;  // of this model
  PrefillPace pace;
  int64_t prompts = 0;  // tokens that wait
  uint32_t ranks = 0;   // ready ones
  double kv_use = 0;
  uint32_t kv_told = 0;
  // Of one worker no more counts than an overloaded one has: what engines tell of themselves may be wrong.
  const uint32_t most = thread_.router->options().max_worker_requests;
  const double slots = static_cast<double>(most) * routers_;
  const auto most_requests =
      most == 0 ? INT64_MAX : static_cast<int64_t>(ScaleSignals::kMostSaturation * slots);
  ScaleInput input{
      .queued = asked.waiting,
      .polls_kv = settings.load_poll_interval_ms > 0,
      .hears_routers = hears_routers_,
      .demand = asked.demand,
      .waiting = asked.waiting};
  ScaleReport::Model model{.name = std::string(asked.name)};
  for (const uint32_t position : asked.positions) {
    const FleetView::Member& member = fleet.members()[position];
    const WorkerLoad& load = member.worker->load;
    Host& host = hosts_[host_of_[position]];
    if (host.turn != turn_) {
      host = {.turn = turn_};
      hosts.push_back(host_of_[position]);
    }
    host.known = host.known || is_only || std::ranges::binary_search(asked.known, position);
    const int64_t requests = load.requests();
    model.requests += requests;
    input.queued += load.waiting_requests();
    host.requests += requests;
    if (member.draining) ++host.draining;
    if (!member.in_rotation()) continue;
    ++host.ready;
    ++ranks;
    input.requests += std::min(requests, most_requests);
    prompts += load.queued_prefill();
    pace.Add(paces_[member.worker->id]);
    if (const float use = member.worker->kv_use.load(std::memory_order_relaxed); use >= 0) {
      kv_use += static_cast<double>(use);
      ++kv_told;
    }
  }
  std::vector<uint32_t> ready;
  for (const uint32_t number : hosts) {
    const Host& host = hosts_[number];
    if (host.ready > 0) {
      ready.push_back(number);
    } else if (host.draining > 0) {
      ++model.draining;
    } else {
      ++(host.known ? input.down : input.unknown);
    }
  }
  for (const Pending& pending : pending_) {
    if (is_only || std::ranges::find(pending.models, asked.name) != pending.models.end()) {
      ++model.pending;
    } else if (pending.models.empty()) {
      ++input.unknown;  // it may turn out to serve any model
    }
  }
  model.ready = static_cast<uint32_t>(ready.size());
  // A request that waits for a place has not chosen among the models that count here.
  if (is_only) input.queued += thread_.limits.concurrency.waiting();
  if (const PlaceQueues* const queues = thread_.limits.features.Find<PlaceQueues>())
    input.queued += queues->WaitingFor(is_only ? std::string_view() : std::string_view(asked.name));
  model.queued = input.queued;
  input.ready = model.ready;
  input.pending = model.pending;
  if (most != 0) input.slots = slots * ranks;
  const std::optional<double> rate = pace.tokens_per_second();
  if (rate && *rate > 0 && ranks > 0) input.prefill_seconds = static_cast<double>(prompts) / (*rate * ranks);
  model.prefill_seconds = input.prefill_seconds;
  if (kv_told > 0 && kv_told * 2 >= ranks) input.kv_use = kv_use / kv_told;

  const ScaleOptions options{
      .target = settings.scale_target,
      .target_wait_secs = static_cast<double>(settings.scale_target_wait_ms) / 1000,
      .min = settings.scale_min,
      .max = settings.scale_max};
  model.reading = signals_[model.name].Update(input, options, now_ns);
  if (model.reading.stale || model.reading.desired >= model.ready) return model;
  // The last of those that are equally idle, as ReplicaSets take away the newest.
  std::ranges::stable_sort(ready, [this](uint32_t a, uint32_t b) {
    return std::pair(hosts_[a].requests, b) < std::pair(hosts_[b].requests, a);
  });
  ready.resize(std::min<size_t>(model.ready - model.reading.desired, kMostRemovable));
  std::map<uint32_t, std::string_view> urls;
  for (const uint32_t position : asked.positions) urls[host_of_[position]] = fleet.worker(position).url.base;
  for (const uint32_t number : ready) model.removable.emplace_back(urls[number]);
  return model;
}

// These are of the fleet, from all routers; a sum over routers counts them more than once.
void ScaleService::WriteMetrics(MetricsPage* page) const {
  const std::shared_ptr<const ScaleReport> report = Report();
  using Model = ScaleReport::Model;
  const auto each = [&](std::string_view name, std::string_view help, auto value_of) {
    page->Gauge(name, help);
    for (const Model& model : report->models) {
      if (const std::optional<double> value = value_of(model)) page->Add(*value, {{"model", model.name}});
    }
  };
  using Value = std::optional<double>;
  each(
      "scale_requests_fleet",
      "Requests under way at workers that serve the model, for any model, from all routers.",
      [](const Model& model) -> Value { return static_cast<double>(model.requests); });
  each(
      "scale_queued_fleet",
      "Of scale_requests_fleet, those without a first token (a response in one piece counts to its end); "
      "with one model also the queue of this router.",
      [](const Model& model) -> Value { return static_cast<double>(model.queued); });
  each(
      "scale_prefill_seconds_fleet",
      "Time that the ready workers need for the prompts that wait, while their rate is known.",
      [](const Model& model) -> Value { return model.prefill_seconds; });
  each(
      "scale_saturation_fleet",
      "Load of the ready workers, mean of 30 s: the largest known of requests by slots, prefill seconds by "
      "--scale-target-wait-secs, and KV use; 1: all that they can take.",
      [](const Model& model) -> Value { return model.reading.saturation; });
  each(
      "scale_desired_replicas",
      "Hosts that the load wants: the maximum of the last 5 minutes, between --scale-min and --scale-max.",
      [](const Model& model) -> Value { return model.reading.desired; });
  each(
      "scale_stale", "1 while the number of desired replicas is an old one, since something is not known.",
      [](const Model& model) -> Value { return model.reading.stale ? 1 : 0; });
}

}  // namespace vllm_router
