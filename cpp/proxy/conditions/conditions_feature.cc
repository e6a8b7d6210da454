#include "proxy/conditions/conditions_feature.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <boost/json.hpp>

#include "conditions/condition_report.h"
#include "conditions/recent_outcomes.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/replies.h"
#include "proxy/conditions/condition_watch.h"
#include "proxy/control/services.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

Status Add(const ServerParts& server) {
  std::vector<const RecentOutcomes*> outcomes;
  for (const std::unique_ptr<IoThread>& thread : server.threads)
    outcomes.push_back(thread->features.Own(std::make_unique<RecentOutcomes>()));
  auto* const watch = server.services.Add<ConditionWatch>(std::move(outcomes), server.services);
  server.services.Offer<ConditionReport>(watch);
  return absl::OkStatus();
}

const ConditionWatch& WatchOf(const AdminContext& admin) { return *admin.services->Find<ConditionWatch>(); }

json::value Ms(int64_t nanos) {
  if (nanos == 0) return nullptr;
  return static_cast<double>(nanos / 100'000) / 10;
}

json::object DescribeTimes(const TimeCounts& times) {
  return {{"p50", Ms(times.Quantile(0.5))}, {"p95", Ms(times.Quantile(0.95))}};
}

json::object DescribeRecent(const WorkerOutcomes& worker, int64_t now_ns) {
  const Outcomes all = SumOf(worker.models);
  json::object codes;
  for (size_t code = 0; code < kResponseCodeCount; ++code) {
    if (all.codes[code] != 0) codes[ResponseCodeName(static_cast<ResponseCode>(code))] = all.codes[code];
  }
  json::object recent = {{"attempts", all.attempts()}, {"responses", std::move(codes)}};
  if (all.stream_heads.total() != 0) recent["stream_head_ms"] = DescribeTimes(all.stream_heads);
  if (all.whole_heads.total() != 0) recent["head_ms"] = DescribeTimes(all.whole_heads);
  const LastFailure& last = worker.last_failure;
  if (last.at_ns != 0) {
    json::object failure = {
        {"seconds_ago", static_cast<double>((now_ns - last.at_ns) / 1'000'000) / 1000},
        {"status", last.status == 0 ? json::value(nullptr) : json::value(last.status)}};
    if (!last.error.empty()) failure["error"] = last.error;
    if (!last.model.empty()) failure["model"] = last.model;
    recent["last_failure"] = std::move(failure);
  }
  return recent;
}

AdminReply ServeStatus(AdminContext& admin, const PageCall& call) {
  const ConditionWatch& watch = WatchOf(admin);
  const auto active = watch.Report();
  const OutcomeSums outcomes = watch.Outcomes();
  const std::shared_ptr<const FleetView> fleet = admin.router->pool().fleet();
  const int64_t now = call.thread.clock.NowNanos();
  json::array conditions;
  for (const ActiveCondition& each : *active) conditions.push_back(ConditionJson(each));
  json::array workers;
  for (const FleetView::Member& member : fleet->members()) {
    const auto found = outcomes.find(member.worker->id);
    const MemberState state = StateOf(member, *active);
    json::object row = {
        {"url", member.worker->url.url},
        {"state", state.name},
        {"load", member.worker->load.open_requests()}};
    if (!state.model.empty()) row["model"] = state.model;
    row["recent"] = DescribeRecent(found == outcomes.end() ? WorkerOutcomes{} : found->second, now);
    workers.push_back(std::move(row));
  }
  return JsonReply(
      200, json::object{
               {"sentence", StatusSentence(*active, fleet->members().size())},
               {"conditions", std::move(conditions)},
               {"workers", std::move(workers)}});
}

// Beside the description of each worker.
void AddRecent(AdminContext& admin, const PageCall& call, json::object* page) {
  const OutcomeSums outcomes = WatchOf(admin).Outcomes();
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  const int64_t now = call.thread.clock.NowNanos();
  absl::flat_hash_map<std::string_view, WorkerId> ids;
  for (const FleetView::Member& member : fleet->members())
    ids.emplace(member.worker->url.url, member.worker->id);
  for (json::value& row : page->at("workers").as_array()) {
    json::object& worker = row.as_object();
    const auto id = ids.find(std::string_view(worker["url"].as_string()));
    const auto found = id == ids.end() ? outcomes.end() : outcomes.find(id->second);
    if (found != outcomes.end()) worker["recent"] = DescribeRecent(found->second, now);
  }
}

constexpr OwnEndpoint kOwnEndpoints[] = {
    {.path = "/admin/status", .methods = "GET, HEAD", .render = &ServeStatus}};

std::span<const OwnEndpoint> StatusEndpoints() { return kOwnEndpoints; }

constexpr EndpointTable kTables[] = {&StatusEndpoints};

constexpr PageSection kSections[] = {{.path = "/workers", .add = &AddRecent}};

}  // namespace

extern constexpr Feature kConditionsFeature = {
    .name = "conditions", .add = &Add, .endpoints = kTables, .sections = kSections};

}  // namespace vllm_router
