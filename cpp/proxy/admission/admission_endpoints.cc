#include "proxy/admission/admission_endpoints.h"

#include <memory>
#include <optional>
#include <utility>

#include <boost/json.hpp>

#include "admission/tenant_table.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/replies.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/programs.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr double kNanosPerMillisecond = 1e6;
constexpr size_t kMostTenants = 256;

std::string_view NameOf(size_t of_class) { return PriorityClassName(static_cast<PriorityClass>(of_class)); }

json::array Classes(const AdmissionSettings& settings) {
  json::array rows;
  for (size_t i = 0; i < settings.classes.size(); ++i) {
    const ClassSettings& one = settings.classes[i];
    json::object row{
        {"class", NameOf(i)},
        {"queue_size", one.queue_size},
        {"queue_timeout_secs", static_cast<double>(one.queue_timeout_ms) / 1e3},
        {"gate", ClassGateName(one.room.gate)}};
    if (one.room.gate != ClassGate::kOpen) row["kv_ceiling"] = one.room.kv_ceiling;
    if (one.age_after_ms != 0) row["age_after_secs"] = static_cast<double>(one.age_after_ms) / 1e3;
    if (one.weight > 0) row["weight"] = one.weight;
    if (one.evict) row["evict"] = true;
    rows.push_back(std::move(row));
  }
  return rows;
}

json::object Describe(
    ClassPool& pool, const ClassPools& pools, const AdmissionSettings& settings, IoThread& control,
    const std::shared_ptr<const FleetView>& whole) {
  const int64_t now = control.clock.NowNanos();
  const std::shared_ptr<const FleetView> fleet = pool.ViewIn(whole);
  const RoomLimits limits = LimitsOf(pools, settings, control);
  const PoolRoom room = pool.RoomNow(*fleet, limits, now);
  const OpenWorkers open = FindOpen(*fleet, limits, room, now);
  const ClassPool::Report report = pool.Read(now);
  json::array classes;
  for (size_t i = 0; i < report.waiting.size(); ++i) {
    json::object closed;
    for (size_t reason = 1; reason < OpenWorkers::kReasons; ++reason) {
      if (open.closed[i][reason] != 0)
        closed[ClosedByName(static_cast<ClosedBy>(reason))] = open.closed[i][reason];
    }
    classes.push_back(json::object{
        {"class", NameOf(i)},
        {"waiting", report.waiting[i]},
        {"oldest_ms", static_cast<double>(report.oldest_ns[i]) / kNanosPerMillisecond},
        {"tokens_per_second", report.rate[i]},
        {"workers_with_room", open.ids[i].size()},
        {"closed", std::move(closed)}});
  }
  json::object row{{"model", nullptr}};
  if (!pool.model().empty()) row["model"] = pool.model();
  row["workers"] = room.workers;
  row["choosing"] = report.choosing;
  row["free_permits"] = limits.free_permits;
  row["idle_only_prefills"] = room.idle_only_prefills;
  row["higher_class_active"] = room.higher_class_active;
  row["classes"] = std::move(classes);
  return row;
}

json::object Rate(const RatePace& pace, const RateUsed& used) {
  const RateLevel level = LevelOf(pace, used);
  return {
      {"per_minute", pace.per_minute},
      {"limit", level.limit},
      {"remaining", level.remaining},
      {"reset_ms", static_cast<double>(level.reset_ns) / kNanosPerMillisecond}};
}

// Those with something under way, or less left than everything, by the limits of now.
json::array Tenants(const TenantTable& tenants, const AdmissionSettings& settings, int64_t now_ns) {
  json::array rows;
  for (const TenantTable::Row& one : tenants.Read(now_ns, kMostTenants)) {
    const TenantLimits limits = PartOf(settings.OfTenant(one.tenant).limits, tenants.parts());
    json::object row{{"tenant", one.tenant}, {"open", one.open}};
    if (one.peers_open != 0) row["open_at_other_routers"] = one.peers_open;
    if (limits.concurrency != 0) row["concurrency"] = limits.concurrency;
    if (const RatePace pace = PaceOfRequests(limits); pace.limits())
      row["requests"] = Rate(pace, one.requests_used);
    if (const RatePace pace = PaceOfTokens(limits); pace.limits())
      row["tokens"] = Rate(pace, one.tokens_used);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Null: programs are not told apart.
std::shared_ptr<const ProgramSettings> ProgramSettingsOf(const PageCall& call) {
  std::shared_ptr<const ProgramSettings> settings =
      call.thread.limits.features.Find<Programs>()->settings().Load();
  return settings->is_on() ? settings : nullptr;
}

json::object DescribePrograms(
    const ProgramTable::Report& report, const ProgramSettings& settings, const FleetView& fleet) {
  json::array workers;
  for (const ProgramTable::WorkerRow& one : report.workers) {
    const std::optional<uint32_t> position = fleet.Find(one.id);
    if (!position) continue;
    const Worker& worker = fleet.worker(*position);
    const uint64_t capacity = CapacityFor(settings, worker);
    json::object row{{"worker", worker.url.url}, {"capacity", nullptr}};
    if (capacity != 0) row["capacity"] = capacity;
    row["tokens"] = one.tokens;
    row["active"] = one.active;
    row["acting"] = one.acting;
    workers.push_back(std::move(row));
  }
  return {
      {"mode", ProgramModeName(settings.mode)},
      {"fill", settings.fill},
      {"max_wait_secs", static_cast<double>(settings.max_wait_ms) / 1e3},
      {"reasoning", report.reasoning},
      {"acting", report.acting},
      {"waiting", report.waiting},
      {"paused", report.paused},
      {"workers", std::move(workers)}};
}

json::object ProgramsNow(AdminContext& admin, const PageCall& call, const ProgramSettings& settings) {
  const auto& programs = *call.thread.limits.features.Find<Programs>();
  return DescribePrograms(programs.queue().Read(), settings, *admin.router->fleet());
}

// As the reference router.
AdminReply Diagnostics(AdminContext& admin, const PageCall& call) {
  const std::shared_ptr<const ProgramSettings> settings = ProgramSettingsOf(call);
  if (settings == nullptr) {
    return JsonReply(
        404, json::object{{"enabled", false}, {"error", "programs are off; see --program-admission"}});
  }
  json::object page = ProgramsNow(admin, call, *settings);
  page["enabled"] = true;
  return JsonReply(200, page);
}

AdminReply Admission(AdminContext& admin, const PageCall& call) {
  const auto& pools = *call.thread.limits.features.Find<ClassPools>();
  const auto& tenants = *call.thread.limits.features.Find<TenantTable>();
  const std::shared_ptr<const AdmissionSettings> settings = pools.rules().Load()->settings;
  const std::shared_ptr<const ProgramSettings> of_programs = ProgramSettingsOf(call);
  json::object page{{"enabled", settings != nullptr}};
  if (of_programs != nullptr) page["programs"] = ProgramsNow(admin, call, *of_programs);
  if (settings == nullptr) return JsonReply(200, page);
  const std::shared_ptr<const FleetView> whole = admin.router->fleet();
  json::array rows;
  for (const std::shared_ptr<ClassPool>& pool : pools.All())
    rows.push_back(Describe(*pool, pools, *settings, *admin.control, whole));
  page["order"] = settings->weighted() ? "weighted" : "strict";
  page["classes"] = Classes(*settings);
  page["pools"] = std::move(rows);
  page["tenants"] = Tenants(tenants, *settings, admin.control->clock.NowNanos());
  return JsonReply(200, page);
}

constexpr OwnEndpoint kAdmissionEndpoints[] = {
    {.path = "/admin/admission", .methods = "GET, HEAD", .render = &Admission},
    {.path = "/scheduling/diagnostics", .methods = "GET, HEAD", .render = &Diagnostics}};

}  // namespace

std::span<const OwnEndpoint> AdmissionEndpoints() { return kAdmissionEndpoints; }

}  // namespace vllm_router
