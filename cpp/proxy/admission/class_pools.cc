#include "proxy/admission/class_pools.h"

#include <algorithm>
#include <span>
#include <utility>

#include "hashing/hash.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"
#include "worker/model_catalog.h"

namespace vllm_router {
namespace {

constexpr size_t kMostFound = 256;  // pools that a thread knows

ClassPools::Number NumberOf(std::span<const WorkerId> ids) {
  const uint64_t hash = Xxh3({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  return hash == 0 ? 1 : hash;
}

ClassPools::Workers WorkersAt(const FleetView& whole, std::span<const uint32_t> positions) {
  ClassPools::Workers workers;
  for (const uint32_t position : positions) workers.ids.push_back(whole.worker(position).id);
  std::ranges::sort(workers.ids);
  workers.number = NumberOf(workers.ids);
  return workers;
}

// The model that its workers list, if one does; else the request's.
std::string_view NameOf(
    const ClassPools::Workers& workers, const FleetView& whole, std::string_view requested) {
  const ModelPools* const models = whole.models().get();
  if (workers.number == 0 || models == nullptr) return requested;
  for (const std::string& base : models->names->bases) {
    const ModelPools::Name* const known = models->Find(base);
    if (known == nullptr || !known->has_pool()) continue;
    if (WorkersAt(whole, models->names->pools[known->pool].workers).number == workers.number) return base;
  }
  return requested;
}

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

ClassPools::Workers ClassPools::WorkersOf(const FleetView& fleet) {
  if (fleet.models() != nullptr) return {};
  std::vector<uint32_t> positions;
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    if (!fleet.members()[position].elsewhere()) positions.push_back(position);
  }
  return WorkersAt(fleet, positions);
}

std::shared_ptr<ClassPool> ClassPools::Known(Number number) {
  const MutexLock lock(mutex_);
  const auto found = pools_.find(number);
  if (found == pools_.end()) return nullptr;
  found->second.idle_ns = 0;
  return found->second.pool;
}

std::shared_ptr<ClassPool> ClassPools::Find(
    Workers workers, std::string_view model, const std::shared_ptr<const AdmissionSettings>& settings) {
  const MutexLock lock(mutex_);
  Kept& kept = pools_[workers.number];
  if (kept.pool == nullptr)
    kept.pool = std::make_shared<ClassPool>(std::string(model), settings, std::move(workers.ids));
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

void ClassPools::MoveStale(const std::shared_ptr<const FleetView>& whole) {
  const std::shared_ptr<const ModelPools::Names>& of_models = whole->models()->names;
  const bool has_flipped = decides_ != of_models->decides;
  if (seen_names_ != of_models || seen_members_ != whole->membership_version()) {
    const ModelPools::Names& names = *of_models;
    seen_names_ = of_models;
    seen_members_ = whole->membership_version();
    decides_ = names.decides;
    current_ = {0, WorkersAt(*whole, names.anything).number};
    for (const ModelPools::Members& members : names.pools)
      current_.insert(WorkersAt(*whole, members.workers).number);
  }
  std::vector<std::shared_ptr<ClassPool>> stale;
  {
    const MutexLock lock(mutex_);
    absl::erase_if(pools_, [&](auto& entry) {
      if (current_.contains(entry.first) && !(entry.first == 0 && has_flipped)) return false;
      stale.push_back(entry.second.pool);
      return true;
    });
  }
  for (const std::shared_ptr<ClassPool>& pool : stale) pool->MoveAll();
}

void ClassPools::Tick(IoThread& thread, int64_t passed_ns) {
  const std::shared_ptr<const AdmissionSettings> settings = rules_.Load()->settings;
  const int64_t now = thread.clock.NowNanos();
  const std::shared_ptr<const FleetView> whole = thread.router->fleet();
  MoveStale(whole);
  for (const std::shared_ptr<ClassPool>& pool : All()) {
    if (!pool->any_waiting()) continue;
    if (settings == nullptr) {
      pool->DispatchAll(now);
      continue;
    }
    const std::shared_ptr<const FleetView> fleet = pool->ViewIn(whole);
    const ClassPool::Report report = pool->Read(now);
    NoteClosed(pool->Pump(*fleet, LimitsOf(*this, *settings, thread), now), report, passed_ns);
  }
  const MutexLock lock(mutex_);
  absl::erase_if(pools_, [passed_ns, now](auto& entry) {
    Kept& kept = entry.second;
    kept.idle_ns = kept.pool->any_waiting() ? 0 : kept.idle_ns + passed_ns;
    return kept.idle_ns >= kKeptNs && kept.pool->Retire(now);
  });
}

const std::shared_ptr<ClassPool>& ThreadClasses::PoolOf(
    const FleetView& fleet, const FleetView& whole, const RequestedModel* model,
    const std::shared_ptr<const AdmissionSettings>& settings) {
  if (std::exchange(found_members, whole.membership_version()) != whole.membership_version() ||
      found.size() > kMostFound)
    found.clear();
  const bool has_number = fleet.models() != nullptr || fleet.pool() != 0;
  std::shared_ptr<ClassPool>& pool = has_number ? found[fleet.pool()] : found_last;
  if (has_number && pool != nullptr && !pool->retired()) return pool;
  ClassPools::Workers workers = ClassPools::WorkersOf(fleet);
  pool = pools.Known(workers.number);
  if (pool != nullptr) return pool;
  const std::string_view name =
      NameOf(workers, whole, model != nullptr ? std::string_view(model->name()) : std::string_view());
  pool = pools.Find(std::move(workers), name, settings);
  return pool;
}

bool MayCompute(const Request& request) {
  return request.head->method == "POST" && (request.route().computes || request.info.route == Route::kOther);
}

uint64_t PromptTokensOf(const Request& request, bool counted) {
  constexpr uint64_t kBytesPerToken = 4;
  if (counted) return request.key.prompt_tokens;
  const bool is_whole = request.fully_read() && !request.stream_body;
  const uint64_t bytes = is_whole ? request.body->held().size() : request.head->content_length;
  return std::max<uint64_t>(1, bytes / kBytesPerToken);
}

PriorityClass ClassOf(const Request& request) {
  const IdentityInfo* const identity = request.info.identity.get();
  if (identity == nullptr) return PriorityClass::kDefault;
  return PriorityClassByName(identity->priority_class).value_or(PriorityClass::kDefault);
}

std::shared_ptr<const AdmissionSettings> ClassSettingsOf(const Request& request) {
  auto* const thread = request.thread.features.Find<ThreadClasses>();
  return thread != nullptr ? thread->rules.Get()->settings : nullptr;
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

}  // namespace vllm_router
