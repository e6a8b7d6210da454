#include "proxy/control/drainer.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kLookNanos = 50'000'000;

bool Means(const WorkerUrl& named, const WorkerUrl& known) {
  return SameHost(named, known) && (!named.rank || named.rank == known.rank);
}

}  // namespace

std::string_view Drainer::StateName(State state) {
  constexpr std::array<std::string_view, 4> kNames = {"draining", "drained", "cut", "removed"};
  return kNames[static_cast<size_t>(state)];
}

Drainer::Drainer(IoThread& control, OfWorker cut, OfWorker hand_over)
    : thread_(control), cut_(std::move(cut)), hand_over_(std::move(hand_over)), delay_(control.loop) {}

int64_t Drainer::Now() const { return thread_.clock.NowNanos(); }

Status Drainer::Begin(std::string_view url, int64_t timeout_ms) {
  MutexLock lock(mutex_);
  ForgetReturnedLocked();
  const Status known = thread_.router->DrainWorker(url);
  if (!known.ok()) return known;
  const StatusOr<WorkerUrl> named = ParseWorkerUrl(url);
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  for (const FleetView::Member& member : fleet->members()) {
    if (!named.ok() || !member.draining || !Means(*named, member.worker->url)) continue;
    if (Insert(member.worker, timeout_ms)) continue;
    for (Draining& draining : draining_) {
      if (draining.worker != member.worker) continue;
      draining.row.begun_ns = Now();
      draining.row.timeout_ms = timeout_ms;
    }
  }
  thread_.loop.Post([this] { WatchAll(); });
  return absl::OkStatus();
}

Status Drainer::Cancel(std::string_view url) {
  MutexLock lock(mutex_);
  const Status known = thread_.router->DrainWorker(url, false);
  if (!known.ok()) return known;
  const StatusOr<WorkerUrl> named = ParseWorkerUrl(url);
  std::erase_if(
      draining_, [&](const Draining& draining) { return named.ok() && Means(*named, draining.worker->url); });
  return absl::OkStatus();
}

std::vector<Drainer::Row> Drainer::Rows(std::string_view url) {
  const StatusOr<WorkerUrl> named = ParseWorkerUrl(url);
  const auto is_asked_for = [&](const WorkerUrl& known) {
    return url.empty() || (named.ok() && Means(*named, known));
  };
  MutexLock lock(mutex_);
  ForgetReturnedLocked();
  std::vector<Row> rows;
  for (const Draining& draining : draining_) {
    if (!is_asked_for(draining.worker->url)) continue;
    rows.push_back(draining.row);
    rows.back().open_requests = draining.worker->load.open_requests();
  }
  for (const Ended& ended : ended_) {
    if (is_asked_for(ended.url)) rows.push_back(ended.row);
  }
  return rows;
}

void Drainer::ForgetReturned() {
  MutexLock lock(mutex_);
  ForgetReturnedLocked();
}

void Drainer::ForgetReturnedLocked() {
  if (ended_.empty()) return;
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  if (std::exchange(membership_version_, fleet->membership_version()) == fleet->membership_version()) return;
  std::set<std::string_view> members;
  for (const FleetView::Member& member : fleet->members()) members.insert(member.worker->url.url);
  std::erase_if(ended_, [&members](const Ended& ended) { return members.contains(ended.url.url); });
}

void Drainer::Watch(const std::shared_ptr<Worker>& worker, int64_t timeout_ms) {
  {
    MutexLock lock(mutex_);
    if (!Insert(worker, timeout_ms)) Shorten(worker, timeout_ms);
  }
  WatchAll();
}

bool Drainer::Insert(const std::shared_ptr<Worker>& worker, int64_t timeout_ms) {
  const bool known = std::any_of(draining_.begin(), draining_.end(), [&](const Draining& draining) {
    return draining.worker == worker;
  });
  if (known) return false;
  draining_.push_back(
      {.row = {.url = worker->url.url, .begun_ns = Now(), .timeout_ms = timeout_ms}, .worker = worker});
  Log(LogLevel::kInfo, "worker " + worker->url.url + " drains");
  return true;
}

// An admin drained it before its source did, with more time than there is now.
void Drainer::Shorten(const std::shared_ptr<Worker>& worker, int64_t timeout_ms) {
  for (Draining& draining : draining_) {
    if (draining.worker != worker) continue;
    const int64_t passed_ms = (Now() - draining.row.begun_ns) / kNanosPerMs;
    draining.row.timeout_ms = std::min(draining.row.timeout_ms, passed_ms + timeout_ms);
  }
}

void Drainer::WatchAll() {
  if (running_ || stopped_) return;
  running_ = true;
  Spawn(Run());
}

void Drainer::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> Drainer::Run() {
  while (!stopped_ && Look()) co_await delay_.For(kLookNanos);
  running_ = false;
}

bool Drainer::IsHandOverDue(const Row& row) const {
  const ContinueSettings& settings = thread_.settings.Get()->continuation;
  return settings.streams != ContinueStreams::kOff && settings.drain_ms != 0 &&
         Now() >= row.begun_ns + settings.drain_ms * kNanosPerMs;
}

bool Drainer::Look() {
  MutexLock lock(mutex_);
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  std::vector<Draining> still;
  std::vector<WorkerId> ended;
  for (Draining& draining : draining_) {
    const auto member = std::find_if(
        fleet->members().begin(), fleet->members().end(),
        [&](const FleetView::Member& one) { return one.worker == draining.worker; });
    const int64_t due = draining.row.begun_ns + draining.row.timeout_ms * kNanosPerMs;
    if (member == fleet->members().end()) {
      End(std::move(draining), State::kRemoved);
    } else if (!member->draining) {
      continue;  // made to serve again, but not by Cancel()
    } else if (draining.worker->load.open_requests() == 0) {
      ended.push_back(draining.worker->id);
      End(std::move(draining), State::kDrained);
    } else if (Now() >= due) {
      cut_(draining.worker);
      ended.push_back(draining.worker->id);
      End(std::move(draining), State::kCut);
    } else {
      if (IsHandOverDue(draining.row)) hand_over_(draining.worker);
      still.push_back(std::move(draining));
    }
  }
  if (!ended.empty()) thread_.router->pool().registry().Drained(ended, Now());
  draining_ = std::move(still);
  return !draining_.empty();
}

void Drainer::End(Draining&& draining, State state) {
  Row& row = draining.row;
  row.state = state;
  row.open_requests = draining.worker->load.open_requests();
  row.ended_ns = Now();
  Log(state == State::kCut ? LogLevel::kWarning : LogLevel::kInfo,
      Concat(
          "worker ", row.url, " has left the fleet: ", StateName(row.state),
          state == State::kCut ? Concat(", with ", row.open_requests, " requests still open")
                               : std::string()));
  std::erase_if(ended_, [&](const Ended& ended) { return ended.url.url == row.url; });
  ended_.push_back({.row = std::move(row), .url = draining.worker->url});
  if (ended_.size() > kMostEnded) ended_.pop_front();
}

}  // namespace vllm_router
