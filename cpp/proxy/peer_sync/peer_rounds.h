// PeerRounds carries what PeerSync (peer_sync/) tells and hears through a Redis (peer_streams.h), for a router that is
// served (peer_sync_service.h) or is not (joined_peers.h).
//
//   each interval     what this router tells, and what the others told; half an interval later once more
//   a snapshot        tells what was before (peer_snapshots.h)
//   nothing for 5 s   alone: the index assumes holders
//
// A round is one pipeline on one connection; the next begins when it has ended. Nothing waits for it but this itself,
// so without a Redis the router decides as ever. Cost on its thread: 0.1 ms a round, 20 ns per worker and 10 per stride. On
// its thread, except where a comment says any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "peer_sync/peer_sync.h"
#include "proxy/peer_sync/peer_claim.h"
#include "proxy/peer_sync/peer_outages.h"
#include "proxy/peer_sync/peer_snapshots.h"
#include "proxy/peer_sync/peer_streams.h"
#include "proxy/peer_sync/peer_sync_report.h"
#include "redis/redis_link.h"
#include "redis/redis_pool.h"

namespace vllm_router {

struct PeerRoundsOptions {
  std::string fleet = "default";
  std::string router_name;
  std::string secret;  // empty: what routers tell is not sealed
  uint32_t interval_ms = 250;
  uint32_t max_mbps = 200;  // of decisions
};

// What rounds are made of, checked (peer_sync_feature.h).
struct PeerConnection {
  PeerRoundsOptions options;
  std::unique_ptr<RedisPool> pool;
  PeerClaim claim;
};

class PeerRounds {
 public:
  static constexpr int64_t kLeaveNanos = 300'000'000;  // for the last frame

  // What its owner does besides; those that are null are not called.
  struct Calls {
    std::function<void(int64_t now_ns)> turn;                                       // each half interval
    std::function<void(const std::shared_ptr<Worker>&, int64_t now_ns)> suspected;  // of a worker, by a peer
    std::function<void(const AdminFact&)> fact;     // null: facts are not read
    std::function<void(PeerSyncReport*)> complete;  // adds to a report what only the owner knows
    std::string_view when_alone;                    // for the log: what the router does then
  };

  // All that the thread has outlives it.
  PeerRounds(const PeerThread& thread, PeerConnection connection, Calls calls);

  void Start();
  void Stop();
  bool ended() const { return !runs_ && under_way_ == 0 && link_.running() == 0 && snapshots_.ended(); }
  void PublishReport();  // beside those that each turn ends with
  // Once a minute, whatever it is.
  void Warn(const Status& why);

  PeerSync& sync() { return sync_; }
  PeerStreams& streams() { return streams_; }
  RedisLink& link() { return link_; }

  // Any thread.
  const RedisPool& pool() const { return *pool_; }
  PeerSyncReport Report() const;
  void TellForgotten(WorkerId worker);
  void TellSuspect(WorkerId worker, PeerFrame::Cause cause);

 private:
  Task<void> Run();
  void Turn();
  void FollowFleet();
  // One pipeline, or several while there is more to hear.
  Task<void> Exchange(bool tells);
  void TakeFrames(const PeerStreams::Heard& heard, int64_t now_ns);
  Task<void> Leave();
  void Publish(int64_t now_ns);
  std::string Trouble() const;  // what does not work at present

  const PeerThread thread_;
  const PeerRoundsOptions options_;
  const std::unique_ptr<RedisPool> pool_;
  std::optional<PeerClaim> claim_;
  const Calls calls_;
  RedisLink link_;
  Delay delay_;
  bool runs_ = false;
  KvIndex* const index_;  // null: the policy matches no blocks
  PeerSync sync_;
  PeerStreams streams_;
  PeerOutages outages_;
  PeerSnapshots snapshots_;
  uint64_t turn_ = 0;
  bool tell_due_ = false;
  bool stopped_ = false;
  int under_way_ = 0;
  uint64_t membership_ = ~uint64_t{0};  // of the fleet that sync_ knows
  int64_t warned_ns_ = INT64_MIN / 2;
  PeerSyncReport counts_;  // those that are counted here

  mutable Mutex mutex_;  // leaf
  PeerSyncReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
