// PeerSyncReport: what /ha/status and the metrics say of this router and the others of its fleet, as PeerRounds
// last saw it. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "peer_sync/peer_sync.h"
#include "peer_sync/peer_table.h"
#include "proxy/peer_sync/rate_lease.h"
#include "redis/redis_pool.h"

namespace vllm_router {

class MetricsPage;

struct PeerSyncReport {
  struct Member {
    uint64_t router = 0;
    std::string name;
    std::string version;
    PeerTable::State state = PeerTable::State::kLive;
    int64_t heard_ms = 0;  // since its last frame
    uint64_t sequence = 0;
    uint64_t gaps = 0;
    uint64_t seen = 0;      // of this router's frames, the last that it heard
    int64_t requests = 0;   // that it has open
    bool same_kind = true;  // its decisions are understood
  };
  std::string fleet;
  std::string redis_url;  // without user and password
  uint64_t router = 0;
  std::string name;
  uint64_t sequence = 0;
  bool up = false;
  bool alone = false;
  int64_t outage_ms = 0;  // all outages since the start
  std::string trouble;    // why it is not up, or what did not work in the last round
  RedisPool::Stats redis;
  std::vector<Member> members;
  PeerSyncCounts counts;
  uint64_t decisions_dropped = 0;  // since too many waited
  uint64_t bytes_sent = 0;
  uint64_t bytes_read = 0;
  uint64_t rounds = 0;
  uint64_t rounds_failed = 0;
  uint64_t snapshot_bytes = 0;  // of the last that was written or read
  uint64_t snapshots_written = 0;
  uint64_t snapshots_read = 0;
  RateLease::Counts lease;
  uint64_t strides = 0;
  uint64_t stride_bytes = 0;
  uint64_t unknown_workers = 0;

  void WriteMetrics(MetricsPage* page) const;
};

}  // namespace vllm_router
