#include "proxy/peer_sync/peer_rounds.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "base/time_units.h"
#include "base/version.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kWarnNanos = 60 * kNanosPerSecond;
constexpr int64_t kFactsAheadMs = 86'400'000;  // of Redis's clock, which may have been set back
constexpr size_t kMaxRoundsAtOnce = 64;        // of one turn, before others have theirs

PeerSyncOptions SyncOptions(const PeerRoundsOptions& options, const KvIndex* index) {
  const uint64_t bytes_per_second = uint64_t{options.max_mbps} * 1'000'000 / 8;
  return {
      .router = PeerStreams::DrawRouter(
          static_cast<int64_t>(UnixSeconds() * 1e3), Random(Random::EntropySeed()).Next()),
      .fingerprint = index != nullptr ? PeerSync::FingerprintOf(*index) : 0,
      .interval_ms = options.interval_ms,
      .secret = options.secret,
      .name = options.router_name,
      .version = std::string(Version()),
      .max_tick_bytes = std::max<uint64_t>(1, bytes_per_second * options.interval_ms / 1'000)};
}

}  // namespace

PeerRounds::PeerRounds(const PeerThread& thread, PeerConnection connection, Calls calls)
    : thread_(thread),
      options_(std::move(connection.options)),
      pool_(std::move(connection.pool)),
      claim_(std::move(connection.claim)),
      calls_(std::move(calls)),
      link_(
          *pool_, thread.loop, thread.buffers, thread.resolver, /*connections=*/1, RedisLink::Role::kProbes),
      delay_(thread.loop),
      index_(thread.router.pool().index()),
      sync_(SyncOptions(options_, index_), index_),
      streams_(options_.fleet, sync_.options().router, sync_.options().fingerprint),
      outages_(options_.interval_ms),
      snapshots_(
          thread, *pool_, sync_, streams_,
          {.warn = [this](const Status& why) { Warn(why); },
           .has_read =
               [this] {
                 if (under_way_ == 0) Spawn(Exchange(/*tells=*/true));
               }}) {}

void PeerRounds::Start() {
  const int64_t now = thread_.clock.NowNanos();
  outages_.Begin(now);
  sync_.SetConnected(false, now);
  link_.Start();
  snapshots_.Start(now);
  Spawn(Run());
}

void PeerRounds::Stop() {
  stopped_ = true;
  delay_.Cancel();
  snapshots_.Stop();
  Spawn(Leave());
}

void PeerRounds::PublishReport() { Publish(thread_.clock.NowNanos()); }

PeerSyncReport PeerRounds::Report() const {
  const MutexLock lock(mutex_);
  return report_;
}

void PeerRounds::TellForgotten(WorkerId worker) {
  thread_.loop.Post([this, worker] { sync_.TellForgotten(worker); });
}

void PeerRounds::TellSuspect(WorkerId worker, PeerFrame::Cause cause) {
  thread_.loop.Post([this, worker, cause] { sync_.TellSuspect(worker, cause); });
}

Task<void> PeerRounds::Run() {
  runs_ = true;
  while (!stopped_) {
    Turn();
    co_await delay_.For(int64_t{options_.interval_ms} * kNanosPerMs / 2);
  }
  runs_ = false;
}

void PeerRounds::Turn() {
  const int64_t now = thread_.clock.NowNanos();
  if (turn_++ % 2 == 0) tell_due_ = true;
  FollowFleet();
  const bool connected = outages_.Update(now);
  sync_.SetConnected(connected, connected ? now : outages_.last_ns());
  const bool was_alone = sync_.alone();
  sync_.Update(now);
  if (sync_.alone() != was_alone) {
    if (sync_.alone()) snapshots_.ReadAgain();
    const std::string trouble = Trouble();
    Log(was_alone ? LogLevel::kInfo : LogLevel::kError,
        was_alone
            ? "peer sync: other routers are heard again"
            : Concat(
                  "peer sync: other routers have not been heard for 5 s: ", pool_->options().url.Shown(), " ",
                  trouble.empty() ? "does not reply" : trouble, "; ", calls_.when_alone));
  }
  if (calls_.turn) calls_.turn(now);
  // Rounds may take longer than half an interval, and those that are skipped must not be those that tell.
  if (under_way_ == 0 && pool_->up()) Spawn(Exchange(std::exchange(tell_due_, false)));
  snapshots_.Turn(now, connected);
  Publish(now);
}

void PeerRounds::FollowFleet() {
  const std::shared_ptr<const FleetView> fleet = thread_.router.fleet();
  if (fleet->membership_version() == membership_) return;
  membership_ = fleet->membership_version();
  sync_.SetFleet(*fleet);
}

Task<void> PeerRounds::Exchange(bool tells) {
  ++under_way_;
  for (size_t i = 0; i < kMaxRoundsAtOnce && !stopped_; ++i) {
    const int64_t sent = thread_.clock.NowNanos();
    if (snapshots_.Awaits(sent)) break;
    PeerStreams::Round round;
    PeerStreams::AddTime(&round);
    const bool joins = !streams_.knows_time();
    const bool told = tells && !joins;
    if (told) {
      std::vector<std::string> frames;
      sync_.WriteFrames(sent, static_cast<uint64_t>(UnixSeconds() * 1e3), &frames);
      streams_.AddFrames(frames, sent, &round);
      tells = false;
    }
    if (!joins) streams_.AddReads(sent, &round);
    const std::optional<RedisReplies> replies = co_await link_.Ask(round.commands(), round.replies());
    if (replies) counts_.bytes_sent += round.commands().size();
    if (stopped_ || !replies) break;
    ++counts_.rounds;
    if (!replies->ok()) {
      ++counts_.rounds_failed;
      counts_.trouble = std::string(replies->status().message());
      if (!absl::IsFailedPrecondition(replies->status()) && !absl::IsResourceExhausted(replies->status()))
        break;
      const std::string key = streams_.Overflowed(round, sent);
      if (!key.empty())
        Warn(absl::FailedPreconditionError(Concat(
            "has an entry that is too large in ", key, ", which is not read for 10 minutes; delete it")));
      break;
    }
    PeerStreams::Heard heard;
    const Status taken = streams_.Take(round, sent, **replies, &heard);
    const int64_t now = thread_.clock.NowNanos();
    counts_.bytes_read += heard.bytes;
    TakeFrames(heard, now);
    const Status& wrong = taken.ok() ? heard.unread : taken;
    if (told || !wrong.ok()) counts_.trouble = std::string(wrong.message());
    if (!heard.unread.ok()) Warn(heard.unread);
    if (!taken.ok()) {
      ++counts_.rounds_failed;
      Warn(taken);
      break;
    }
    if (!streams_.knows_time()) break;
    if (joins) continue;
    if (told) outages_.Sent(now);
    // A router with much to say does not make this one deaf to the others.
    if (!heard.more || !outages_.under_way() || i + 1 == kMaxRoundsAtOnce) outages_.Received(now);
    if (!heard.more) break;
  }
  --under_way_;
}

void PeerRounds::TakeFrames(const PeerStreams::Heard& heard, int64_t now_ns) {
  std::vector<std::shared_ptr<Worker>> suspects;
  std::vector<AdminFact> facts;
  if (streams_.knows_time())
    sync_.TrustFactsUntil(static_cast<uint64_t>(streams_.RedisMs(now_ns) + kFactsAheadMs));
  for (size_t i = 0; i < heard.frames.size(); ++i) {
    const int64_t redis_ms = streams_.knows_time() ? streams_.RedisMs(now_ns) : heard.frame_ms[i];
    const int64_t age_ms = std::clamp<int64_t>(redis_ms - heard.frame_ms[i], 0, PeerStreams::kStreamMs);
    const Status status =
        sync_.Read(heard.frames[i], now_ns, &suspects, calls_.fact ? &facts : nullptr, age_ms * kNanosPerMs);
    if (!status.ok()) Warn(absl::PermissionDeniedError(std::string(status.message())));
  }
  if (calls_.suspected) {
    for (const std::shared_ptr<Worker>& worker : suspects) calls_.suspected(worker, now_ns);
  }
  for (const AdminFact& fact : facts) calls_.fact(fact);
}

void PeerRounds::Warn(const Status& why) {
  const int64_t now = thread_.clock.NowNanos();
  if (now - warned_ns_ < kWarnNanos) return;
  warned_ns_ = now;
  Log(LogLevel::kWarning,
      Concat(
          "peer sync: ", absl::IsPermissionDenied(why) ? std::string() : pool_->options().url.Shown() + " ",
          std::string(why.message())));
}

Task<void> PeerRounds::Leave() {
  ++under_way_;
  if (pool_->up() && streams_.knows_time()) {
    struct Leaving {
      explicit Leaving(EventLoop& loop) : delay(loop) {}
      Delay delay;
      int missing = 0;
    };
    const auto leaving = std::make_shared<Leaving>(thread_.loop);
    const auto send = [leaving](RedisLink* link, const PeerStreams::Round& round) {
      RedisDone done = [leaving](const RedisReplies&) {
        if (--leaving->missing == 0) leaving->delay.Cancel();
      };
      if (link->Send(round.commands(), round.replies(), std::move(done))) ++leaving->missing;
    };
    std::vector<std::string> frames;
    const int64_t now = thread_.clock.NowNanos();
    sync_.WriteBye(now, static_cast<uint64_t>(UnixSeconds() * 1e3), &frames);
    PeerStreams::Round round;
    streams_.AddFrames(frames, now, &round);
    streams_.AddLeave(&round);
    send(&link_, round);
    PeerStreams::Round snapshot;
    if (snapshots_.AddLast(now, &snapshot)) send(&snapshots_.link(), snapshot);
    if (leaving->missing > 0) co_await leaving->delay.For(kLeaveNanos);
  }
  link_.Stop();
  snapshots_.link().Stop();
  // The router may be used on, by what it knows itself: peers' loads are gone, and it is not alone.
  const int64_t later = thread_.clock.NowNanos() + 2 * PeerTable::kGoneNanos;
  sync_.SetConnected(true, later);
  sync_.Update(later);
  claim_.reset();
  --under_way_;
}

std::string PeerRounds::Trouble() const {
  std::string pools = pool_->up() ? std::string() : pool_->trouble();
  if (!pools.empty()) return pools;
  return counts_.trouble.empty() ? snapshots_.trouble() : counts_.trouble;
}

void PeerRounds::Publish(int64_t now_ns) {
  PeerSyncReport report = counts_;
  report.fleet = options_.fleet;
  report.redis_url = pool_->options().url.Shown();
  report.redis = pool_->stats();
  report.router = sync_.options().router;
  report.name = options_.router_name;
  report.sequence = sync_.sequence();
  report.up = outages_.up();
  report.outage_ms = outages_.total_ms(now_ns);
  report.alone = sync_.alone();
  report.bytes_sent += snapshots_.counts().bytes_sent;
  report.bytes_read += snapshots_.counts().bytes_read;
  report.snapshot_bytes = snapshots_.counts().last_bytes;
  report.snapshots_written = snapshots_.counts().written;
  report.snapshots_read = snapshots_.counts().read;
  report.trouble = Trouble();
  for (const auto& [router, peer] : sync_.peers().peers()) {
    int64_t requests = 0;
    for (const auto& [index, named] : peer.names) requests += named.load.requests;
    report.members.push_back(
        {.router = router,
         .name = peer.name,
         .version = peer.version,
         .state = peer.StateAt(now_ns),
         .heard_ms = (now_ns - peer.heard_ns) / kNanosPerMs,
         .sequence = peer.sequence,
         .gaps = peer.gaps,
         .seen = peer.seen,
         .requests = requests,
         .same_kind = peer.fingerprint == sync_.options().fingerprint});
  }
  report.counts = sync_.counts();
  report.unknown_workers = sync_.peers().unknown_workers();
  if (index_ != nullptr && index_->coarse() != nullptr) {
    report.decisions_dropped = index_->outgoing()->dropped();
    report.strides = index_->coarse()->strides();
    report.stride_bytes = index_->coarse()->bytes();
  }
  if (calls_.complete) calls_.complete(&report);
  const MutexLock lock(mutex_);
  report_ = std::move(report);
}

}  // namespace vllm_router
