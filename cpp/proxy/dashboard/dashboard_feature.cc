#include "proxy/dashboard/dashboard_feature.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "base/version.h"
#include "conditions/recent_outcomes.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/replies.h"
#include "proxy/api/json_text.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/dashboard/dashboard_page.h"
#include "proxy/dashboard/event_broadcaster.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "receipts/receipt_log.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr std::string_view kEventsPath = "/dashboard/events";

Status Add(const ServerParts& server) {
  if (!server.options.dashboard) return absl::OkStatus();
  EventBroadcaster::Sources sources{
      .telemetries = {server.telemetries.begin(), server.telemetries.end() - 1},  // of clients
      .receipts = server.limits.features.Find<ReceiptLog>(),
      .services = server.services};
  for (const std::unique_ptr<IoThread>& thread : server.threads) {
    if (const auto* const outcomes = thread->features.Find<RecentOutcomes>())
      sources.outcomes.push_back(outcomes);
  }
  DashboardFacts facts{
      .version = Version(),
      .router = server.options.router_name,
      .policy = std::string(server.router.policy_of(Stage::kAll).name()),
      .started = UnixSeconds(),
      .has_receipts = sources.receipts != nullptr,
      .queue_limit = server.options.queue_size};
  server.services.Add<EventBroadcaster>(std::move(sources), std::move(facts));
  return absl::OkStatus();
}

AdminReply Off() { return ErrorReply(HttpError::kNotFound, "The dashboard is disabled (--no-dashboard)."); }

AdminReply Page(AdminContext& admin, IoThread& /*thread*/, const AdminRequest& request) {
  if (admin.services->Find<EventBroadcaster>() == nullptr) return Off();
  return DashboardPage(request.fields);
}

StatusOr<uint32_t> IntervalOf(std::string_view query) {
  const StatusOr<std::optional<std::string>> value = QueryValue(query, "interval");
  if (!value.ok()) return value.status();
  if (!value->has_value()) return 1;
  const std::optional<uint64_t> seconds = ParseDecimal(**value);
  if (seconds && *seconds >= 1 && *seconds <= EventBroadcaster::kLongestInterval)
    return static_cast<uint32_t>(*seconds);
  return absl::InvalidArgumentError(Concat(
      "interval is ", Quoted(**value),
      "; it is the seconds between two ticks and must be a whole number between 1 and ",
      EventBroadcaster::kLongestInterval));
}

// What other features add to the first event, without braces.
std::string MoreOfHello(AdminContext& admin, IoThread& thread, const Settings& settings) {
  boost::json::object more;
  admin.AddSections(kEventsPath, {.thread = thread, .settings = settings, .detail = {}}, &more);
  const std::string text = JsonText(more);
  return text.substr(1, text.size() - 2);
}

AdminReply Events(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  auto* const broadcaster = admin.services->Find<EventBroadcaster>();
  if (broadcaster == nullptr) return Off();
  const StatusOr<uint32_t> interval = IntervalOf(request.query);
  if (!interval.ok()) return RejectedReply(interval.status());
  std::shared_ptr<EventStream> stream =
      broadcaster->Open(*interval, MoreOfHello(admin, thread, request.settings));
  if (stream == nullptr) {
    return ErrorReply(
        HttpError::kQueueFull,
        Concat(
            "The dashboard has ", EventBroadcaster::kMostViewers,
            " viewers, and no more are served; close one that is not needed."),
        503);
  }
  return {.stream = std::move(stream)};
}

constexpr OwnEndpoint kOwnEndpoints[] = {
    {.path = "/dashboard", .methods = "GET, HEAD", .access = Access::kAdminPort, .respond = &Page},
    {.path = kEventsPath, .methods = "GET", .respond = &Events}};

std::span<const OwnEndpoint> DashboardEndpoints() { return kOwnEndpoints; }

constexpr EndpointTable kTables[] = {&DashboardEndpoints};

}  // namespace

extern constexpr Feature kDashboardFeature = {.name = "dashboard", .add = &Add, .endpoints = kTables};

}  // namespace vllm_router
