#include "proxy/events/trtllm_poller.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/server_options.h"
#include "proxy/client/http_client.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr std::string_view kTarget = "/kv_cache_events";
constexpr int64_t kLookNanos = 500 * kNanosPerMs;  // while there is no source
constexpr int64_t kMinuteNanos = 60 * kNanosPerSecond;
constexpr int kMaxPollDoublings = 6;  // of a second: 64 s
constexpr std::string_view kRemedy =
    "start trtllm-serve with kv_cache_config: {enable_block_reuse: true, event_buffer_max_size: 2048}, or "
    "this "
    "router without --kv-events-engine trtllm";

// There is no such endpoint, or not by this method.
bool IsAbsent(int status) { return status == 404 || status == 405 || status == 501; }

}  // namespace

// Of the control thread, but for what the applier's thread writes while `applying`.
struct TrtllmPoller::Host {
  std::string endpoint;
  std::vector<KvSource> sources;
  std::vector<std::shared_ptr<Worker>> workers;
  bool by_get = false;
  bool polling = false;
  bool was_busy = false;
  bool missed = false;    // a poll failed since the last response
  bool rejected = false;  // the last poll, by one of both methods
  bool is_slow = false;   // the last poll failed, or took long
  int failures = 0;       // in a row
  int gaps = 0;           // that no failed poll explains
  int64_t polled_ns = 0;
  int64_t not_before_ns = 0;
  std::optional<int64_t> logged_ns;  // of a failure
  bool warned_of_another = false;

  bool was_handed = false;  // and what became of it is not known yet
  std::atomic<bool> applying{false};
  TrtllmReceiver::Result result;
  int64_t took_ns = 0;
};

// The thread that decodes and applies, and the only one that has the receiver.
class TrtllmPoller::Applier {
 public:
  using Job = std::function<void(TrtllmReceiver&, int64_t now_ns)>;

  explicit Applier(ReportedBlocks* blocks) : blocks_(*blocks), thread_([this] { Run(); }) {}
  ~Applier() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Applier(const Applier&) = delete;
  Applier& operator=(const Applier&) = delete;

  void Post(Job job) {
    {
      const MutexLock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }

  std::vector<KvSourceStatus> Report() const {
    const MutexLock lock(report_mutex_);
    return report_;
  }

 private:
  void Run() {
    TrtllmReceiver receiver(&blocks_);
    for (;;) {
      std::deque<Job> jobs;
      {
        MutexLock lock(mutex_);
        if (jobs_.empty() && !stopping_) {
          const int64_t wait_ns = changed_since_report_ ? kBusyNanos : kIdleNanos;
          changed_.wait_for(lock.native(), std::chrono::nanoseconds(wait_ns));
        }
        if (stopping_) return;
        jobs.swap(jobs_);
      }
      for (const Job& job : jobs) job(receiver, clock_.NowNanos());
      const int64_t now = clock_.NowNanos();
      if (now - watched_ns_ >= kIdleNanos) {
        watched_ns_ = now;
        receiver.Watch(now);
        changed_since_report_ = true;
      }
      changed_since_report_ = changed_since_report_ || !jobs.empty();
      if (!changed_since_report_ || now - reported_ns_ < kBusyNanos) continue;
      reported_ns_ = now;
      changed_since_report_ = false;
      std::vector<KvSourceStatus> statuses = receiver.Report(now);
      const MutexLock lock(report_mutex_);
      report_.swap(statuses);
    }
  }

  ReportedBlocks& blocks_;
  SteadyClock clock_;
  std::condition_variable changed_;
  mutable Mutex mutex_;  // leaf
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  mutable Mutex report_mutex_;  // leaf
  std::vector<KvSourceStatus> report_ ABSL_GUARDED_BY(report_mutex_);
  // Its thread's.
  int64_t watched_ns_ = 0;
  int64_t reported_ns_ = 0;
  bool changed_since_report_ = false;

  std::thread thread_;  // last, so that it finds the others
};

TrtllmPoller::TrtllmPoller(IoThread& thread) : HostPoller(thread) {}
TrtllmPoller::~TrtllmPoller() = default;

std::string TrtllmPoller::EndpointOf(const WorkerUrl& url) { return Concat(url.base, kTarget); }

void TrtllmPoller::Start() {
  const FixedOptions& options = thread_.options;
  if (options.kv_events_engine != KvEventsEngine::kTrtllm || options.kv_events == KvEventsMode::kOff) return;
  if (thread_.router->pool().index() != nullptr) Begin();
}

void TrtllmPoller::Stop() {
  HostPoller::Stop();
  const MutexLock lock(mutex_);
  applier_ = nullptr;
}

std::vector<KvSourceStatus> TrtllmPoller::Report() const {
  const MutexLock lock(mutex_);
  return applier_ != nullptr ? applier_->Report() : std::vector<KvSourceStatus>();
}

void TrtllmPoller::Post(std::function<void(TrtllmReceiver&, int64_t)> job) {
  const MutexLock lock(mutex_);
  if (applier_ != nullptr) applier_->Post(std::move(job));
}

bool TrtllmPoller::Follow(const Sources& all) {
  const bool changed = TakeKind(all.named, KvSourceKind::kTrtllm, &known_);
  if (changed) SetSources(known_);
  return !known_.empty();
}

void TrtllmPoller::SetSources(const std::vector<KvSource>& sources) {
  {
    const MutexLock lock(mutex_);
    sources_ = sources;
    if (applier_ == nullptr)
      applier_ = std::make_unique<Applier>(&thread_.router->pool().index()->reported());
  }
  std::map<std::string, std::shared_ptr<Host>> before;
  before.swap(hosts_);
  for (const KvSource& source : sources) {
    std::shared_ptr<Host>& host = hosts_[source.endpoint];
    if (host == nullptr) {
      const auto known = before.find(source.endpoint);
      host = known != before.end() ? known->second : std::make_shared<Host>();
      host->endpoint = source.endpoint;
      host->sources.clear();
      host->workers.clear();
    }
    host->sources.push_back(source);
  }
  is_new_ = true;
  Post([sources](TrtllmReceiver& receiver, int64_t now_ns) { receiver.SetSources(sources, now_ns); });
}

void TrtllmPoller::ReportOutage(WorkerId worker) {
  for (const auto& [endpoint, host] : hosts_) {
    if (std::ranges::find(host->sources, worker, &KvSource::worker) == host->sources.end()) continue;
    Post([name = endpoint](TrtllmReceiver& receiver, int64_t) { receiver.ReportOutage(name); });
  }
}

bool TrtllmPoller::Resync(std::string_view worker_url) {
  std::set<WorkerId> workers;
  {
    const MutexLock lock(mutex_);
    for (const KvSource& source : sources_) {
      if (source.url == worker_url) workers.insert(source.worker);
    }
  }
  for (const WorkerId worker : workers)
    Post([worker](TrtllmReceiver& receiver, int64_t now_ns) { receiver.Resync(worker, now_ns); });
  return !workers.empty();
}

int64_t TrtllmPoller::Pass(const FleetView& fleet) {
  if (hosts_.empty()) return kLookNanos;
  if (std::exchange(is_new_, false) || membership_ != fleet.membership_version()) FindWorkers(fleet);
  const int64_t now = thread_.clock.NowNanos();
  size_t under_way = 0;
  size_t slow = 0;  // of these
  std::vector<std::shared_ptr<Host>> due;
  for (const auto& [endpoint, host] : hosts_) {
    if (host->was_handed && !host->applying.load(std::memory_order_acquire)) Digest(host.get(), now);
    if (host->polling || host->was_handed) {
      ++under_way;
      if (host->is_slow) ++slow;
    } else if (!host->workers.empty()) {
      const int64_t pause = NextPause(host.get());
      if (now >= host->not_before_ns && now - host->polled_ns >= pause) due.push_back(host);
    }
  }
  // Those that have waited for longest come first.
  std::ranges::stable_sort(due, {}, [](const std::shared_ptr<Host>& host) { return host->polled_ns; });
  for (const std::shared_ptr<Host>& host : due) {
    if (under_way == kMaxPolls) break;
    if (host->is_slow && slow == kMaxSlowPolls) continue;
    ++under_way;
    if (host->is_slow) ++slow;
    host->polling = true;
    host->polled_ns = now;
    Spawn(Poll(host));
  }
  return kBusyNanos;
}

void TrtllmPoller::FindWorkers(const FleetView& fleet) {
  membership_ = fleet.membership_version();
  std::map<WorkerId, std::shared_ptr<Worker>> workers;
  for (const FleetView::Member& member : fleet.members()) workers[member.worker->id] = member.worker;
  for (const auto& [endpoint, host] : hosts_) {
    host->workers.clear();
    for (const KvSource& source : host->sources) {
      const auto found = workers.find(source.worker);
      if (found != workers.end()) host->workers.push_back(found->second);
    }
  }
}

// The last blocks of a request are stored when it ends, so there is a poll soon after the last one.
int64_t TrtllmPoller::NextPause(Host* host) {
  const bool busy = std::ranges::any_of(
      host->workers, [](const std::shared_ptr<Worker>& worker) { return worker->load.open_requests() > 0; });
  host->was_busy = host->was_busy || busy;
  return host->was_busy ? kBusyNanos : kIdleNanos;
}

Task<void> TrtllmPoller::Poll(std::shared_ptr<Host> host) {
  const UnderWay under_way(*this);
  const std::shared_ptr<Worker> worker = host->workers.front();
  host->was_busy = false;
  std::string target(kTarget);
  StatusOr<HttpResponse> response = absl::UnavailableError("");
  if (host->by_get) {
    response =
        co_await thread_.http.Get(nullptr, worker->url, std::move(target), kTimeoutMs, kMaxResponseBytes);
  } else {
    response = co_await thread_.http.Post(
        nullptr, worker->url, std::move(target), "", kTimeoutMs, kMaxResponseBytes);
  }
  host->polling = false;
  if (stopped()) co_return;
  host->is_slow = !response.ok() || thread_.clock.NowNanos() - host->polled_ns >= kSlowNanos;
  if (!response.ok() && absl::IsResourceExhausted(response.status())) {
    host->missed = true;
    Post([name = host->endpoint](TrtllmReceiver& receiver, int64_t now_ns) { receiver.Lose(name, now_ns); });
    host->not_before_ns = thread_.clock.NowNanos() + kIdleNanos;
    LogFailure(
        host.get(), Concat(
                        std::string(response.status().message()),
                        ", so its events are lost and what is known of this cache stays partial; lower "
                        "event_buffer_max_size of its kv_cache_config"));
  } else if (!response.ok()) {
    if (absl::IsUnavailable(response.status())) {
      Post([name = host->endpoint](TrtllmReceiver& receiver, int64_t) { receiver.ReportOutage(name); });
    }
    Fail(host.get(), kIdleNanos << host->failures, std::string(response.status().message()));
  } else if (response->status == 200) {
    host->rejected = false;
    HandOver(host, std::move(response->body));
  } else if (IsAbsent(response->status) && !std::exchange(host->rejected, true)) {
    host->by_get = !host->by_get;
    host->not_before_ns = 0;
    host->polled_ns = 0;
  } else {
    const bool is_absent = IsAbsent(response->status);
    host->rejected = false;
    Fail(
        host.get(), is_absent ? kAbsentNanos : kIdleNanos << host->failures,
        Concat("the response has status ", response->status));
  }
}

void TrtllmPoller::HandOver(const std::shared_ptr<Host>& host, std::string response) {
  host->was_handed = true;
  host->applying.store(true, std::memory_order_relaxed);
  Post([host, body = std::make_shared<const std::string>(std::move(response))](
           TrtllmReceiver& receiver, int64_t now_ns) {
    const SteadyClock clock;
    const int64_t begin = clock.NowNanos();
    host->result = receiver.Take(host->endpoint, *body, now_ns);
    host->took_ns = clock.NowNanos() - begin;
    host->applying.store(false, std::memory_order_release);
  });
}

void TrtllmPoller::Digest(Host* host, int64_t now_ns) {
  host->was_handed = false;
  if (host->result.malformed) return Fail(host, kAbsentNanos, "the response is no JSON array");
  host->failures = 0;
  host->not_before_ns = now_ns + (host->result.restarted ? kIdleNanos : 0) + kShare * host->took_ns;
  const bool missed = std::exchange(host->missed, false);
  if (host->result.lost == 0 || missed) return;
  if (++host->gaps != kGapsOfAnotherClient || std::exchange(host->warned_of_another, true)) return;
  Log(LogLevel::kWarning,
      Concat(
          "kv events: another client drains ", host->endpoint,
          ", or the engine's buffer is too small, since numbers of events are missing again and again: what "
          "is known of this cache stays partial; let one router alone poll it, or raise "
          "event_buffer_max_size "
          "of its kv_cache_config"));
}

void TrtllmPoller::Fail(Host* host, int64_t pause_ns, std::string_view why) {
  const int64_t now = thread_.clock.NowNanos();
  host->failures = std::min(host->failures + 1, kMaxPollDoublings);
  host->missed = true;
  host->not_before_ns = now + std::min(pause_ns, kAbsentNanos);
  Post([name = host->endpoint](TrtllmReceiver& receiver, int64_t now_ns) { receiver.Miss(name, now_ns); });
  // At the first failure of several.
  if (host->failures != 1) return;
  LogFailure(
      host, Concat(
                why, "; it is polled again in ", std::min(pause_ns, kAbsentNanos) / kNanosPerSecond,
                " s, and what its cache stores meanwhile is inferred from requests",
                pause_ns < kAbsentNanos ? "" : Concat("; ", kRemedy)));
}

void TrtllmPoller::LogFailure(Host* host, std::string_view sentence) {
  const int64_t now = thread_.clock.NowNanos();
  if (host->logged_ns && now - *host->logged_ns < kMinuteNanos) return;
  host->logged_ns = now;
  Log(LogLevel::kWarning, Concat("kv events: ", host->endpoint, ": ", sentence));
}

}  // namespace vllm_router
