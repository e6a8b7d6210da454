// PeerSyncService carries what PeerSync (peer_sync/) tells and hears through a Redis (peer_sync/peer_streams.h), and does
// what follows from it in a server.
//
//   each interval              what this router tells, and what the others told; half an interval later once more
//   a snapshot                 is read at the start and after an outage; written every 30 s by the oldest router, and by
//                              each that stops
//   nothing for 5 s            alone: LoadPoller polls the workers, and the index assumes holders
//   a peer suspects a worker   HealthChecker asks that worker at once
//   a rate limit               is leased from the limit of all routers (rate_lease.h)
//   an admin's word            of a worker, said at any router, is carried out at all (--peer-sync-admin)
//
// A round is one pipeline on one connection; the next begins when it has ended. Snapshots, which may be large, have a
// connection of their own. Nothing waits for either but the service itself, so without a Redis the router serves as
// ever. Cost on the control thread: 0.1 ms a round, 20 ns per worker
// and 10 per stride. On the control thread, except where a comment says any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "peer_sync/peer_sync.h"
#include "proxy/client/http_client.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/service.h"
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
  static constexpr int64_t kSnapshotNanos = 30'000'000'000;
  static constexpr int64_t kSnapshotTimeoutMs = 20'000;
  // A router that starts waits so long for the snapshot; then it begins without, and reads the streams from their
  // beginning.
  static constexpr int64_t kAwaitedNanos = 1'000'000'000;
  static constexpr int kSnapshotTries = 3;
  static constexpr int64_t kLostNanos = 1'000'000'000;  // or four intervals, if those are longer
  static constexpr int64_t kSuspectedNanos =
      2'000'000'000;                                   // between two checks of a worker that peers suspect
  static constexpr int64_t kLeaveNanos = 300'000'000;  // for the last frame
  static constexpr std::string_view kWithout = "this router decides by what it knows itself";

  // All outlive it. `pool` is its own.
  PeerSyncService(
      IoThread& control, PeerSyncServiceOptions options, std::unique_ptr<RedisPool> pool,
      HealthChecker& health, LoadPoller& loads, Drainer& drainer);
  ~PeerSyncService() override;

  void Start() override;
  void Stop() override;
  bool ended() const override {
    return !runs_ && under_way_ == 0 && joins_.empty() && !snapshot_under_way_ && link_.running() == 0 &&
           snapshots_.running() == 0 && lease_.ended();
  }

  // Any thread.
  PeerSyncReport Report() const;
  void WriteMetrics(MetricsPage* page) const override { Report().WriteMetrics(page); }
  void AddConditions(const AddCondition& add) const override;
  void Suspect(const std::shared_ptr<Worker>& worker) override;
  void CacheEmptied(const std::shared_ptr<Worker>& worker) override;
  std::string TellAdmin(AdminFact fact) override;
  Presence presence() const override;

 private:
  Task<void> Run();
  void Turn();
  void FollowFleet();
  // One pipeline, or several while there is more to hear.
  Task<void> Exchange(bool tells);
  // What came of a round; nothing: the link is not connected.
  Task<std::optional<RedisReplies>> Send(RedisLink* link, const PeerStreams::Round& round);
  void AddFrames(int64_t now_ns, PeerStreams::Round* round);
  void TakeFrames(const PeerStreams::Heard& heard, int64_t now_ns);
  bool Awaits(int64_t now_ns);  // a snapshot, before it tells anything
  Task<void> FetchSnapshot();
  Task<void> StoreSnapshot();
  bool AddSnapshot(int64_t now_ns, PeerStreams::Round* round);
  // Of a snapshot's round, whether it worked.
  bool TakeSnapshotReplies(
      std::string_view what, const PeerStreams::Round& round, int64_t sent_ns, const RedisReplies& replies,
      PeerStreams::Heard* heard);
  void TakeSnapshot(std::string_view snapshot);
  void CarryOut(const AdminFact& fact);
  // Adds the worker once it passes its health check, unless something else is said of it meanwhile.
  Task<void> Join(AdminFact fact, WorkerUrl url);
  Status MayAdd(const AdminFact& fact);
  bool HasOtherRole(const AdminFact& fact) const;
  bool Knows(const std::string& url);  // the fleet has such a worker, or one that a source declares
  void CarryOutDrains();
  Task<void> Leave();
  void Warn(const Status& why);
  void Publish(int64_t now_ns);
  std::string Trouble() const;  // what does not work at present
  uint32_t LiveRouters(int64_t now_ns) const;
  bool oldest(int64_t now_ns) const;

  IoThread& thread_;
  const PeerSyncServiceOptions options_;
  const std::unique_ptr<RedisPool> pool_;
  RedisPool snapshot_pool_;
  RedisLink link_;
  RedisLink snapshots_;
  Delay delay_;
  bool runs_ = false;
  HealthChecker& health_;
  LoadPoller& loads_;
  Drainer& drainer_;
  KvIndex* const index_;  // null: the policy matches no blocks
  PeerSync sync_;
  PeerStreams streams_;
  RateLease lease_;
  uint64_t turn_ = 0;
  bool tell_due_ = false;
  bool stopped_ = false;
  int under_way_ = 0;
  uint64_t membership_ = ~uint64_t{0};  // of the fleet that sync_ knows
  bool wants_snapshot_ = true;
  bool snapshot_under_way_ = false;  // it is read or written
  int snapshot_tries_ = 0;
  int64_t fetched_ns_ = INT64_MIN / 2;       // or tried to
  std::optional<int64_t> awaited_since_ns_;  // that it could begin without
  std::string snapshot_trouble_;
  bool warned_of_snapshot_ = false;
  int64_t received_ns_ = INT64_MIN / 2;  // the last round that worked, with nothing left to hear
  int64_t sent_ns_ = INT64_MIN / 2;      // likewise, that told something
  int64_t begun_ns_ = 0;
  int64_t snapshot_ns_ = 0;  // when one was due last
  int64_t outage_since_ns_ = -1;
  int64_t warned_ns_ = INT64_MIN / 2;
  std::map<WorkerId, int64_t> suspected_ns_;
  std::set<CancelScope*> joins_;             // under way
  std::map<std::string, AdminFact> drains_;  // by URL: of workers that have not joined yet
  std::set<std::string> known_urls_;         // of workers and of their hosts
  uint64_t known_version_ = ~uint64_t{0};    // of the registry's rows
  int64_t forgot_ns_ = INT64_MIN / 2;
  PeerSyncReport counts_;  // those that are counted here

  mutable Mutex mutex_;  // leaf
  PeerSyncReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
