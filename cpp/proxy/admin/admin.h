// Admin: the router's own endpoints: health, the model list, the fleet, metrics. Shared by all threads;
// each call runs on the thread that received it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/task.h"
#include "proxy/admin/page_renderer.h"
#include "proxy/control/shared_reply.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/own_endpoints.h"

namespace boost::json {
class object;
}

namespace vllm_router {

class Configuration;
class Drainer;
class HealthChecker;
class KvEventService;
class KvPushReceiver;
class Metrics;
class ModelService;
struct AdminFact;
class PdRegistrationService;
class PeerSyncService;
class PrefixEventService;
class RedisPool;
class RedisResponses;
class ResponseCacheService;
class ScaleService;
struct SharedInvalidation;

class Admin final : public OwnEndpoints {
 public:
  explicit Admin(std::shared_ptr<Router> router);
  ~Admin();

  void set_control(IoThread* control);                        // before the threads run; must outlive it
  void set_drainer(Drainer* drainer) { drainer_ = drainer; }  // likewise
  void set_kv_events(KvEventService* events) { kv_events_ = events; }  // likewise
  void TakePushedKvEvents();  // before the threads run. REQUIRES: the pool has an index
  void set_prefix_events(const PrefixEventService* events) { prefix_events_ = events; }  // likewise
  void set_health(const HealthChecker* health) { health_ = health; }                     // likewise
  void set_models(ModelService* models) { model_service_ = models; }                     // likewise
  void set_metrics(const Metrics* metrics) { metrics_ = metrics; }  // before the threads run
  void set_configuration(Configuration* configuration) { configuration_ = configuration; }  // likewise
  void set_peer_sync(PeerSyncService* peers) { peers_ = peers; }  // likewise; null: routers share nothing
  void set_registrations(const PdRegistrationService* registrations) { registrations_ = registrations; }
  struct SharedResponses {
    IoThread* control = nullptr;
    const RedisPool* pool = nullptr;
    const RedisResponses* responses = nullptr;
    ResponseCacheService* service = nullptr;
  };
  void set_shared_responses(const SharedResponses& shared) { shared_responses_ = shared; }  // likewise
  void set_scale(const ScaleService* scale) { scale_ = scale; }                             // likewise
  // On the control thread: none of its refreshes runs there.
  bool ended() const { return models_.ended() && loads_.ended(); }
  // Before the threads run: what ends the responses with a page whose readers are too slow.
  void set_cut_readers(std::function<void(PageRenderer::Page)> cut) { pages_.set_cut(std::move(cut)); }
  const PageRenderer& pages() const { return pages_; }
  // Once no I/O thread runs any more, and before what pages are about ends.
  void StopPages() { pages_.Stop(); }
  void set_draining() { draining_.store(true, std::memory_order_relaxed); }

  Task<AdminReply> Respond(IoThread& thread, AdminRequest request) override;
  Task<PageRenderer::Page> Elsewhere(
      IoThread& thread, CancelScope& scope, PageRenderer::Render work) override;

 private:
  // Of routes whose response has a part for each worker, or more: on the renderer's thread.
  AdminReply Render(const IoThread& thread, const Settings& settings, const PageKey& page) const;
  Task<AdminReply> Page(IoThread& thread, CancelScope& scope, PageKey key, PageRenderer::Render render);
  AdminReply Health(const Settings& settings) const;
  AdminReply Readiness(const Settings& settings, bool tried) const;
  AdminReply StagedReadiness(const Settings& settings, const FleetView& fleet, bool tried) const;
  AdminReply PrefixRouting(const Settings& settings) const;
  AdminReply IndexStats() const;
  AdminReply IndexClear() const;
  AdminReply KvEvents(const IoThread& thread) const;
  AdminReply ResyncKvEvents(const AdminRequest& request) const;
  AdminReply PushKvEvents(const IoThread& thread, const AdminRequest& request);
  AdminReply KvIndexStats(const IoThread& thread) const;
  AdminReply KvIndexBackends() const;
  Task<AdminReply> KvIndexClear(IoThread& thread) const;
  AdminReply CacheStats(const IoThread& thread, const Settings& settings, bool detail) const;
  Task<SharedInvalidation> InvalidateShared(IoThread& thread, CancelScope& scope, bool deletes) const;
  Task<AdminReply> CacheInvalidate(IoThread& thread, const AdminRequest& request) const;
  AdminReply FinishSession(const AdminRequest& request) const;
  Task<AdminReply> Drain(IoThread& thread, const AdminRequest& request);
  // Until the drain has ended, the time is over or the request is cancelled.
  Task<void> WaitForDrain(IoThread& thread, CancelScope& scope, std::string_view url, int64_t wait_ns);
  AdminReply DrainStatus(std::string_view url) const;
  AdminReply Peers(Route route) const;
  // Tells other routers, and adds to the reply where it counts.
  void TellPeers(AdminFact fact, boost::json::object* reply) const;
  AdminReply AdoptDiscovered(const IoThread& thread, const AdminRequest& request) const;
  Task<AdminReply> ReloadSettings(IoThread& thread, const AdminRequest& request);
  AdminReply ListWorkers() const;
  AdminReply Workers() const;
  AdminReply OneWorker(std::string_view encoded_url) const;
  Task<AdminReply> Shared(SharedReply& shared, IoThread& thread, CancelScope& scope);
  Task<SharedReply::Reply> Models(IoThread& thread, CancelScope& scope);
  // What workers list to the router, or, with a client's credentials, what hosts list to that client that have keys of
  // their own.
  Task<AdminReply> GatherModels(IoThread& thread, CancelScope& scope, const std::string& credentials);
  Task<AdminReply> ModelsFor(IoThread& thread, const AdminRequest& request);
  Task<AdminReply> ModelList(IoThread& thread, const AdminRequest& request);
  Task<AdminReply> OneModel(IoThread& thread, const AdminRequest& request, std::string_view encoded_id);
  Task<SharedReply::Reply> Loads(IoThread& thread, CancelScope& scope);
  struct NewWorker {
    std::string url;
    double weight = 1.0;
    bool receives_api_key = false;
    WorkerRole role = {};
  };
  Task<AdminReply> Add(IoThread& thread, const AdminRequest& request, NewWorker worker, bool as_json);
  Task<Status> AddWhenHealthy(IoThread& thread, const AdminRequest& request, NewWorker worker);
  AdminReply Remove(std::string_view url, bool as_json);
  AdminReply RemoveByPath(std::string_view encoded_url);
  Task<AdminReply> AddAsCalled(IoThread& thread, const AdminRequest& request, bool as_json);
  AdminReply RemoveAsCalled(const AdminRequest& request);

  const std::shared_ptr<Router> router_;
  const Metrics* metrics_ = nullptr;
  Configuration* configuration_ = nullptr;
  Drainer* drainer_ = nullptr;
  KvEventService* kv_events_ = nullptr;
  const PrefixEventService* prefix_events_ = nullptr;
  const HealthChecker* health_ = nullptr;
  ModelService* model_service_ = nullptr;
  PeerSyncService* peers_ = nullptr;
  const PdRegistrationService* registrations_ = nullptr;
  const ScaleService* scale_ = nullptr;
  SharedResponses shared_responses_;        // null: responses are not in Redis
  std::unique_ptr<KvPushReceiver> pushes_;  // null: none are taken
  std::atomic<bool> draining_{false};
  PageRenderer pages_;
  std::atomic<size_t> queries_with_keys_{0};  // hosts that are asked now
  SharedReply models_;
  SharedReply loads_;
};

}  // namespace vllm_router
