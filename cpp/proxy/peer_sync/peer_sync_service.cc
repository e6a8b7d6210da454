#include "proxy/peer_sync/peer_sync_service.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "base/time_units.h"
#include "base/version.h"
#include "proxy/api/settings.h"
#include "proxy/control/drainer.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/load_poller.h"
#include "proxy/thread/io_thread.h"
#include "worker/worker_registry.h"

namespace vllm_router {
namespace {

constexpr int64_t kWarnNanos = 60 * kNanosPerSecond;
constexpr int64_t kForgetNanos = 10 * kNanosPerSecond;  // between looks for facts that have ended
constexpr int64_t kReadLateMs = 2'000;                  // a frame, by another router
constexpr int64_t kFactsAheadMs = 86'400'000;           // of Redis's clock, which may have been set back
constexpr size_t kMaxRoundsAtOnce = 64;                 // of one turn, before others have theirs
constexpr int64_t kFirstPauseNanos =
    250'000'000;  // between health checks of a worker that another router added
constexpr int64_t kLongestPauseNanos = 5 * kNanosPerSecond;

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

RedisOptions SnapshotOptions(RedisOptions options) {
  options.command_timeout_ms = PeerSyncService::kSnapshotTimeoutMs;
  options.failures = UINT32_MAX;  // whether Redis is up the frames tell
  options.logs = false;
  return options;
}

}  // namespace

PeerSyncService::PeerSyncService(
    IoThread& control, PeerSyncServiceOptions options, std::unique_ptr<RedisPool> pool, HealthChecker& health,
    LoadPoller& loads, Drainer& drainer)
    : thread_(control),
      options_(std::move(options)),
      pool_(std::move(pool)),
      snapshot_pool_(SnapshotOptions(pool_->options()), pool_->tls(), control.clock),
      link_(
          *pool_, control.loop, control.buffers, control.resolver, /*connections=*/1,
          RedisLink::Role::kProbes),
      snapshots_(
          snapshot_pool_, control.loop, control.buffers, control.resolver, /*connections=*/1,
          RedisLink::Role::kProbes),
      delay_(control.loop),
      health_(health),
      loads_(loads),
      drainer_(drainer),
      index_(control.router->pool().index()),
      sync_(SyncOptions(options_, index_), index_),
      streams_(options_.fleet, sync_.options().router, sync_.options().fingerprint),
      lease_(control, link_, streams_, options_.shares_rate_limit) {
  Publish(thread_.clock.NowNanos());
}

PeerSyncService::~PeerSyncService() = default;

void PeerSyncService::Start() {
  begun_ns_ = thread_.clock.NowNanos();
  snapshot_ns_ = begun_ns_;
  sync_.SetConnected(false, begun_ns_);
  link_.Start();
  snapshots_.Start();
  lease_.Start();
  Spawn(Run());
}

void PeerSyncService::Stop() {
  stopped_ = true;
  delay_.Cancel();
  lease_.Stop();
  for (CancelScope* const scope : joins_) scope->Cancel();
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
  const int64_t lost = std::max(kLostNanos, 4 * int64_t{options_.interval_ms} * kNanosPerMs);
  const int64_t worked = std::min(received_ns_, sent_ns_);
  const bool connected = now - worked < lost;
  if (!connected && outage_since_ns_ < 0) outage_since_ns_ = std::max(begun_ns_, worked);
  if (connected && outage_since_ns_ >= 0) {
    counts_.outage_ms += (now - outage_since_ns_) / kNanosPerMs;
    outage_since_ns_ = -1;
  }
  sync_.SetConnected(connected, connected ? now : std::max(begun_ns_, worked));
  if (connected) lease_.SetRouters(LiveRouters(now));
  const bool was_alone = sync_.alone();
  sync_.Update(now);
  if (sync_.alone() != was_alone) {
    if (sync_.alone()) {
      wants_snapshot_ = true;
      snapshot_tries_ = 0;
      fetched_ns_ = INT64_MIN / 2;
      awaited_since_ns_.reset();
    }
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
  CarryOutDrains();
  if (streams_.knows_time() && now - forgot_ns_ >= kForgetNanos) {
    forgot_ns_ = now;
    const auto knows = [this](const std::string& url) { return Knows(url); };
    sync_.ForgetFacts(static_cast<uint64_t>(streams_.RedisMs(now)), knows);
    std::erase_if(drains_, [this](const auto& entry) { return !sync_.facts().Counts(entry.second); });
  }
  // Rounds may take longer than half an interval, and those that are skipped must not be those that tell.
  if (under_way_ == 0 && pool_->up()) Spawn(Exchange(std::exchange(tell_due_, false)));
  if (!snapshot_under_way_ && pool_->up()) {
    if (wants_snapshot_) {
      if (now - fetched_ns_ >= kSnapshotNanos) Spawn(FetchSnapshot());
    } else if (connected && now - snapshot_ns_ >= kSnapshotNanos && oldest(now)) {
      Spawn(StoreSnapshot());
    }
  }
  Publish(now);
}

void PeerSyncService::FollowFleet() {
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  if (fleet->membership_version() == membership_) return;
  membership_ = fleet->membership_version();
  sync_.SetFleet(*fleet);
  std::erase_if(suspected_ns_, [&](const auto& entry) { return !fleet->Find(entry.first); });
}

Task<std::optional<RedisReplies>> PeerSyncService::Send(RedisLink* link, const PeerStreams::Round& round) {
  std::optional<RedisReplies> replies = co_await link->Ask(round.commands(), round.replies());
  if (replies) counts_.bytes_sent += round.commands().size();
  co_return replies;
}

Task<void> PeerSyncService::Exchange(bool tells) {
  ++under_way_;
  for (size_t i = 0; i < kMaxRoundsAtOnce && !stopped_; ++i) {
    const int64_t sent = thread_.clock.NowNanos();
    if (Awaits(sent)) break;
    PeerStreams::Round round;
    PeerStreams::AddTime(&round);
    const bool joins = !streams_.knows_time();
    const bool told = tells && !joins;
    if (told) AddFrames(sent, &round);
    if (told) tells = false;
    if (!joins) streams_.AddReads(sent, &round);
    const std::optional<RedisReplies> replies = co_await Send(&link_, round);
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
    if (told) sent_ns_ = now;
    // A router with much to say does not make this one deaf to the others.
    if (!heard.more || outage_since_ns_ < 0 || i + 1 == kMaxRoundsAtOnce) received_ns_ = now;
    if (!heard.more) break;
  }
  --under_way_;
}

void PeerSyncService::AddFrames(int64_t now_ns, PeerStreams::Round* round) {
  std::vector<std::string> frames;
  sync_.WriteFrames(now_ns, static_cast<uint64_t>(UnixSeconds() * 1e3), &frames);
  streams_.AddFrames(frames, now_ns, round);
}

bool PeerSyncService::Awaits(int64_t now_ns) {
  if (!wants_snapshot_ || !streams_.knows_time()) return false;
  if (!awaited_since_ns_) awaited_since_ns_ = now_ns;
  return now_ns - *awaited_since_ns_ < kAwaitedNanos;
}

Task<void> PeerSyncService::FetchSnapshot() {
  snapshot_under_way_ = true;
  const int64_t sent = thread_.clock.NowNanos();
  PeerStreams::Round round;
  streams_.AddSnapshotRead(&round);
  const std::optional<RedisReplies> replies = co_await Send(&snapshots_, round);
  snapshot_under_way_ = false;
  if (stopped_ || !replies) co_return;
  fetched_ns_ = thread_.clock.NowNanos();
  PeerStreams::Heard heard;
  const bool works = TakeSnapshotReplies("read", round, sent, *replies, &heard);
  counts_.bytes_read += heard.bytes;
  if (works) TakeSnapshot(heard.snapshot);
  if (works || ++snapshot_tries_ >= kSnapshotTries) wants_snapshot_ = false;
  if (!wants_snapshot_ && under_way_ == 0) Spawn(Exchange(/*tells=*/true));
}

Task<void> PeerSyncService::StoreSnapshot() {
  const int64_t sent = thread_.clock.NowNanos();
  PeerStreams::Round round;
  if (!AddSnapshot(sent, &round)) co_return;
  snapshot_under_way_ = true;
  const std::optional<RedisReplies> replies = co_await Send(&snapshots_, round);
  snapshot_under_way_ = false;
  if (stopped_ || !replies) co_return;
  PeerStreams::Heard heard;
  if (TakeSnapshotReplies("written", round, sent, *replies, &heard)) ++counts_.snapshots_written;
}

bool PeerSyncService::AddSnapshot(int64_t now_ns, PeerStreams::Round* round) {
  snapshot_ns_ = now_ns;
  std::string bytes;
  const auto taken_ms = static_cast<uint64_t>(streams_.RedisMs(now_ns));
  if (!sync_.WriteSnapshot(*thread_.router->fleet(), taken_ms, &bytes)) return false;
  counts_.snapshot_bytes = bytes.size();
  if (bytes.size() <= PeerStreams::kMaxSnapshotBytes) {
    streams_.AddSnapshot(bytes, round);
    return true;
  }
  if (!std::exchange(warned_of_snapshot_, true)) {
    Log(LogLevel::kWarning,
        Concat(
            "peer sync: the snapshot for routers that start would have ", bytes.size(), " bytes; at most ",
            PeerStreams::kMaxSnapshotBytes,
            " are written, so that such a router knows nothing at first; raise --peer-sync-stride-tokens"));
  }
  return false;
}

bool PeerSyncService::TakeSnapshotReplies(
    std::string_view what, const PeerStreams::Round& round, int64_t sent_ns, const RedisReplies& replies,
    PeerStreams::Heard* heard) {
  Status taken = replies.status();
  if (taken.ok()) taken = streams_.Take(round, sent_ns, *replies, heard);
  snapshot_trouble_.clear();
  if (taken.ok()) return true;
  snapshot_trouble_ = Concat(std::string(taken.message()), "; the snapshot is not ", what);
  Warn(absl::UnavailableError(snapshot_trouble_));
  return false;
}

void PeerSyncService::TakeFrames(const PeerStreams::Heard& heard, int64_t now_ns) {
  std::vector<std::shared_ptr<Worker>> suspects;
  std::vector<AdminFact> facts;
  if (streams_.knows_time())
    sync_.TrustFactsUntil(static_cast<uint64_t>(streams_.RedisMs(now_ns) + kFactsAheadMs));
  for (const std::string_view frame : heard.frames) {
    const Status status = sync_.Read(frame, now_ns, &suspects, options_.shares_admin ? &facts : nullptr);
    if (!status.ok()) Warn(absl::PermissionDeniedError(std::string(status.message())));
  }
  for (const std::shared_ptr<Worker>& worker : suspects) {
    int64_t& last = suspected_ns_.try_emplace(worker->id, INT64_MIN / 2).first->second;
    if (now_ns - last < kSuspectedNanos) continue;
    last = now_ns;
    health_.ReportPassiveFailure(worker);
  }
  for (const AdminFact& fact : facts) CarryOut(fact);
}

std::string PeerSyncService::TellAdmin(AdminFact said) {
  const PeerSyncReport report = Report();
  const auto others = static_cast<size_t>(std::ranges::count_if(
      report.members, [](const auto& member) { return member.state == PeerTable::State::kLive; }));
  if (options_.shares_admin) {
    if (const StatusOr<WorkerUrl> named = ParseWorkerUrl(said.url); named.ok()) said.url = named->url;
    said.router = sync_.options().router;
    thread_.loop.Post([this, fact = std::move(said)]() mutable {
      const int64_t now_ms = streams_.knows_time() ? streams_.RedisMs(thread_.clock.NowNanos())
                                                   : static_cast<int64_t>(UnixSeconds() * 1e3);
      fact.at_ms = static_cast<uint64_t>(now_ms);
      const auto known = sync_.facts().all().find({fact.kind, fact.url});
      if (known != sync_.facts().all().end()) fact.at_ms = std::max(fact.at_ms, known->second.at_ms + 1);
      drains_.erase(fact.url);
      if (sync_.TellFact(fact)) return;
      Warn(absl::PermissionDeniedError(Concat(
          "other routers are not told of ", fact.url, "; at most ", AdminFacts::kMaxFacts,
          " workers that admins added or drained are told of")));
    });
  }
  if (others == 0) return {};
  return options_.shares_admin ? Concat("all ", others + 1, " routers")
                               : Concat("this router of ", others + 1);
}

void PeerSyncService::CarryOut(const AdminFact& fact) {
  if (fact.kind == AdminFact::Kind::kDrain) drains_.erase(fact.url);
  if (!sync_.facts().Counts(fact)) return;
  Status done;
  std::string_view what;
  if (fact.kind == AdminFact::Kind::kMember && fact.holds) {
    what = " was added";
    StatusOr<WorkerUrl> url = ParseWorkerUrl(fact.url);
    done = url.ok() ? MayAdd(fact) : url.status();
    if (done.ok()) return Spawn(Join(fact, *std::move(url)));
  } else if (fact.kind == AdminFact::Kind::kMember) {
    what = " was removed";
    if (!Knows(fact.url)) return;
    done = thread_.router->RemoveWorker(fact.url);
  } else if (fact.kind == AdminFact::Kind::kDrain) {
    what = fact.holds ? " drains" : " drains no longer";
    if (!Knows(fact.url)) {
      if (fact.holds) drains_[fact.url] = fact;
      return;
    }
    done = fact.holds ? drainer_.Begin(fact.url, fact.timeout_ms) : drainer_.Cancel(fact.url);
  } else {
    return;  // of a later version
  }
  if (absl::IsAlreadyExists(done)) return;
  const std::string at = Concat("peer sync: ", fact.url, what, " at router ", Hex16(fact.router));
  if (done.ok()) return Log(LogLevel::kInfo, at);
  Log(LogLevel::kWarning, Concat(at, ", and not here: ", std::string(done.message())));
}

// A worker that admins removed, and added with another role, may be here with the role that it had. One that a source
// declares stays as that says.
Status PeerSyncService::MayAdd(const AdminFact& fact) {
  Router& router = *thread_.router;
  const double weight = static_cast<double>(fact.weight) / kWeightOne;
  Status may = router.MayAddWorker(fact.url, weight, fact.role);
  if (!absl::IsAlreadyExists(may) || !HasOtherRole(fact)) return may;
  may = router.RemoveWorker(fact.url);
  return may.ok() ? router.MayAddWorker(fact.url, weight, fact.role) : may;
}

bool PeerSyncService::HasOtherRole(const AdminFact& fact) const {
  const std::vector<DeclaredFleet::Row> rows = thread_.router->pool().registry().Rows();
  return std::ranges::any_of(rows, [&](const DeclaredFleet::Row& row) {
    const bool is_it = row.spec.url.url == fact.url || row.spec.url.base == fact.url;
    return is_it && row.spec.role != fact.role && row.owners.size() == 1 &&
           row.owners.front() == DeclaredFleet::kApi;
  });
}

bool PeerSyncService::Knows(const std::string& url) {
  const WorkerRegistry& registry = thread_.router->pool().registry();
  if (registry.rows_version() != known_version_) {
    known_urls_.clear();
    for (const DeclaredFleet::Row& row : registry.Rows(&known_version_)) {
      if (row.state == DeclaredFleet::State::kLeft && row.owners.empty()) continue;
      known_urls_.insert(row.spec.url.url);
      known_urls_.insert(row.spec.url.base);
    }
  }
  return known_urls_.contains(url);
}

Task<void> PeerSyncService::Join(AdminFact fact, WorkerUrl url) {
  CancelScope scope({});
  joins_.insert(&scope);
  url.receives_api_key = fact.receives_api_key;
  int64_t pause = kFirstPauseNanos;
  bool healthy = false;
  while (!stopped_ && !healthy && sync_.facts().Counts(fact)) {
    const std::shared_ptr<const Settings> settings = thread_.settings.Get();
    const StatusOr<HttpResponse> response = co_await thread_.http.Get(
        &scope, url, settings->health_check_endpoint, settings->health_check_timeout_ms);
    healthy = IsSuccess(response);
    if (healthy) break;
    const bool go_on = co_await scope.Pause(thread_.loop, pause);
    if (!go_on) break;
    pause = std::min(2 * pause, kLongestPauseNanos);
  }
  if (!stopped_ && healthy && sync_.facts().Counts(fact)) {
    const Status joined = thread_.router->AddWorker(
        fact.url, static_cast<double>(fact.weight) / kWeightOne, fact.receives_api_key, fact.role);
    thread_.router->fleet()->MarkChecked(url.base);
    if (joined.ok())
      Log(LogLevel::kInfo,
          Concat("peer sync: ", fact.url, " was added at router ", Hex16(fact.router), ", and here"));
  }
  joins_.erase(&scope);
}

// Of workers that came here after another router had drained them.
void PeerSyncService::CarryOutDrains() {
  std::vector<AdminFact> due;
  for (const auto& [url, fact] : drains_) {
    if (Knows(url)) due.push_back(fact);
  }
  for (const AdminFact& fact : due) CarryOut(fact);
}

void PeerSyncService::TakeSnapshot(std::string_view snapshot) {
  if (snapshot.empty()) return;
  const StatusOr<uint64_t> taken = sync_.ReadSnapshot(snapshot, *thread_.router->fleet());
  if (!taken.ok())
    return Warn(absl::PermissionDeniedError(
        Concat("the snapshot is not used: ", std::string(taken.status().message()))));
  ++counts_.snapshots_read;
  counts_.snapshot_bytes = snapshot.size();
  // Its writer may not have read all that was told then.
  constexpr uint64_t kLatest = INT64_MAX;
  streams_.StartAt(static_cast<int64_t>(std::min(*taken, kLatest)) - kReadLateMs);
  Log(LogLevel::kInfo,
      Concat("peer sync: knows what other routers sent, by a snapshot of ", snapshot.size(), " bytes"));
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
    // All routers may restart at once. What one knows that has not read the last is less.
    if (!wants_snapshot_ && AddSnapshot(now, &snapshot)) send(&snapshots_, snapshot);
    if (leaving->missing > 0) co_await leaving->delay.For(kLeaveNanos);
  }
  link_.Stop();
  snapshots_.Stop();
  --under_way_;
}

std::string PeerSyncService::Trouble() const {
  std::string pools = pool_->up() ? std::string() : pool_->trouble();
  if (!pools.empty()) return pools;
  return counts_.trouble.empty() ? snapshot_trouble_ : counts_.trouble;
}

uint32_t PeerSyncService::LiveRouters(int64_t now_ns) const {
  return static_cast<uint32_t>(sync_.peers().CountLive(now_ns)) + 1;
}

// Of those whose strides are this router's.
bool PeerSyncService::oldest(int64_t now_ns) const {
  return std::ranges::none_of(sync_.peers().peers(), [&](const auto& entry) {
    const PeerTable::Peer& peer = entry.second;
    return peer.router < sync_.options().router && peer.fingerprint == sync_.options().fingerprint &&
           peer.StateAt(now_ns) == PeerTable::State::kLive;
  });
}

void PeerSyncService::Publish(int64_t now_ns) {
  PeerSyncReport report = counts_;
  report.fleet = options_.fleet;
  report.redis_url = pool_->options().url.Shown();
  report.redis = pool_->stats();
  report.router = sync_.options().router;
  report.name = options_.router_name;
  report.sequence = sync_.sequence();
  report.up = outage_since_ns_ < 0 && sent_ns_ > INT64_MIN / 2;
  report.alone = sync_.alone();
  report.lease = lease_.counts();
  report.bytes_sent += report.lease.bytes_sent;
  report.trouble = Trouble();
  if (report.trouble.empty()) report.trouble = report.lease.trouble;
  if (outage_since_ns_ >= 0) report.outage_ms += (now_ns - outage_since_ns_) / kNanosPerMs;
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
  const MutexLock lock(mutex_);
  report_ = std::move(report);
}

}  // namespace vllm_router
