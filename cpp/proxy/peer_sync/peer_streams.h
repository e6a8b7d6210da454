// PeerStreams: where the routers of a fleet meet in a Redis, as commands and replies. No socket: a round is a pipeline
// of commands, and Take() gets its replies.
//
//   vr:{fleet}:x:<router>       stream of its frames, field f; 30 s of them, gone 60 s after its last round
//   vr:{fleet}:members          sorted set: router -> when it was last here, by Redis's clock, in ms
//   vr:{fleet}:snap:<print>     the newest snapshot of routers with this fingerprint, for ten minutes
//   vr:{fleet}:lim:<name>       a limit that the routers share
//   vr:{fleet}:probe            is written before Redis counts as up again
//
//   round of router a:   TIME   XADD x:a  PEXPIRE x:a  ZADD members  EVAL …   XRANGE x:b  XRANGE x:c  ZREVRANGEBYSCORE members
//                               '-------- what it tells --------'             '--------- what it hears ---------'
//
// Each router reads at its own pace, and goes on after a break where it was; one that starts reads what streams still
// have. Times are Redis's own, asked for in each round, so routers' clocks may be wrong. A Redis that lost its data, or
// another one in its place, is as good as before: what is missing is written again.
//
// A router's number is the time of its start, in ms, and 22 random bits: no two are equal, and the oldest is the
// lowest. Redis 6.2 or later, or Valkey. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/text.h"
#include "redis/redis_reply.h"

namespace vllm_router {

class PeerStreams {
 public:
  static constexpr size_t kMaxRouters = 256;
  static constexpr size_t kFramesPerRead = 8;    // of one router
  static constexpr size_t kRoutersPerRound = 8;  // so that the replies to a round are not too large together
  static constexpr int64_t kKeptMs = 30'000;     // of a stream
  static constexpr int64_t kStreamMs = 60'000;   // after a router's last round
  static constexpr int64_t kSnapshotMs = 600'000;
  static constexpr int64_t kUnreadableMs = 600'000;  // between reads of a stream whose entries are too large
  static constexpr size_t kMaxSnapshotBytes = 16 << 20;
  // Of a reply: the snapshot, and no router has so much to say.
  static constexpr size_t kMaxReplyBytes = kMaxSnapshotBytes + (size_t{1} << 20);

  // Commands to be sent together.
  class Round {
   public:
    const std::string& commands() const { return commands_; }
    size_t replies() const { return asked_.size(); }

   private:
    friend class PeerStreams;
    enum class Kind : uint8_t { kTime, kTold, kMembers, kFrames, kSnapshot, kLease };
    struct Asked {
      Kind kind;
      std::string_view command;
      uint64_t router = 0;
    };
    std::string commands_;
    std::vector<Asked> asked_;
    bool has_rest_ = false;  // other routers are read in the next round
  };

  // What came of a round; views of its replies.
  struct Heard {
    std::vector<std::string_view> frames;  // of each router in its order
    std::vector<int64_t> frame_ms;  // when each was told, by Redis's clock as far as it is to be believed
    Status unread;                  // why one router's stream cannot be read; the others' are
    bool more = false;              // there are others, for another round
    std::string_view snapshot;      // empty: there is none
    std::optional<int64_t> leased;  // as Redis replied, which may be any number
    size_t bytes = 0;               // of frames and the snapshot
  };

  static uint64_t DrawRouter(int64_t unix_ms, uint64_t random) {
    return static_cast<uint64_t>(unix_ms) << 22 | (random & ((1 << 22) - 1));
  }
  static int64_t StartedMs(uint64_t router) { return static_cast<int64_t>(router >> 22); }

  static std::string ProbeKey(std::string_view fleet) { return KeyOf(fleet, "probe"); }

  PeerStreams(std::string_view fleet, uint64_t router, uint64_t fingerprint);

  // Each is to be added at most once to a round, and AddTime() first; snapshots may have rounds of their own, and a lease
  // has. Before a round has told the time only AddTime() and AddSnapshotRead().
  static void AddTime(Round* round);
  void AddFrames(
      std::span<const std::string> frames, int64_t now_ns, Round* round) const;  // and that it is here
  void AddReads(int64_t now_ns, Round* round);  // of some routers, of the next in the next round
  void AddSnapshotRead(Round* round) const;
  void AddSnapshot(std::string_view snapshot, Round* round) const;
  // Of the limit on `name`, `tokens` more; negative: gives some back. Routers that want more than there is get equal
  // parts, whatever they ask for and however often.
  void AddLease(std::string_view name, uint32_t per_second, int64_t tokens, Round* round) const;
  void AddLeave(Round* round) const;

  // Replies to the round, which was sent at `sent_ns`. What is wrong with the first that is an error; the others
  // count.
  Status Take(const Round& round, int64_t sent_ns, std::span<const RedisReply> replies, Heard* heard);

  // The replies to the round were more than a connection takes. The routers that it read are read one by one, and the
  // one whose stream is too large not again for kUnreadableMs: its key, or empty. In a stream may be anything that
  // someone wrote who may write to this Redis.
  std::string Overflowed(const Round& round, int64_t now_ns);

  bool knows_time() const { return time_ns_.has_value(); }
  int64_t RedisMs(int64_t now_ns) const;  // REQUIRES: knows_time()
  // Streams are read from then on, as a snapshot has what was before. For routers that are heard of later.
  void StartAt(int64_t redis_ms) { start_ms_ = redis_ms; }
  size_t others() const { return places_.size(); }

 private:
  struct Place {
    std::string last;          // id of the frame that was read last
    bool left = false;         // it is read to its end, once more at least
    int64_t unread_until = 0;  // by Redis's clock; then it is read in a round of its own
  };

  static std::string KeyOf(std::string_view fleet, std::string_view what);
  std::string Key(std::string_view what) const { return Concat(prefix_, what); }
  static void Add(
      Round::Kind kind, std::span<const std::string_view> words, Round* round, uint64_t router = 0);
  void TakeTime(int64_t sent_ns, RedisValue reply);
  void TakeOwnId(RedisValue reply);
  void TakeRefusal(std::string_view command, std::string_view error);
  void TakeMembers(RedisValue reply);
  void TakeFrames(uint64_t router, RedisValue reply, Heard* heard);

  const std::string prefix_;
  const uint64_t router_;
  const std::string own_;  // in hex
  const std::string snapshot_key_;
  std::optional<int64_t> time_ns_;  // by this router's clock, when Redis's was:
  int64_t time_ms_ = 0;
  int64_t start_ms_ = 0;
  bool begins_anew_ = false;  // the own stream: Redis takes no more entries into it, or none that others read
  bool members_begin_anew_ = false;   // they are of another type
  std::map<uint64_t, Place> places_;  // of the others
  uint64_t next_ = 0;                 // reads go on there
  size_t most_ = kRoutersPerRound;    // that a round reads
};

}  // namespace vllm_router
