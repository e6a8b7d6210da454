#include "proxy/peer_sync/peer_snapshots.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kReadLateMs = 2'000;  // a frame, by another router

RedisOptions Options(RedisOptions options) {
  options.command_timeout_ms = PeerSnapshots::kTimeoutMs;
  options.failures = UINT32_MAX;  // whether Redis is up the frames tell
  options.logs = false;
  return options;
}

}  // namespace

PeerSnapshots::PeerSnapshots(
    const PeerThread& thread, const RedisPool& frames, PeerSync& sync, PeerStreams& streams, Calls calls)
    : thread_(thread),
      frames_(frames),
      pool_(Options(frames.options()), frames.tls(), thread.clock),
      link_(pool_, thread.loop, thread.buffers, thread.resolver, /*connections=*/1, RedisLink::Role::kProbes),
      sync_(sync),
      streams_(streams),
      calls_(std::move(calls)) {}

void PeerSnapshots::Start(int64_t now_ns) {
  due_ns_ = now_ns;
  link_.Start();
}

void PeerSnapshots::Turn(int64_t now_ns, bool connected) {
  if (under_way_ || !frames_.up()) return;
  if (wanted_) {
    if (now_ns - fetched_ns_ >= kEachNanos) Spawn(Fetch());
  } else if (connected && now_ns - due_ns_ >= kEachNanos && IsOldest(now_ns)) {
    Spawn(Store());
  }
}

void PeerSnapshots::ReadAgain() {
  wanted_ = true;
  tries_ = 0;
  fetched_ns_ = INT64_MIN / 2;
  awaited_since_ns_.reset();
}

// All routers may restart at once. What one knows that has not read the last is less.
bool PeerSnapshots::AddLast(int64_t now_ns, PeerStreams::Round* round) {
  return !wanted_ && Add(now_ns, round);
}

Task<std::optional<RedisReplies>> PeerSnapshots::Send(const PeerStreams::Round& round) {
  std::optional<RedisReplies> replies = co_await link_.Ask(round.commands(), round.replies());
  if (replies) counts_.bytes_sent += round.commands().size();
  co_return replies;
}

bool PeerSnapshots::Awaits(int64_t now_ns) {
  if (!wanted_ || !streams_.knows_time()) return false;
  if (!awaited_since_ns_) awaited_since_ns_ = now_ns;
  return now_ns - *awaited_since_ns_ < kAwaitedNanos;
}

Task<void> PeerSnapshots::Fetch() {
  under_way_ = true;
  const int64_t sent = thread_.clock.NowNanos();
  PeerStreams::Round round;
  streams_.AddSnapshotRead(&round);
  const std::optional<RedisReplies> replies = co_await Send(round);
  under_way_ = false;
  if (stopped_ || !replies) co_return;
  fetched_ns_ = thread_.clock.NowNanos();
  PeerStreams::Heard heard;
  const bool works = TakeReplies("read", round, sent, *replies, &heard);
  counts_.bytes_read += heard.bytes;
  if (works) Take(heard.snapshot);
  if (works || ++tries_ >= kTries) wanted_ = false;
  if (!wanted_) calls_.has_read();
}

Task<void> PeerSnapshots::Store() {
  const int64_t sent = thread_.clock.NowNanos();
  PeerStreams::Round round;
  if (!Add(sent, &round)) co_return;
  under_way_ = true;
  const std::optional<RedisReplies> replies = co_await Send(round);
  under_way_ = false;
  if (stopped_ || !replies) co_return;
  PeerStreams::Heard heard;
  if (TakeReplies("written", round, sent, *replies, &heard)) ++counts_.written;
}

bool PeerSnapshots::Add(int64_t now_ns, PeerStreams::Round* round) {
  due_ns_ = now_ns;
  std::string bytes;
  const auto taken_ms = static_cast<uint64_t>(streams_.RedisMs(now_ns));
  if (!sync_.WriteSnapshot(*thread_.router.fleet(), taken_ms, &bytes)) return false;
  counts_.last_bytes = bytes.size();
  if (bytes.size() <= PeerStreams::kMaxSnapshotBytes) {
    streams_.AddSnapshot(bytes, round);
    return true;
  }
  if (!std::exchange(warned_, true)) {
    Log(LogLevel::kWarning,
        Concat(
            "peer sync: the snapshot for routers that start would have ", bytes.size(), " bytes; at most ",
            PeerStreams::kMaxSnapshotBytes,
            " are written, so that such a router knows nothing at first; raise --peer-sync-stride-tokens"));
  }
  return false;
}

bool PeerSnapshots::TakeReplies(
    std::string_view what, const PeerStreams::Round& round, int64_t sent_ns, const RedisReplies& replies,
    PeerStreams::Heard* heard) {
  Status taken = replies.status();
  if (taken.ok()) taken = streams_.Take(round, sent_ns, *replies, heard);
  trouble_.clear();
  if (taken.ok()) return true;
  trouble_ = Concat(std::string(taken.message()), "; the snapshot is not ", what);
  calls_.warn(absl::UnavailableError(trouble_));
  return false;
}

void PeerSnapshots::Take(std::string_view snapshot) {
  if (snapshot.empty()) return;
  const StatusOr<uint64_t> taken = sync_.ReadSnapshot(snapshot, *thread_.router.fleet());
  if (!taken.ok())
    return calls_.warn(absl::PermissionDeniedError(
        Concat("the snapshot is not used: ", std::string(taken.status().message()))));
  ++counts_.read;
  counts_.last_bytes = snapshot.size();
  // Its writer may not have read all that was told then.
  constexpr uint64_t kLatest = INT64_MAX;
  streams_.StartAt(static_cast<int64_t>(std::min(*taken, kLatest)) - kReadLateMs);
  Log(LogLevel::kInfo,
      Concat("peer sync: knows what other routers sent, by a snapshot of ", snapshot.size(), " bytes"));
}

// Of those whose strides are this router's.
bool PeerSnapshots::IsOldest(int64_t now_ns) const {
  return std::ranges::none_of(sync_.peers().peers(), [&](const auto& entry) {
    const PeerTable::Peer& peer = entry.second;
    return peer.router < sync_.options().router && peer.fingerprint == sync_.options().fingerprint &&
           peer.StateAt(now_ns) == PeerTable::State::kLive;
  });
}

}  // namespace vllm_router
