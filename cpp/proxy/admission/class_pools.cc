#include "proxy/admission/class_pools.h"

#include <algorithm>
#include <utility>

#include "proxy/exchange/requested_model.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr size_t kMostFound = 256;  // pools that a thread knows

}  // namespace

StatusOr<std::shared_ptr<const AdmissionSettings>> ClassPools::Read(std::string_view lines) {
  if (lines.empty()) return nullptr;
  StatusOr<AdmissionSettings> parsed = AdmissionSettings::Parse(lines);
  if (!parsed.ok())
    return absl::InvalidArgumentError("admission_config, " + std::string(parsed.status().message()));
  return std::make_shared<const AdmissionSettings>(*std::move(parsed));
}

Status ClassPools::Follow(std::string_view lines) {
  StatusOr<std::shared_ptr<const AdmissionSettings>> read = Read(lines);
  if (!read.ok()) return read.status();
  const std::shared_ptr<const AdmissionSettings> settings = *std::move(read);
  std::vector<std::shared_ptr<ClassPool>> pools;
  {
    const MutexLock lock(mutex_);
    if (lines_ == lines) return absl::OkStatus();
    lines_ = lines;
    rules_.Publish(std::make_shared<const Rules>(Rules{.settings = settings}));
    for (const auto& [number, kept] : pools_) pools.push_back(kept.pool);
  }
  // A request that goes by the former settings meanwhile waits as they say.
  if (settings != nullptr) {
    for (const std::shared_ptr<ClassPool>& pool : pools) pool->Follow(settings);
  }
  return absl::OkStatus();
}

std::shared_ptr<ClassPool> ClassPools::Find(
    Number number, std::string_view model, const std::shared_ptr<const AdmissionSettings>& settings) {
  const MutexLock lock(mutex_);
  Kept& kept = pools_[number];
  if (kept.pool == nullptr) kept.pool = std::make_shared<ClassPool>(std::string(model), settings);
  kept.idle_ns = 0;
  return kept.pool;
}

std::vector<std::shared_ptr<ClassPool>> ClassPools::All() const {
  std::vector<std::shared_ptr<ClassPool>> pools;
  const MutexLock lock(mutex_);
  for (const auto& [number, kept] : pools_) pools.push_back(kept.pool);
  return pools;
}

bool ClassPools::any_waiting() const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(pools_, [](const auto& entry) { return entry.second.pool->any_waiting(); });
}

int64_t ClassPools::WaitingFor(std::string_view model) const {
  const std::shared_ptr<const AdmissionSettings> settings = rules_.Load()->settings;
  if (settings == nullptr) return 0;
  int64_t waiting = 0;
  for (const std::shared_ptr<ClassPool>& pool : All()) {
    if (!pool->any_waiting() || (!model.empty() && pool->model() != model)) continue;
    const ClassPool::Report report = pool->Read(0);
    for (size_t i = 0; i < report.waiting.size(); ++i) {
      if (settings->classes[i].room.gate != ClassGate::kIdleOnly)
        waiting += static_cast<int64_t>(report.waiting[i]);
    }
  }
  return waiting;
}

// The reason that most workers have.
void ClassPools::NoteClosed(const OpenWorkers& open, const ClassPool::Report& report, int64_t passed_ns) {
  for (size_t i = 0; i < report.waiting.size(); ++i) {
    if (report.waiting[i] == 0 || !open.ids[i].empty()) continue;
    const auto most = std::ranges::max_element(open.closed[i]);
    if (*most == 0) continue;
    const auto reason = static_cast<size_t>(most - open.closed[i].begin());
    closed_ns_[i][reason].fetch_add(passed_ns, std::memory_order_relaxed);
  }
}

void ClassPools::Tick(IoThread& thread, int64_t passed_ns) {
  const std::shared_ptr<const AdmissionSettings> settings = rules_.Load()->settings;
  const int64_t now = thread.clock.NowNanos();
  const std::shared_ptr<const FleetView> whole = thread.router->fleet();
  for (const std::shared_ptr<ClassPool>& pool : All()) {
    if (!pool->any_waiting()) continue;
    if (settings == nullptr) {
      pool->DispatchAll(now);
      continue;
    }
    const std::shared_ptr<const FleetView> fleet = FleetOf(*pool, whole);
    const RoomLimits limits = LimitsOf(*this, *settings, thread);
    const OpenWorkers open = FindOpen(*fleet, limits, pool->RoomNow(*fleet, limits, now), now);
    NoteClosed(open, pool->Read(now), passed_ns);
    pool->Pump(*fleet, limits, now);
  }
  const MutexLock lock(mutex_);
  absl::erase_if(pools_, [passed_ns](auto& entry) {
    Kept& kept = entry.second;
    kept.idle_ns = kept.pool->any_waiting() ? 0 : kept.idle_ns + passed_ns;
    return kept.idle_ns >= kKeptNs && kept.pool->Retire();
  });
}

const std::shared_ptr<ClassPool>& ThreadClasses::PoolOf(
    const FleetView& fleet, const RequestedModel* model,
    const std::shared_ptr<const AdmissionSettings>& settings) {
  if (found.size() > kMostFound) found.clear();
  std::shared_ptr<ClassPool>& pool = found[fleet.pool()];
  if (pool == nullptr || pool->retired()) {
    const std::string_view name = model != nullptr ? std::string_view(model->name()) : std::string_view();
    pool = pools.Find(fleet.pool(), name, settings);
  }
  return pool;
}

RoomLimits LimitsOf(const ClassPools& pools, const AdmissionSettings& settings, IoThread& thread) {
  const ConcurrencyLimiter& permits = thread.limits.concurrency;
  const uint64_t in_use = permits.in_use();
  return {
      .settings = settings,
      .whole = pools.whole(),
      .max_worker_requests = thread.router->options().max_worker_requests,
      .free_permits = permits.permits() - std::min(permits.permits(), in_use)};
}

std::shared_ptr<const FleetView> FleetOf(
    const ClassPool& pool, const std::shared_ptr<const FleetView>& whole) {
  if (pool.model().empty() || !whole->models()->decides()) return whole;
  return RequestedModel(pool.model()).FleetIn(whole);
}

}  // namespace vllm_router
