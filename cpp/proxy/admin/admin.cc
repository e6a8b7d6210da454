#include "proxy/admin/admin.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "proxy/admin/control_endpoints.h"
#include "proxy/admin/drain_endpoints.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/health_endpoints.h"
#include "proxy/admin/load_endpoints.h"
#include "proxy/admin/model_endpoints.h"
#include "proxy/admin/policy_endpoints.h"
#include "proxy/admin/replies.h"
#include "proxy/admin/worker_endpoints.h"
#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// One table for each subject that is no feature.
constexpr std::array<EndpointTable, 7> kSubjects = {
    &HealthEndpoints, &ModelEndpoints,   &WorkerEndpoints, &LoadEndpoints,
    &DrainEndpoints,  &ControlEndpoints, &PolicyEndpoints,
};

Route RouteFor(const OwnEndpoint& endpoint) {
  if (endpoint.methods.empty()) return FindRoute(endpoint.path);
  return AddRoute(
      {.label = endpoint.path,
       .own = true,
       .allow = endpoint.methods,
       .access = endpoint.access,
       .max_body = endpoint.max_body});
}

template <typename Action>
void ForEachEndpoint(std::span<const Feature* const> features, const Action& action) {
  for (const EndpointTable subject : kSubjects) {
    for (const OwnEndpoint& endpoint : subject()) action(endpoint);
  }
  for (const Feature* const feature : features) {
    for (const EndpointTable subject : feature->endpoints) {
      for (const OwnEndpoint& endpoint : subject()) action(endpoint);
    }
  }
}

}  // namespace

Admin::Admin(
    AdminServices services, std::span<const Feature* const> features,
    std::function<void(PageRenderer::Page)> cut_readers)
    : context_(std::move(services), std::move(cut_readers)) {
  ForEachEndpoint(features, [this](const OwnEndpoint& endpoint) {
    const Route route = RouteFor(endpoint);
    const OwnEndpoint*& place = by_route_[static_cast<size_t>(route)];
    ROUTER_CHECK(place == nullptr, "a path has one row");
    const bool is_page = endpoint.render != nullptr && RouteOf(route).allow == "GET, HEAD";
    ROUTER_CHECK(
        is_page || endpoint.respond != nullptr || endpoint.serve != nullptr, "each method has a function");
    place = &endpoint;
  });
  for (const Feature* const feature : features) {
    context_.sections.insert(context_.sections.end(), feature->sections.begin(), feature->sections.end());
  }
}

void Admin::AddRoutes(std::span<const Feature* const> features) {
  ForEachEndpoint(features, [](const OwnEndpoint& endpoint) { RouteFor(endpoint); });
}

Task<AdminReply> Admin::Respond(IoThread& thread, AdminRequest request) {
  const OwnEndpoint* const endpoint = by_route_[static_cast<size_t>(request.route)];
  if (endpoint == nullptr) co_return ErrorReply(HttpError::kNotFound, ErrorOf(HttpError::kNotFound).message);
  if (endpoint->render != nullptr && (request.method == "GET" || request.method == "HEAD")) {
    AdminReply reply = co_await Page(thread, request, *endpoint);
    co_return reply;
  }
  if (endpoint->respond != nullptr) co_return endpoint->respond(context_, thread, request);
  AdminReply reply = co_await endpoint->serve(context_, thread, request);
  co_return reply;
}

Task<AdminReply> Admin::Page(IoThread& thread, const AdminRequest& request, const OwnEndpoint& endpoint) {
  PageKey key{request.route};
  if (endpoint.detail != nullptr) {
    StatusOr<std::string> detail = endpoint.detail(request);
    if (!detail.ok()) co_return RejectedReply(detail.status());
    key.detail = *std::move(detail);
  }
  PageRenderer::Render render = [this, &thread, &endpoint, settings = thread.settings.Get(),
                                 detail = key.detail] {
    return endpoint.render(context_, {.thread = thread, .settings = *settings, .detail = detail});
  };
  AdminReply reply = co_await context_.Page(thread, request.scope, std::move(key), std::move(render));
  co_return reply;
}

Task<PageRenderer::Page> Admin::Elsewhere(IoThread& thread, CancelScope& scope, PageRenderer::Render work) {
  PageRenderer::Page done = co_await context_.pages.Elsewhere(thread, scope, std::move(work));
  co_return done;
}

}  // namespace vllm_router
