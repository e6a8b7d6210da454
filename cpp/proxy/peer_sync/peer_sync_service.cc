#include "proxy/peer_sync/peer_sync_service.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "base/time_units.h"
#include "base/version.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/load_poller.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kWarnNanos = 60 * kNanosPerSecond;
constexpr int64_t kSuspectedNanos = 2 * kNanosPerSecond;  // between two checks of a worker that peers suspect
constexpr int64_t kLeaveNanos = 300 * kNanosPerMs;        // for the last frame
constexpr int64_t kFactsAheadMs = 86'400'000;             // of Redis's clock, which may have been set back
constexpr size_t kMaxRoundsAtOnce = 64;                   // of one turn, before others have theirs

PeerSyncOptions SyncOptions(const PeerSyncServiceOptions& options, const KvIndex* index) {
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

PeerSyncService::PeerSyncService(
    IoThread& control, PeerSyncServiceOptions options, std::unique_ptr<RedisPool> pool, HealthChecker& health,
    LoadPoller& loads, Drainer& drainer)
    : thread_(control),
      options_(std::move(options)),
      pool_(std::move(pool)),
      link_(
          *pool_, control.loop, control.buffers, control.resolver, /*connections=*/1,
          RedisLink::Role::kProbes),
      delay_(control.loop),
      health_(health),
      loads_(loads),
      sync_(SyncOptions(options_, control.router->pool().index()), control.router->pool().index()),
      streams_(options_.fleet, sync_.options().router, sync_.options().fingerprint),
      lease_(control, link_, streams_, options_.shares_rate_limit),
      outages_(options_.interval_ms),
      admin_(control, sync_, streams_, drainer, [this](const Status& why) { Warn(why); }),
      snapshots_(
          control, *pool_, sync_, streams_,
          {.warn = [this](const Status& why) { Warn(why); },
           .has_read =
               [this] {
                 if (under_way_ == 0) Spawn(Exchange(/*tells=*/true));
               }}) {
  Publish(thread_.clock.NowNanos());
}

void PeerSyncService::Start() {
  const int64_t now = thread_.clock.NowNanos();
  outages_.Begin(now);
  sync_.SetConnected(false, now);
  link_.Start();
  snapshots_.Start(now);
  lease_.Start();
  Spawn(Run());
}

void PeerSyncService::Stop() {
  stopped_ = true;
  delay_.Cancel();
  lease_.Stop();
  snapshots_.Stop();
  admin_.Stop();
  Spawn(Leave());
}

void PeerSyncService::Suspect(const std::shared_ptr<Worker>& worker) {
  thread_.loop.Post([this, id = worker->id] { sync_.TellSuspect(id, PeerFrame::Cause::kRefused); });
}

void PeerSyncService::CacheEmptied(const std::shared_ptr<Worker>& worker) {
  thread_.loop.Post([this, id = worker->id] { sync_.TellForgotten(id); });
}

OtherRouters::Presence PeerSyncService::presence() const {
  const PeerSyncReport report = Report();
  Presence presence{.connected = report.up, .leads = report.up};
  for (const PeerSyncReport::Member& member : report.members) {
    if (member.state != PeerTable::State::kLive) continue;
    ++presence.routers;
    if (member.router < report.router) presence.leads = false;
  }
  return presence;
}

void PeerSyncService::AddConditions(const AddCondition& add) const {
  if (Report().up) return;
  add("peer_sync", {},
      Concat(
          "This router and the others do not hear each other by ", pool_->options().url.Shown(),
          ": it routes by its own requests and by the workers' loads."));
}

PeerSyncReport PeerSyncService::Report() const {
  const MutexLock lock(mutex_);
  return report_;
}

Task<void> PeerSyncService::Run() {
  runs_ = true;
  while (!stopped_) {
    Turn();
    co_await delay_.For(int64_t{options_.interval_ms} * kNanosPerMs / 2);
  }
  runs_ = false;
}

void PeerSyncService::Turn() {
  const int64_t now = thread_.clock.NowNanos();
  if (turn_++ % 2 == 0) tell_due_ = true;
  FollowFleet();
  const bool connected = outages_.Update(now);
  sync_.SetConnected(connected, connected ? now : outages_.last_ns());
  const bool was_alone = sync_.alone();
  sync_.Update(now);
  lease_.SetRouters(sync_.routers());
  if (sync_.alone() != was_alone) {
    if (sync_.alone()) snapshots_.ReadAgain();
    const std::string trouble = Trouble();
    Log(was_alone ? LogLevel::kInfo : LogLevel::kError,
        was_alone
            ? "peer sync: other routers are heard again"
            : Concat(
                  "peer sync: other routers have not been heard for 5 s: ", pool_->options().url.Shown(), " ",
                  trouble.empty() ? "does not reply" : trouble,
                  "; this router polls the workers' loads instead"));
  }
  loads_.SetAlone(sync_.alone());
  admin_.Turn(now);
  // Rounds may take longer than half an interval, and those that are skipped must not be those that tell.
  if (under_way_ == 0 && pool_->up()) Spawn(Exchange(std::exchange(tell_due_, false)));
  snapshots_.Turn(now, connected);
  Publish(now);
}

void PeerSyncService::FollowFleet() {
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  if (fleet->membership_version() == membership_) return;
  membership_ = fleet->membership_version();
  sync_.SetFleet(*fleet);
  std::erase_if(suspected_ns_, [&](const auto& entry) { return !fleet->Find(entry.first); });
}

Task<void> PeerSyncService::Exchange(bool tells) {
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

void PeerSyncService::TakeFrames(const PeerStreams::Heard& heard, int64_t now_ns) {
  std::vector<std::shared_ptr<Worker>> suspects;
  std::vector<AdminFact> facts;
  if (streams_.knows_time())
    sync_.TrustFactsUntil(static_cast<uint64_t>(streams_.RedisMs(now_ns) + kFactsAheadMs));
  for (size_t i = 0; i < heard.frames.size(); ++i) {
    const int64_t redis_ms = streams_.knows_time() ? streams_.RedisMs(now_ns) : heard.frame_ms[i];
    const int64_t age_ms = std::clamp<int64_t>(redis_ms - heard.frame_ms[i], 0, PeerStreams::kStreamMs);
    const Status status = sync_.Read(
        heard.frames[i], now_ns, &suspects, options_.shares_admin ? &facts : nullptr, age_ms * kNanosPerMs);
    if (!status.ok()) Warn(absl::PermissionDeniedError(std::string(status.message())));
  }
  for (const std::shared_ptr<Worker>& worker : suspects) {
    int64_t& last = suspected_ns_.try_emplace(worker->id, INT64_MIN / 2).first->second;
    if (now_ns - last < kSuspectedNanos) continue;
    last = now_ns;
    health_.ReportPassiveFailure(worker);
  }
  for (const AdminFact& fact : facts) admin_.CarryOut(fact);
}

void PeerSyncService::AddTopic(PeerTopic* topic) { sync_.AddTopic(topic); }

std::string PeerSyncService::TellAdmin(AdminFact said) {
  const PeerSyncReport report = Report();
  const auto others = static_cast<size_t>(std::ranges::count_if(
      report.members, [](const auto& member) { return member.state == PeerTable::State::kLive; }));
  if (options_.shares_admin) thread_.loop.Post([this, fact = std::move(said)] { admin_.Tell(fact); });
  if (others == 0) return {};
  return options_.shares_admin ? Concat("all ", others + 1, " routers")
                               : Concat("this router of ", others + 1);
}

// Once a minute, whatever it is.
void PeerSyncService::Warn(const Status& why) {
  const int64_t now = thread_.clock.NowNanos();
  if (now - warned_ns_ < kWarnNanos) return;
  warned_ns_ = now;
  Log(LogLevel::kWarning,
      Concat(
          "peer sync: ", absl::IsPermissionDenied(why) ? std::string() : pool_->options().url.Shown() + " ",
          std::string(why.message())));
}

Task<void> PeerSyncService::Leave() {
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
    sync_.WriteBye(static_cast<uint64_t>(UnixSeconds() * 1e3), &frames);
    const int64_t now = thread_.clock.NowNanos();
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
  --under_way_;
}

std::string PeerSyncService::Trouble() const {
  std::string pools = pool_->up() ? std::string() : pool_->trouble();
  if (!pools.empty()) return pools;
  return counts_.trouble.empty() ? snapshots_.trouble() : counts_.trouble;
}

void PeerSyncService::Publish(int64_t now_ns) {
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
  report.lease = lease_.counts();
  report.bytes_sent += report.lease.bytes_sent + snapshots_.counts().bytes_sent;
  report.bytes_read += snapshots_.counts().bytes_read;
  report.snapshot_bytes = snapshots_.counts().last_bytes;
  report.snapshots_written = snapshots_.counts().written;
  report.snapshots_read = snapshots_.counts().read;
  report.trouble = Trouble();
  if (report.trouble.empty()) report.trouble = report.lease.trouble;
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
  KvIndex* const index = thread_.router->pool().index();  // null: the policy matches no blocks
  if (index != nullptr && index->coarse() != nullptr) {
    report.decisions_dropped = index->outgoing()->dropped();
    report.strides = index->coarse()->strides();
    report.stride_bytes = index->coarse()->bytes();
  }
  const MutexLock lock(mutex_);
  report_ = std::move(report);
}

}  // namespace vllm_router
