// RateLease: this router's part of the rate limit of all routers (routing/rate_limit.h), leased from a bucket in Redis
// (peer_sync/peer_streams.h).
//
//   each 0.1 s, +-25 %   a lease, so that routers do not lease in step; the next once its reply has come
//   until the first      1/16 of the limit: how many routers there are is not known yet
//   none for 1 s         Redis is down, or refuses: 1/n of the limit, with n routers as they were last heard
//
// It has a pace and rounds of its own, and Redis may refuse it while it carries what routers tell each other: neither
// the interval of those frames nor a user who may not run scripts changes the other. On the control thread.
#pragma once

#include <cstdint>
#include <string>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/peer_sync/peer_streams.h"
#include "redis/redis_link.h"

namespace vllm_router {

struct IoThread;

class RateLease {
 public:
  static constexpr int64_t kTurnNanos = 100'000'000;
  static constexpr int64_t kLostNanos = 1'000'000'000;
  static constexpr uint32_t kRoutersAtStart = 16;

  struct Counts {
    uint64_t leases = 0;      // that Redis gave
    uint64_t empty = 0;       // of them: nothing was left
    uint64_t failed = 0;      // Redis refused, or did not reply
    uint64_t bytes_sent = 0;  // to Redis
    bool fallback = false;    // leases fail: this router has a fixed part
    std::string trouble;      // why Redis refused the last; empty: it did not
  };

  // All outlive it. `shared`: the limit is of all routers together.
  RateLease(IoThread& thread, RedisLink& link, PeerStreams& streams, bool shared);

  void Start();
  void Stop();  // the link stops as well
  bool ended() const { return !runs_; }
  // That are heard, with this one.
  void SetRouters(uint32_t routers) { routers_ = routers; }
  const Counts& counts() const { return counts_; }

 private:
  Task<void> Run();
  Task<void> Lease();
  // Whether leases fail, and what follows.
  void CheckLease();
  void ShareOut(uint32_t routers);

  IoThread& thread_;
  RedisLink& link_;
  PeerStreams& streams_;
  const bool shared_;
  Delay delay_;
  bool runs_ = false;
  bool stopped_ = false;
  uint32_t routers_ = 1;
  int64_t leased_ns_ = 0;  // the last lease that worked, or the start
  int64_t logged_ns_;
  bool logged_ = false;  // of this outage
  Counts counts_;
};

}  // namespace vllm_router
