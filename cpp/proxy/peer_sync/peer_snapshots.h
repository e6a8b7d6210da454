// PeerSnapshots: what a router that starts has not heard of the others, as one value in Redis.
//
//   read      at the start, before this router tells anything, and after an outage; at most three times
//   written   every 30 s by the oldest router, and by each that stops
//
// Snapshots may be large, so they have a connection of their own. On one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/task.h"
#include "peer_sync/peer_sync.h"
#include "proxy/peer_sync/peer_streams.h"
#include "redis/redis_link.h"
#include "redis/redis_pool.h"

namespace vllm_router {

class BufferPool;
class Clock;
class EventLoop;
class Resolver;
class Router;

// What the thread has on which a router and others tell each other what they do: the control thread of a server, or the
// one of JoinedPeers. All outlive what uses them.
struct PeerThread {
  EventLoop& loop;
  BufferPool& buffers;
  Resolver& resolver;
  const Clock& clock;
  Router& router;
};

class PeerSnapshots {
 public:
  static constexpr int64_t kEachNanos = 30'000'000'000;
  static constexpr int64_t kTimeoutMs = 20'000;
  // A router that starts waits so long for the snapshot; then it begins without, and reads the streams from their
  // beginning.
  static constexpr int64_t kAwaitedNanos = 1'000'000'000;
  static constexpr int kTries = 3;

  struct Counts {
    uint64_t last_bytes = 0;  // of the last that was written or read
    uint64_t written = 0;
    uint64_t read = 0;
    uint64_t bytes_sent = 0;  // to Redis
    uint64_t bytes_read = 0;
  };
  struct Calls {
    std::function<void(const Status&)> warn;
    std::function<void()> has_read;  // there is nothing to wait for any more
  };

  // All outlive it. `frames`: the pool that tells whether Redis is up.
  PeerSnapshots(
      const PeerThread& thread, const RedisPool& frames, PeerSync& sync, PeerStreams& streams, Calls calls);

  void Start(int64_t now_ns);
  // Reads or writes one that is due.
  void Turn(int64_t now_ns, bool connected);
  void ReadAgain();             // as others were not heard for long
  bool Awaits(int64_t now_ns);  // one, before this router tells anything
  void Stop() { stopped_ = true; }
  // As this router stops: its last one; false: there is none.
  bool AddLast(int64_t now_ns, PeerStreams::Round* round);
  RedisLink& link() { return link_; }  // for that
  bool ended() const { return !under_way_ && link_.running() == 0; }

  const Counts& counts() const { return counts_; }
  const std::string& trouble() const { return trouble_; }

 private:
  Task<void> Fetch();
  Task<void> Store();
  Task<std::optional<RedisReplies>> Send(const PeerStreams::Round& round);
  bool Add(int64_t now_ns, PeerStreams::Round* round);
  // Whether the round worked.
  bool TakeReplies(
      std::string_view what, const PeerStreams::Round& round, int64_t sent_ns, const RedisReplies& replies,
      PeerStreams::Heard* heard);
  void Take(std::string_view snapshot);
  bool IsOldest(int64_t now_ns) const;

  const PeerThread thread_;
  const RedisPool& frames_;
  RedisPool pool_;
  RedisLink link_;
  PeerSync& sync_;
  PeerStreams& streams_;
  const Calls calls_;
  bool stopped_ = false;
  bool wanted_ = true;
  bool under_way_ = false;  // it is read or written
  int tries_ = 0;
  int64_t fetched_ns_ = INT64_MIN / 2;       // or tried to
  std::optional<int64_t> awaited_since_ns_;  // that it could begin without
  int64_t due_ns_ = 0;                       // when one was to be written last
  std::string trouble_;
  bool warned_ = false;
  Counts counts_;
};

}  // namespace vllm_router
