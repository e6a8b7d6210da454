#include "proxy/control/hang_watch.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/option_spec.h"
#include "base/text.h"
#include "base/time_units.h"
#include "policy/pool.h"
#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/model_catalog.h"

namespace vllm_router {
namespace {

constexpr int64_t kTicks = 10;         // in the shortest limit
constexpr int64_t kFirstProbe = 4;     // ticks until the first probe
constexpr int64_t kLongestProbe = 60;  // between two of them

// An ID is never used again.
uint64_t Mixed(uint64_t number, WorkerId id) {
  return (number ^ (static_cast<uint64_t>(id) + 1)) * 0x9e3779b97f4a7c15;
}

// By position: equal for workers of one stage that serve the same model. Of several models, as of a base and its adapters,
// that counts which most workers serve.
std::vector<uint64_t> GroupsOf(const FleetView& fleet) {
  std::vector<uint64_t> groups;
  for (const FleetView::Member& member : fleet.members())
    groups.push_back(static_cast<uint64_t>(member.worker->stage));
  const ModelPools* const models = fleet.models().get();
  if (models == nullptr || !models->decides()) return groups;
  using Pool = std::pair<size_t, uint64_t>;  // how many workers, and a number of these
  std::vector<Pool> largest(groups.size());
  for (const ModelPools::Members& members : models->names->pools) {
    Pool pool(members.workers.size(), 0);
    for (const uint32_t position : members.workers)
      pool.second = Mixed(pool.second, fleet.worker(position).id);
    for (const uint32_t position : members.workers) largest[position] = std::max(largest[position], pool);
  }
  for (size_t position = 0; position < groups.size(); ++position)
    groups[position] ^= largest[position].second;
  return groups;
}

std::string Seconds(int64_t nanos) {
  const int64_t tenths = nanos / (kNanosPerSecond / 10);
  return Concat(tenths / 10, ".", tenths % 10, " s");
}

}  // namespace

HangWatch::HangWatch(IoThread& control, Threads threads)
    : thread_(control), threads_(std::move(threads)), delay_(control.loop) {}

void HangWatch::Start() {
  running_ = true;
  Spawn(Run());
}

void HangWatch::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> HangWatch::Run() {
  while (!stopped_) {
    Tick();
    co_await delay_.For(TickNs());
  }
  running_ = false;
}

int64_t HangWatch::TickNs() const {
  return thread_.settings.Get()->hang_detection_min_ms * kNanosPerMs / kTicks;
}

void HangWatch::Tick() {
  const std::shared_ptr<const Settings> settings = thread_.settings.Get();
  if (!settings->detects_hangs()) {
    for (const auto& [id, doubt] : std::exchange(in_doubt_, {}))
      Restore(doubt, "--hang-detection-factor is 0");
    detector_ = {};  // nothing is noted meanwhile
    return;
  }
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  const int64_t now = thread_.clock.NowNanos();
  FollowDoubts(*fleet, now);
  const std::vector<uint64_t> groups = GroupsOf(*fleet);
  std::vector<HangDetector::Observed> observed;
  observed.reserve(groups.size());
  for (uint32_t position = 0; position < groups.size(); ++position) {
    const FleetView::Member& member = fleet->members()[position];
    const Worker& worker = *member.worker;
    const bool in_doubt = worker.in_doubt.load(std::memory_order_relaxed);
    observed.push_back(
        {.worker = worker.id,
         .group = groups[position],
         .in_rotation = member.in_rotation(),
         .out = in_doubt || worker.breaker.state() != BreakerState::kClosed,
         .in_doubt = in_doubt,
         .waiting = worker.load.own_waiting(),
         .last_byte_ns = worker.progress.last_byte_ns(),
         .waits = worker.progress.Waits()});
  }
  detector_.SetFactor(settings->hang_detection_factor, settings->hang_detection_min_ms * kNanosPerMs);
  for (const WorkerId id : detector_.Observe(now, observed)) {
    const std::optional<uint32_t> position = fleet->Find(id);
    if (!position || !listing_.insert(id).second) continue;
    const std::shared_ptr<Worker>& worker = fleet->members()[*position].worker;
    threads_.list(worker, [this, worker](const Threads::Waits& waits) {
      listing_.erase(worker->id);
      if (!stopped_) Judge(worker, waits);
    });
  }
}

void HangWatch::Judge(const std::shared_ptr<Worker>& worker, const Threads::Waits& waits) {
  std::vector<uint64_t> served;
  for (const FleetView::Member& member : thread_.router->fleet()->members()) {
    if (member.worker != worker) member.worker->progress.AddClients(&served);
  }
  const int64_t now = thread_.clock.NowNanos();
  const std::optional<HangDetector::Doubt> doubt = detector_.Judge(worker->id, waits, served, now);
  const bool spoke = doubt && worker->progress.last_byte_ns() > doubt->silent_since_ns;  // meanwhile
  if (!doubt || spoke || in_doubt_.contains(worker->id)) return;
  in_doubt_.emplace(
      worker->id, InDoubt{
                      .worker = worker,
                      .since_ns = now,
                      .last_byte_ns = worker->progress.last_byte_ns(),
                      .doubt = *doubt,
                      .moves = doubt->streams,
                      .probe_ns = now + kFirstProbe * TickNs(),
                      .probe_pause_ns = kFirstProbe * TickNs()});
  worker->doubts.fetch_add(1, std::memory_order_relaxed);
  worker->in_doubt.store(true, std::memory_order_relaxed);
  thread_.router->RefreshFleet();
  if (doubt->streams) threads_.move(worker, *doubt);
  Log(LogLevel::kWarning,
      Concat(
          "worker ", worker->url.url, " is in doubt: it has sent no byte of a response for ",
          Seconds(doubt->silent_ns), ", ", doubt->overdue, " requests have waited there for more than ",
          Seconds(doubt->limit_ns), ", and others responded to ", doubt->overtaking,
          " newer ones; it gets no new requests until it sends a byte"));
}

void HangWatch::FollowDoubts(const FleetView& fleet, int64_t now_ns) {
  std::erase_if(in_doubt_, [&](const auto& entry) { return !fleet.Find(entry.first); });
  for (const FleetView::Member& member : fleet.members()) {
    const auto found = in_doubt_.find(member.worker->id);
    if (found == in_doubt_.end()) continue;
    InDoubt& doubt = found->second;
    Worker& worker = *member.worker;
    const bool was_healthy = std::exchange(doubt.healthy, member.healthy);
    const bool came_back = member.healthy && !was_healthy;
    if (came_back || worker.progress.last_byte_ns() > doubt.last_byte_ns) {
      const InDoubt over = doubt;
      in_doubt_.erase(found);
      Restore(over, came_back ? "its health check has passed again" : "it has sent a byte");
      continue;
    }
    FollowProbe(worker, now_ns, &doubt);
    const bool probe_waits = doubt.taken_ns != 0 && now_ns - doubt.taken_ns >= doubt.doubt.limit_ns;
    doubt.moves = doubt.moves || probe_waits;
    if (doubt.moves && worker.load.own_waiting() != 0) threads_.move(doubt.worker, doubt.doubt);
  }
}

void HangWatch::FollowProbe(Worker& worker, int64_t now_ns, InDoubt* doubt) const {
  const ProbeDue due = worker.probe_due.load(std::memory_order_relaxed);
  if (doubt->due_ns != 0 && due == ProbeDue::kNone) {
    if (doubt->taken_ns == 0) doubt->taken_ns = now_ns;
    doubt->due_ns = 0;
    doubt->probe_ns = now_ns + doubt->probe_pause_ns;
    doubt->probe_pause_ns = std::min(2 * doubt->probe_pause_ns, kLongestProbe * TickNs());
  } else if (doubt->due_ns != 0) {
    if (now_ns - doubt->due_ns >= kLongestProbe * TickNs())
      worker.probe_due.store(ProbeDue::kOfAny, std::memory_order_relaxed);
  } else if (now_ns >= doubt->probe_ns) {
    worker.probe_due.store(ProbeDue::kOfMovable, std::memory_order_relaxed);
    doubt->due_ns = now_ns;
  }
}

void HangWatch::Restore(const InDoubt& doubt, const std::string& why) {
  doubt.worker->in_doubt.store(false, std::memory_order_relaxed);
  doubt.worker->probe_due.store(ProbeDue::kNone, std::memory_order_relaxed);
  thread_.router->RefreshFleet();
  Log(LogLevel::kInfo, Concat(
                           "worker ", doubt.worker->url.url, " is not in doubt any more after ",
                           Seconds(thread_.clock.NowNanos() - doubt.since_ns), ": ", why));
  thread_.health.recovered(doubt.worker);
}

}  // namespace vllm_router
