// PeerSyncService carries what PeerSync (peer_sync/) tells and hears through a Redis (peer_sync/peer_streams.h), and does
// what follows from it in a server.
//
//   each interval              what this router tells, and what the others told; half an interval later once more
//   a snapshot                 tells what was before (peer_snapshots.h)
//   nothing for 5 s            alone: LoadPoller polls the workers, and the index assumes holders
//   a peer suspects a worker   HealthChecker asks that worker at once
//   a rate limit               is leased from the limit of all routers (rate_lease.h)
//   an admin's word            of a worker, said at any router, is carried out at all (peer_admin.h)
//   other parts of the router  tell and hear what they have to (base/peer_topic.h)
//
// A round is one pipeline on one connection; the next begins when it has ended. Nothing waits for it but the service
// itself, so without a Redis the router serves as ever. Cost on the control thread: 0.1 ms a round, 20 ns per worker
// and 10 per stride. On the control thread, except where a comment says any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "peer_sync/peer_sync.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/service.h"
#include "proxy/peer_sync/peer_admin.h"
#include "proxy/peer_sync/peer_outages.h"
#include "proxy/peer_sync/peer_snapshots.h"
#include "proxy/peer_sync/peer_streams.h"
#include "proxy/peer_sync/peer_sync_report.h"
#include "proxy/peer_sync/rate_lease.h"
#include "redis/redis_link.h"
#include "redis/redis_pool.h"

namespace vllm_router {

class Drainer;
class HealthChecker;
class LoadPoller;
struct IoThread;

struct PeerSyncServiceOptions {
  std::string fleet = "default";
  std::string router_name;
  std::string secret;  // empty: what routers tell is not sealed
  uint32_t interval_ms = 250;
  uint32_t max_mbps = 200;  // of decisions
  bool shares_rate_limit = true;
  bool shares_admin = false;  // workers that admins add, remove and drain
};

class PeerSyncService final : public Service, public OtherRouters {
 public:
  static constexpr std::string_view kWithout = "this router decides by what it knows itself";

  // All outlive it. `pool` is its own.
  PeerSyncService(
      IoThread& control, PeerSyncServiceOptions options, std::unique_ptr<RedisPool> pool,
      HealthChecker& health, LoadPoller& loads, Drainer& drainer);

  void Start() override;
  void Stop() override;
  bool ended() const override {
    return !runs_ && under_way_ == 0 && link_.running() == 0 && admin_.ended() && snapshots_.ended() &&
           lease_.ended();
  }

  // Any thread.
  PeerSyncReport Report() const;
  void WriteMetrics(MetricsPage* page) const override { Report().WriteMetrics(page); }
  void AddConditions(const AddCondition& add) const override;
  void Suspect(const std::shared_ptr<Worker>& worker) override;
  void CacheEmptied(const std::shared_ptr<Worker>& worker) override;
  std::string TellAdmin(AdminFact fact) override;
  void AddTopic(PeerTopic* topic) override;
  Presence presence() const override;

 private:
  Task<void> Run();
  void Turn();
  void FollowFleet();
  // One pipeline, or several while there is more to hear.
  Task<void> Exchange(bool tells);
  void TakeFrames(const PeerStreams::Heard& heard, int64_t now_ns);
  Task<void> Leave();
  void Warn(const Status& why);
  void Publish(int64_t now_ns);
  std::string Trouble() const;  // what does not work at present

  IoThread& thread_;
  const PeerSyncServiceOptions options_;
  const std::unique_ptr<RedisPool> pool_;
  RedisLink link_;
  Delay delay_;
  bool runs_ = false;
  HealthChecker& health_;
  LoadPoller& loads_;
  PeerSync sync_;
  PeerStreams streams_;
  RateLease lease_;
  PeerOutages outages_;
  PeerAdmin admin_;
  PeerSnapshots snapshots_;
  uint64_t turn_ = 0;
  bool tell_due_ = false;
  bool stopped_ = false;
  int under_way_ = 0;
  uint64_t membership_ = ~uint64_t{0};  // of the fleet that sync_ knows
  int64_t warned_ns_ = INT64_MIN / 2;
  std::map<WorkerId, int64_t> suspected_ns_;
  PeerSyncReport counts_;  // those that are counted here

  mutable Mutex mutex_;  // leaf
  PeerSyncReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
