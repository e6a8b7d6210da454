// AdminContext: what the router's own endpoints work with: the services that they report and command, and what they share
// among themselves. One per server; the services outlive it. Any thread, but for what says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/page_renderer.h"
#include "proxy/control/shared_reply.h"

namespace boost::json {
class object;
}

namespace vllm_router {

class Configuration;
class Drainer;
class HealthChecker;
class Metrics;
class ModelService;
class Router;
class ScaleService;
class Services;
struct AdminFact;

// Null: the server has none.
struct AdminServices {
  std::shared_ptr<Router> router;
  IoThread* control = nullptr;
  const Metrics* metrics = nullptr;
  Configuration* configuration = nullptr;
  Drainer* drainer = nullptr;
  const HealthChecker* health = nullptr;
  ModelService* models = nullptr;
  const ScaleService* scale = nullptr;
  const Services* services = nullptr;   // of features, by their types
  std::vector<PageSection> sections{};  // that features add to pages
};

struct AdminContext : AdminServices {
  AdminContext(AdminServices services, std::function<void(PageRenderer::Page)> cut_readers);
  ~AdminContext();

  // A page that all who wait for it share; 503 if too many others wait.
  Task<AdminReply> Page(IoThread& thread, CancelScope& scope, PageKey key, PageRenderer::Render render);
  // What the workers say, asked once for all who wait for it; 503 if they do not respond in time.
  Task<AdminReply> Shared(SharedReply& shared, IoThread& thread, CancelScope& scope);
  // Adds what features add to the page of this path.
  void AddSections(std::string_view path, const PageCall& call, boost::json::object* page);
  // Tells other routers, and adds to the reply where it counts.
  void TellPeers(AdminFact fact, boost::json::object* reply) const;

  std::atomic<bool> draining{false};
  PageRenderer pages;
  std::atomic<size_t> queries_with_keys{0};  // hosts that are asked now
  SharedReply model_lists;                   // of workers
  SharedReply loads;                         // likewise
};

}  // namespace vllm_router
