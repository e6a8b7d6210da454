#include "proxy/admin/admin_context.h"

#include <string>
#include <utility>

#include <boost/json.hpp>

#include "base/text.h"
#include "peer_sync/admin_facts.h"
#include "proxy/admin/load_endpoints.h"
#include "proxy/admin/model_endpoints.h"
#include "proxy/admin/replies.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/services.h"

namespace vllm_router {

AdminContext::AdminContext(AdminServices services, std::function<void(PageRenderer::Page)> cut_readers)
    : AdminServices(std::move(services)),
      pages(std::move(cut_readers)),
      model_lists(
          *control,
          [this](IoThread& thread, CancelScope& scope) { return FetchModels(*this, thread, scope); }),
      loads(*control, [this](IoThread& thread, CancelScope& scope) {
        return FetchLoads(*this, thread, scope);
      }) {}

AdminContext::~AdminContext() = default;

Task<AdminReply> AdminContext::Shared(SharedReply& shared, IoThread& thread, CancelScope& scope) {
  SharedReply::Reply reply = co_await shared.Get(thread, scope);
  if (reply != nullptr) co_return AdminReply::Of(std::move(reply));
  co_return ErrorReply(HttpError::kNoWorkers, "The workers did not respond in time.");
}

Task<AdminReply> AdminContext::Page(
    IoThread& thread, CancelScope& scope, PageKey key, PageRenderer::Render render) {
  PageRenderer::Page page = co_await pages.Get(thread, scope, std::move(key), std::move(render));
  if (page != nullptr) co_return AdminReply::Of(std::move(page));
  co_return ErrorReply(
      HttpError::kQueueFull,
      Concat(
          RenderQueue::kMaxPages,
          " other requests to this endpoint, with other parameters, wait to be served; ", "retry later."));
}

void AdminContext::AddSections(std::string_view path, const PageCall& call, boost::json::object* page) {
  for (const PageSection& section : sections) {
    if (section.path == path) section.add(*this, call, page);
  }
}

void AdminContext::TellPeers(AdminFact fact, boost::json::object* reply) const {
  OtherRouters* const others = services != nullptr ? services->Find<OtherRouters>() : nullptr;
  if (others == nullptr) return;
  const std::string scope = others->TellAdmin(std::move(fact));
  if (!scope.empty()) (*reply)["scope"] = scope;
}

}  // namespace vllm_router
