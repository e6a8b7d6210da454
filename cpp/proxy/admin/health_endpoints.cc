#include "proxy/admin/health_endpoints.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/text.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/discovery_report.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/json_text.h"
#include "proxy/api/pd_settings.h"
#include "proxy/api/settings.h"
#include "proxy/control/health_checker.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

// Workers of a stage, and those of them that are in rotation.
json::object Describe(const FleetView& stage) {
  const auto total = std::ranges::count_if(
      stage.members(), [](const FleetView::Member& member) { return !member.other_stage; });
  return {{"healthy", stage.in_rotation()}, {"total", total}};
}

// 200 while any worker serves: one unhealthy worker must not take the whole router out of a load
// balancer. An unchecked worker gets requests, so it counts as serving, and the text says that this is
// assumed. With --health-compat 503 as soon as one is unhealthy, as in the reference router. That router
// opens its port once its workers are healthy, so 503 as well while one is unchecked.
AdminReply Health(AdminContext& admin, const PageCall& call) {
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  const bool checks = admin.health->checks();
  json::array unhealthy;
  size_t unknown = 0;
  for (const FleetView::Member& member : fleet->members()) {
    if (!member.healthy) {
      unhealthy.emplace_back(member.worker->url.url);
    } else if (checks && !member.worker->health_known.load(std::memory_order_relaxed)) {
      ++unknown;
    }
  }
  const StageViews* const stages = fleet->stages();
  const bool has_pair =
      stages == nullptr || (stages->prefill->in_rotation() != 0 && stages->decode->in_rotation() != 0);
  // Without a member there is nothing to be ill, unless workers are expected.
  const bool is_idle = fleet->members().empty() && !(stages != nullptr && call.settings.pd.discovers);
  const bool serves = (fleet->in_rotation() != 0 && has_pair) || is_idle;
  const bool is_awaited = !serves && call.settings.pd.discovers;
  const bool good = call.settings.health_compat ? unhealthy.empty() && unknown == 0 && !is_awaited : serves;
  const bool panic = fleet->in_rotation() != 0 && fleet->eligible().empty();
  if (good && !panic && unhealthy.empty() && unknown == 0) return TextReply(200, "All servers healthy");
  std::string text;
  const auto add = [&text](std::string_view sentence) {
    text.append(text.empty() ? "" : ". ").append(sentence);
  };
  if (good) add("Serving");
  if (panic) add("Panic mode: all circuit breakers are open");
  if (unknown != 0) {
    add(Concat("Not checked yet: ", unknown, " of ", fleet->members().size(), " servers"));
  }
  if (!unhealthy.empty()) add("Unhealthy servers: " + JsonText(unhealthy));
  if (!serves && !has_pair) add(AwaitedPairMessage(call.settings.pd, *fleet));
  if (text.empty()) add("All servers are draining");
  return TextReply(good ? 200 : 503, std::move(text));
}

// A request needs a worker of each stage.
AdminReply StagedReadiness(
    AdminContext& admin, const Settings& settings, const FleetView& fleet, bool checked) {
  const FleetView& prefill = *fleet.stages()->prefill;
  const FleetView& decode = *fleet.stages()->decode;
  std::string reason;
  if (admin.draining.load(std::memory_order_relaxed)) {
    reason = "shutting down";
  } else if (prefill.eligible().empty() || decode.eligible().empty()) {
    reason = AwaitedSource(admin.router->pool().registry());
    if (reason.empty()) reason = AwaitedPairMessage(settings.pd, fleet);
  } else if (!checked) {
    reason = "no worker has passed a health check yet";
  }
  json::object body = {
      {"status", reason.empty() ? "ready" : "not_ready"},
      {"prefill", Describe(prefill)},
      {"decode", Describe(decode)}};
  if (reason.empty()) return JsonReply(200, std::move(body));
  body["reason"] = reason;
  return JsonReply(503, std::move(body));
}

// Workers count as healthy until a check fails, but at the start that means nothing yet: the first one must have passed a
// check.
AdminReply Readiness(AdminContext& admin, const PageCall& call) {
  const bool checked = !admin.health->checks() || admin.health->any_responded();
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  if (fleet->stages() != nullptr) return StagedReadiness(admin, call.settings, *fleet, checked);
  const size_t total = fleet->members().size();
  if (admin.draining.load(std::memory_order_relaxed)) {
    return JsonReply(503, {{"status", "not_ready"}, {"reason", "shutting down"}, {"total_workers", total}});
  }
  if (fleet->in_rotation() == 0) {
    const std::string awaited = AwaitedSource(admin.router->pool().registry());
    const std::string_view reason =
        awaited.empty() ? "no healthy workers available" : std::string_view(awaited);
    return JsonReply(503, {{"status", "not_ready"}, {"reason", reason}, {"total_workers", total}});
  }
  if (!checked) {
    return JsonReply(
        503, {{"status", "not_ready"},
              {"reason", "no worker has passed a health check yet"},
              {"total_workers", total}});
  }
  return JsonReply(
      200, {{"status", "ready"}, {"healthy_workers", fleet->in_rotation()}, {"total_workers", total}});
}

AdminReply Liveness(AdminContext& /*admin*/, IoThread& /*thread*/, const AdminRequest& /*request*/) {
  return TextReply(200, "OK");
}

// That there is a router is all that it says.
AdminReply Root(AdminContext& /*admin*/, IoThread& /*thread*/, const AdminRequest& /*request*/) { return {}; }

AdminReply AnswerOptions(AdminContext& /*admin*/, IoThread& /*thread*/, const AdminRequest& /*request*/) {
  return TextReply(200, "");
}

constexpr OwnEndpoint kHealthEndpoints[] = {
    {.path = "/", .respond = &Root},
    {.path = "*", .respond = &AnswerOptions},
    {.path = "/health", .methods = kReadMethods, .access = Access::kAnybody, .render = &Health},
    {.path = "/liveness", .methods = kReadMethods, .access = Access::kAnybody, .respond = &Liveness},
    {.path = "/readiness", .methods = kReadMethods, .access = Access::kAnybody, .render = &Readiness},
};

}  // namespace

std::span<const OwnEndpoint> HealthEndpoints() { return kHealthEndpoints; }

}  // namespace vllm_router
