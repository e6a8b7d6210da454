// Admin: what the router answers itself: health, the model list, the worker list, changes of the fleet, and metrics, by the
// paths of docs/reference/http_api.md. Each subject has a table of Endpoints (own_endpoint.h) in a file of its own; Admin puts
// them together and serves them. All threads of a server share one Admin. Thread-safe.
#pragma once

#include <array>
#include <functional>
#include <span>

#include "net/task.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/api/routes.h"
#include "proxy/thread/own_endpoints.h"

namespace vllm_router {

struct Feature;

class Admin final : public OwnEndpoints {
 public:
  // `cut_readers` ends the responses with a page whose readers are too slow; the renderer's thread calls it.
  Admin(
      AdminServices services, std::span<const Feature* const> features,
      std::function<void(PageRenderer::Page)> cut_readers);

  // Adds the routes of all endpoints to the table of proxy/api/routes.h, as the constructor does. Any thread.
  static void AddRoutes(std::span<const Feature* const> features);

  // On the control thread: none of its refreshes runs there.
  bool ended() const { return context_.model_lists.ended() && context_.loads.ended(); }
  const PageRenderer& pages() const { return context_.pages; }
  // Once no I/O thread runs any more, and before what pages are about ends.
  void StopPages() { context_.pages.Stop(); }
  // From now on the router is not ready.
  void BeginShutdown() { context_.draining.store(true, std::memory_order_relaxed); }

  Task<AdminReply> Respond(IoThread& thread, AdminRequest request) override;
  Task<PageRenderer::Page> Elsewhere(
      IoThread& thread, CancelScope& scope, PageRenderer::Render work) override;

 private:
  Task<AdminReply> Page(IoThread& thread, const AdminRequest& request, const OwnEndpoint& endpoint);

  std::array<const OwnEndpoint*, kRouteCount> by_route_{};  // null: none of ours
  AdminContext context_;
};

}  // namespace vllm_router
