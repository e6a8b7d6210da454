#include "proxy/admin/control_endpoints.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "http/query.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/configuration.h"
#include "proxy/admin/discovery_report.h"
#include "proxy/admin/metrics.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/admin/scale_reply.h"
#include "proxy/control/scale_service.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

// ---- discovery

AdminReply Discovery(AdminContext& admin, const PageCall& call) {
  json::object page = DiscoveryReport(admin.router->pool().registry(), call.thread.clock.NowNanos());
  admin.AddSections("/admin/discovery", call, &page);
  return JsonReply(200, std::move(page));
}

AdminReply AdoptDiscovered(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  const StatusOr<std::optional<std::string>> source = QueryValue(request.query, "source");
  if (!source.ok()) return RejectedReply(source.status());
  if (source->value_or("").empty()) {
    return ErrorReply(
        HttpError::kInvalidArgument,
        "The query parameter 'source' is missing; write for example ?source=file.");
  }
  const StatusOr<std::vector<std::string>> left =
      admin.router->pool().registry().Adopt(**source, thread.clock.NowNanos());
  if (!left.ok()) return ErrorReply(HttpError::kNotFound, std::string(left.status().message()));
  return JsonReply(200, {{"source", **source}, {"left", json::array(left->begin(), left->end())}});
}

// ---- autoscalers

AdminReply Scale(AdminContext& admin, const PageCall& call) {
  return ScaleReply(*admin.scale->Report(), ValueOf(call.detail));
}

StatusOr<std::string> ModelDetail(const AdminRequest& request) { return DetailOf(request.query, "model"); }

// ---- settings

// The one argument of POST /admin/reload. What is misspelt must not become a real reload.
StatusOr<bool> DryRunOf(const AdminRequest& request) {
  constexpr std::string_view kName = "dry_run";
  std::string_view rest = request.query;
  while (const std::optional<QueryPair> pair = TakeQueryPair(&rest)) {
    if (pair->name.empty() && !pair->value) continue;
    if (pair->name != kName) {
      return absl::InvalidArgumentError(Concat(
          "The query parameter ", Quoted(pair->name),
          " is unknown here; there is one, dry_run=1, and nothing was ", "reloaded."));
    }
    if (!pair->value) {
      return absl::InvalidArgumentError("The query parameter 'dry_run' has no value; write dry_run=1.");
    }
  }
  if (!request.body.empty() && request.body != "{}") {
    return absl::InvalidArgumentError(
        "A reload takes no body, and nothing was reloaded; the one argument is in the query: ?dry_run=1.");
  }
  const StatusOr<std::optional<std::string>> given = QueryValue(request.query, kName);
  if (!given.ok()) return given.status();
  const std::string value = given->value_or("0");
  if (value == "1" || value == "true") return true;
  if (value == "0" || value == "false") return false;
  return absl::InvalidArgumentError(
      Concat("The query parameter 'dry_run' is ", Quoted(value), "; it must be 1, 0, true or false."));
}

Task<AdminReply> ReloadSettings(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  const StatusOr<bool> dry_run = DryRunOf(request);
  if (!dry_run.ok()) co_return RejectedReply(dry_run.status());
  AdminReply reply = co_await admin.configuration->Reload(thread, request.scope, *dry_run);
  co_return reply;
}

AdminReply Config(AdminContext& admin, const PageCall& /*call*/) { return admin.configuration->Config(); }

AdminReply MetricsText(AdminContext& admin, const PageCall& /*call*/) {
  return {.body = admin.metrics->Text(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

constexpr OwnEndpoint kControlEndpoints[] = {
    {.path = "/admin/discovery", .methods = kReadMethods, .render = &Discovery},
    {.path = "/admin/discovery/adopt", .methods = "POST", .respond = &AdoptDiscovered},
    {.path = "/scale", .render = &Scale, .detail = &ModelDetail},
    {.path = "/admin/config", .methods = kReadMethods, .render = &Config},
    {.path = "/admin/reload", .methods = "POST", .serve = &ReloadSettings},
    {.path = "/metrics", .render = &MetricsText},
};

}  // namespace

std::span<const OwnEndpoint> ControlEndpoints() { return kControlEndpoints; }

}  // namespace vllm_router
