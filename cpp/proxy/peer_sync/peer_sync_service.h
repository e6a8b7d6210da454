// PeerSyncService does what follows in a server from what routers tell each other (peer_rounds.h).
//
//   alone                      LoadPoller polls the workers
//   a peer suspects a worker   HealthChecker asks that worker at once
//   a rate limit               is leased from the limit of all routers (rate_lease.h)
//   an admin's word            of a worker, said at any router, is carried out at all (peer_admin.h)
//   other parts of the router  tell and hear what they have to (base/peer_topic.h)
//
// On the control thread, except where a comment says any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "proxy/control/other_routers.h"
#include "proxy/control/service.h"
#include "proxy/peer_sync/peer_admin.h"
#include "proxy/peer_sync/peer_rounds.h"
#include "proxy/peer_sync/rate_lease.h"

namespace vllm_router {

class Drainer;
class HealthChecker;
class LoadPoller;
struct IoThread;

struct PeerSyncServiceOptions {
  bool shares_rate_limit = true;
  bool shares_admin = false;  // workers that admins add, remove and drain
};

class PeerSyncService final : public Service, public OtherRouters {
 public:
  static constexpr int64_t kSuspectedNanos =
      2'000'000'000;  // between two checks of a worker that peers suspect

  // All outlive it.
  PeerSyncService(
      IoThread& control, PeerSyncServiceOptions options, PeerConnection connection, HealthChecker& health,
      LoadPoller& loads, Drainer& drainer);

  void Start() override;
  void Stop() override;
  bool ended() const override { return rounds_.ended() && admin_.ended() && lease_.ended(); }

  // Any thread.
  PeerSyncReport Report() const { return rounds_.Report(); }
  void WriteMetrics(MetricsPage* page) const override { Report().WriteMetrics(page); }
  void AddConditions(const AddCondition& add) const override;
  void Suspect(const std::shared_ptr<Worker>& worker) override;
  void CacheEmptied(const std::shared_ptr<Worker>& worker) override;
  std::string TellAdmin(AdminFact fact) override;
  void AddTopic(PeerTopic* topic) override;
  Presence presence() const override;

 private:
  PeerRounds::Calls Calls();
  void Turn(int64_t now_ns);
  void CheckHealth(const std::shared_ptr<Worker>& worker, int64_t now_ns);
  void Complete(PeerSyncReport* report) const;

  IoThread& thread_;
  const PeerSyncServiceOptions options_;
  HealthChecker& health_;
  LoadPoller& loads_;
  PeerRounds rounds_;
  RateLease lease_;
  PeerAdmin admin_;
  std::map<WorkerId, int64_t> suspected_ns_;
};

}  // namespace vllm_router
