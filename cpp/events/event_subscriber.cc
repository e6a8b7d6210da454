#include "events/event_subscriber.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/time_units.h"
#include "events/dial_in.h"
#include "events/source_feed.h"
#include "events/source_session.h"
#include "events/worker_trust.h"
#include "net/zmq_socket.h"

namespace vllm_router {
namespace {

constexpr int64_t kTickNanos = kNanosPerSecond;
constexpr int64_t kReportNanos = 50 * kNanosPerMs;
constexpr int kSocketsPerSource = 5;    // live, its monitor's two ends, a replay that closes, a new one
constexpr int kSocketsPerListener = 3;  // its monitor's two ends

constexpr WorkerTrust::Texts kTexts = {
    .partial =
        "events before the router's start, during an outage or since a connection was lost, or removals, "
        "are missing, so what was sent to it counts too; a replay endpoint on the engine (replay_endpoint "
        "of --kv-events-config) closes such gaps where the router connects to it",
    .silent =
        "On the worker: --kv-events-config '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\","
        "\"endpoint\":\"tcp://*:5557\"}'"};

}  // namespace

struct EventSubscriber::Impl {
  // One worker, which has one source or one per rank.
  struct Watched {
    explicit Watched(WorkerTrust own) : trust(std::move(own)) {}  // clang 14 makes no aggregate in place
    WorkerTrust trust;
    std::vector<SourceFeed*> feeds = {};
  };
  struct Command {
    enum class Kind : uint8_t { kSetSources, kSetDialInWorkers, kReportOutage, kResync } kind;
    WorkerId worker{};
    std::vector<KvSource> sources = {};
    std::vector<DialInWorker> dial_in_workers = {};
  };

  Impl(ReportedBlocks* reported, const EventSubscriberOptions& given)
      : blocks(reported),
        options(given),
        context(
            kSocketsPerSource * static_cast<int>(kMaxWorkers) +
            kSocketsPerListener * static_cast<int>(given.bind_endpoints.size())),
        dial_in(given.bind_endpoints, reported, context) {}
  ~Impl() {
    if (wake_fd >= 0) ::close(wake_fd);
  }

  void Wake() const {
    const uint64_t one = 1;
    (void)!::write(wake_fd, &one, sizeof one);
  }
  void Tell(Command command) {
    {
      const MutexLock lock(command_mutex);
      commands.push_back(std::move(command));
    }
    Wake();
  }

  void Run();
  void Turn(std::span<const ZmqPollItem> items, int64_t now_ns);
  void RunCommands(int64_t now_ns);
  void Reconcile(const std::vector<KvSource>& wanted);
  void UpdateWatched();
  void UpdateDialIn() {
    if (dial_in_version != dial_in.version()) UpdateWatched();
  }
  void StartReplays(int64_t now_ns);
  void UpdateTrust(int64_t now_ns);
  int64_t NextWait(int64_t now_ns) const;
  void PublishReport(int64_t now_ns);

  ReportedBlocks* const blocks;
  const EventSubscriberOptions options;
  ZmqContext context;
  SteadyClock clock;
  int wake_fd = -1;
  std::thread thread;
  std::atomic<bool> stopping{false};

  Mutex command_mutex;  // leaf
  std::vector<Command> commands ABSL_GUARDED_BY(command_mutex);

  // Of the events thread alone.
  DialIn dial_in;
  uint64_t dial_in_version = 0;  // whose feeds are watched
  std::vector<std::unique_ptr<SourceSession>> sessions;
  std::vector<SourceFeed*> feeds;  // of dial_in and of the sessions
  TrustLog trust_log;
  std::map<WorkerId, Watched> workers;
  std::deque<SourceSession*> replays_due;
  int64_t next_tick_ns = 0;
  bool more = false;     // to be received without waiting
  bool changed = false;  // since the last report
  int64_t reported_ns = 0;

  // What Report() returns, so that no caller waits for a turn.
  Mutex report_mutex;  // leaf
  std::vector<KvSourceStatus> report ABSL_GUARDED_BY(report_mutex);
  std::vector<DialInStatus> dial_in_report ABSL_GUARDED_BY(report_mutex);
};

void EventSubscriber::Impl::Run() {
  std::vector<ZmqPollItem> items;
  while (!stopping.load()) {
    items.clear();
    items.push_back({.descriptor = wake_fd});
    for (const std::unique_ptr<SourceSession>& session : sessions) session->AppendTo(&items);
    dial_in.Maintain(clock.NowNanos());
    UpdateDialIn();
    dial_in.AppendTo(&items);
    const int64_t wait_ms = more ? 0 : NextWait(clock.NowNanos()) / kNanosPerMs;
    ZmqPoll(items, static_cast<int>(wait_ms));
    if (items.front().readable) {
      uint64_t count;
      (void)!::read(wake_fd, &count, sizeof count);
    }
    Turn(items, clock.NowNanos());
  }
}

int64_t EventSubscriber::Impl::NextWait(int64_t now_ns) const {
  int64_t next = changed ? std::min(next_tick_ns, reported_ns + kReportNanos) : next_tick_ns;
  for (const SourceFeed* const feed : feeds) next = std::min(next, feed->next_tick_ns());
  return std::clamp<int64_t>(next - now_ns + kNanosPerMs, 0, kTickNanos);
}

void EventSubscriber::Impl::Turn(std::span<const ZmqPollItem> items, int64_t now_ns) {
  more = false;
  for (const std::unique_ptr<SourceSession>& session : sessions) {
    if (session->Receive(items, now_ns)) more = true;
    session->ReopenIfLost(now_ns);
  }
  if (dial_in.Receive(items, now_ns)) more = true;
  UpdateDialIn();
  for (SourceFeed* const feed : feeds) {
    if (feed->next_tick_ns() <= now_ns) feed->OnTick(now_ns);
    feed->Audit(now_ns);
  }
  RunCommands(now_ns);
  StartReplays(now_ns);
  UpdateTrust(now_ns);
  PublishReport(now_ns);
}

void EventSubscriber::Impl::RunCommands(int64_t now_ns) {
  std::vector<Command> due;
  {
    const MutexLock lock(command_mutex);
    due.swap(commands);
  }
  for (const Command& command : due) {
    if (command.kind == Command::Kind::kSetSources) {
      Reconcile(command.sources);
      continue;
    }
    if (command.kind == Command::Kind::kSetDialInWorkers) {
      dial_in.SetWorkers(command.dial_in_workers);
      UpdateWatched();
      continue;
    }
    const auto found = workers.find(command.worker);
    if (found == workers.end()) continue;
    for (SourceFeed* const feed : found->second.feeds) {
      if (command.kind == Command::Kind::kResync) {
        feed->Resync(now_ns);
      } else {
        feed->ReportOutage(now_ns);
      }
    }
    if (command.kind == Command::Kind::kReportOutage) dial_in.Disconnect(command.worker, now_ns);
  }
}

void EventSubscriber::Impl::Reconcile(const std::vector<KvSource>& wanted) {
  const auto leaves = [&wanted](const SourceSession& session) {
    return std::ranges::find(wanted, session.feed().source()) == wanted.end();
  };
  // The others keep their places: in a new queue those that came last would always be last.
  std::erase_if(replays_due, [&leaves](const SourceSession* session) { return leaves(*session); });
  std::erase_if(sessions, [&leaves](const auto& session) { return leaves(*session); });
  for (const KvSource& source : wanted) {
    const auto same = [&source](const auto& session) { return session->feed().source() == source; };
    if (std::ranges::any_of(sessions, same)) continue;
    StatusOr<std::unique_ptr<SourceSession>> session = SourceSession::Open(source, blocks, context);
    if (session.ok()) {
      sessions.push_back(*std::move(session));
    } else {
      Log(LogLevel::kWarning, Concat(
                                  "kv events: ", source.url, ": ", std::string(session.status().message()),
                                  "; its cache is inferred from requests"));
    }
  }
  UpdateWatched();
}

// After the feeds changed.
void EventSubscriber::Impl::UpdateWatched() {
  dial_in_version = dial_in.version();
  feeds = dial_in.feeds();
  for (const std::unique_ptr<SourceSession>& session : sessions) feeds.push_back(&session->feed());
  for (auto& [worker, watched] : workers) watched.feeds.clear();
  for (SourceFeed* const feed : feeds) {
    const KvSource& source = feed->source();
    const auto [entry, is_new] = workers.try_emplace(
        source.worker, WorkerTrust(blocks, &trust_log, source.worker, source.url, kTexts));
    entry->second.feeds.push_back(feed);
  }
  for (auto& [worker, watched] : workers) {
    std::string endpoints;
    for (const SourceFeed* const feed : watched.feeds) {
      if (feed->source().endpoint.empty()) continue;
      if (!endpoints.empty()) endpoints += ", ";
      endpoints += feed->source().endpoint;
    }
    watched.trust.set_endpoints(std::move(endpoints));
  }
  std::erase_if(workers, [](const auto& entry) {
    const bool leaves = entry.second.feeds.empty();
    if (leaves) entry.second.trust.Leave();
    return leaves;
  });
}

void EventSubscriber::Impl::StartReplays(int64_t now_ns) {
  size_t running = 0;
  for (const std::unique_ptr<SourceSession>& session : sessions) {
    if (session->feed().replaying()) ++running;
    if (session->feed().replay_due() && std::ranges::find(replays_due, session.get()) == replays_due.end())
      replays_due.push_back(session.get());
  }
  while (running < options.parallel_replays && !replays_due.empty()) {
    SourceSession* const session = replays_due.front();
    replays_due.pop_front();
    if (!session->feed().replay_due()) continue;
    session->StartReplay(now_ns);
    ++running;
  }
}

void EventSubscriber::Impl::UpdateTrust(int64_t now_ns) {
  const bool tick = now_ns >= next_tick_ns;
  if (tick) next_tick_ns = now_ns + kTickNanos;
  for (auto& [worker, watched] : workers) {
    for (SourceFeed* const feed : watched.feeds) {
      if (feed->published()) watched.trust.OnPublished();
      watched.trust.Add(feed->trust(), feed->was_useful());
    }
    if (dial_in.is_limited(worker)) watched.trust.Add(KvTrust::kPartial, true);
    if (tick) watched.trust.Watch(now_ns);
    watched.trust.Decide(now_ns);
  }
  if (tick) trust_log.Watch(now_ns);
}

void EventSubscriber::Impl::PublishReport(int64_t now_ns) {
  changed = true;
  if (now_ns - reported_ns < kReportNanos) return;
  reported_ns = now_ns;
  changed = false;
  std::vector<KvSourceStatus> statuses;
  for (const SourceFeed* const feed : feeds) {
    KvSourceStatus status = feed->Status(now_ns);
    // What routing goes by, where that is less.
    const KvTrust routed = blocks->TrustOf(status.source.worker);
    if (routed == KvTrust::kSilent || routed == KvTrust::kWaiting) status.trust = routed;
    statuses.push_back(std::move(status));
  }
  std::vector<DialInStatus> listeners = dial_in.Report();
  const MutexLock lock(report_mutex);
  report.swap(statuses);
  dial_in_report.swap(listeners);
}

EventSubscriber::EventSubscriber(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusOr<std::unique_ptr<EventSubscriber>> EventSubscriber::Start(
    ReportedBlocks* blocks, const EventSubscriberOptions& options) {
  auto impl = std::make_unique<Impl>(blocks, options);
  impl->wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl->wake_fd < 0) return absl::ResourceExhaustedError("no descriptor for the events thread");
  Impl* const running = impl.get();
  impl->thread = std::thread([running] { running->Run(); });
  return std::unique_ptr<EventSubscriber>(new EventSubscriber(std::move(impl)));
}

EventSubscriber::~EventSubscriber() {
  impl_->stopping.store(true);
  impl_->Wake();
  impl_->thread.join();
  for (const auto& [worker, watched] : impl_->workers) watched.trust.Leave();
  impl_->sessions.clear();
}

void EventSubscriber::SetSources(std::vector<KvSource> sources) {
  impl_->Tell({.kind = Impl::Command::Kind::kSetSources, .sources = std::move(sources)});
}

void EventSubscriber::SetDialInWorkers(std::vector<DialInWorker> workers) {
  impl_->Tell({.kind = Impl::Command::Kind::kSetDialInWorkers, .dial_in_workers = std::move(workers)});
}

void EventSubscriber::ReportOutage(WorkerId worker) {
  impl_->Tell({.kind = Impl::Command::Kind::kReportOutage, .worker = worker});
}

void EventSubscriber::Resync(WorkerId worker) {
  impl_->Tell({.kind = Impl::Command::Kind::kResync, .worker = worker});
}

std::vector<KvSourceStatus> EventSubscriber::Report() const {
  const MutexLock lock(impl_->report_mutex);
  return impl_->report;
}

std::vector<DialInStatus> EventSubscriber::DialInReport() const {
  const MutexLock lock(impl_->report_mutex);
  return impl_->dial_in_report;
}

}  // namespace vllm_router
