#include "proxy/control/load_poller.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/client/load_query.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/overload.h"

namespace vllm_router {
namespace {

struct Own {
  int64_t open;
  int64_t waiting;
};
using Ranks = std::vector<std::optional<uint32_t>>;

constexpr int64_t kNoPollsNs = 3'600 * kNanosPerSecond;  // other settings end the wait

constexpr int64_t kPublishNs = 20 * kNanosPerMs;  // so that many workers cost one publication

}  // namespace

LoadPoller::LoadPoller(IoThread& thread) : HostPoller(thread), publish_delay_(thread.loop) {}

void LoadPoller::Stop() {
  HostPoller::Stop();
  publish_delay_.Cancel();
}

void LoadPoller::SetNotKnown(Worker* worker) {
  worker->load.SetPolled(0, 0);
  worker->kv_use.store(-1, std::memory_order_relaxed);
  worker->others_queued.store(0, std::memory_order_relaxed);
  SetOverloaded(worker, false);
}

void LoadPoller::SetOverloaded(Worker* worker, bool overloaded) {
  if (worker->overloaded.exchange(overloaded, std::memory_order_relaxed) == overloaded) return;
  if (!std::exchange(publishing_, true)) Spawn(PublishSoon());
}

Task<void> LoadPoller::PublishSoon() {
  const UnderWay under_way(*this);
  co_await publish_delay_.For(kPublishNs);
  publishing_ = false;
  if (!stopped()) thread_.router->RefreshFleet();
}

void LoadPoller::Start() { Begin(NextPassNs()); }

int64_t LoadPoller::IntervalMs() const {
  const int64_t said = thread_.settings.Get()->load_poll_interval_ms;
  return said <= 0 && alone_ ? kAloneMs : std::max<int64_t>(0, said);
}

void LoadPoller::SetAlone(bool alone) {
  if (std::exchange(alone_, alone) != alone) PassNow();
}

int64_t LoadPoller::NextPassNs() {
  const int64_t interval = IntervalMs() * kNanosPerMs;
  if (interval <= 0) return kNoPollsNs;
  return Jittered(interval);
}

int64_t LoadPoller::Pass(const FleetView& fleet) {
  if (IntervalMs() <= 0) {
    Forget(fleet);
    return NextPassNs();
  }
  Hosts fleet_hosts = HostsOf(fleet);
  std::erase_if(hosts_, [&](const auto& entry) { return !fleet_hosts.contains(entry.first); });
  if (!thread_.settings.Get()->excludes_overloaded()) {
    for (const FleetView::Member& member : fleet.members()) SetOverloaded(member.worker.get(), false);
  }
  for (auto& [base, workers] : fleet_hosts) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    if (!std::exchange(host->polling, true)) Spawn(Poll(host, std::move(workers)));
  }
  return NextPassNs();
}

// What was polled before polls were turned off says nothing of later.
void LoadPoller::Forget(const FleetView& fleet) {
  if (hosts_.empty()) return;
  hosts_.clear();
  for (const FleetView::Member& member : fleet.members()) SetNotKnown(member.worker.get());
}

Task<void> LoadPoller::Poll(std::shared_ptr<Host> host, Workers workers) {
  const UnderWay under_way(*this);
  std::vector<Own> own;
  Ranks ranks;
  for (const std::shared_ptr<Worker>& worker : workers) {
    own.push_back({.open = worker->load.open_requests(), .waiting = worker->load.own_waiting()});
    ranks.push_back(worker->url.rank);
  }
  const std::shared_ptr<const Settings> settings = thread_.settings.Get();
  const int64_t timeout = std::min<int64_t>(IntervalMs(), settings->health_check_timeout_ms);
  const LoadResponse response =
      co_await QueryLoad(thread_.http, nullptr, workers.front()->url, ranks, &host->source, timeout);
  host->polling = false;
  if (stopped() || IntervalMs() <= 0) co_return;
  thread_.telemetry.load_polls.Add(response.heard);
  host->missed = response.heard ? 0 : host->missed + 1;
  // Where caches are of no interest, CacheCapacityPoller says nothing of it.
  const bool has_none = !response.heard && host->source.at() == LoadSource::At::kNowhere;
  if (has_none && !thread_.router->pool().models_caches() && !std::exchange(host->warned, true)) {
    Log(LogLevel::kWarning, Concat(
                                "worker ", workers.front()->url.base,
                                " reports its load nowhere (GET /metrics, /get_load, /load), so it is ",
                                "taken to have the requests of this router only; SGLang needs "
                                "--enable-metrics, llama.cpp --metrics"));
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    WorkerLoad& load = workers[i]->load;
    if (response.loads[i].has_value()) {
      // Our own requests changed while the worker counted; those that may be ours must not count as
      // another's.
      const int64_t beyond_own =
          std::max<int64_t>(0, response.loads[i]->requests - std::max(own[i].open, load.open_requests()));
      const int64_t others = std::max<int64_t>(0, beyond_own - load.peer_requests());
      const int64_t waiting = response.loads[i]->waiting - load.own_waiting() - load.peer_waiting();
      load.SetPolled(others, std::clamp<int64_t>(waiting, 0, others));
      // A queue of peers is a queue, too.
      const int64_t queued = response.loads[i]->waiting - std::max(own[i].waiting, load.own_waiting());
      workers[i]->others_queued.store(
          static_cast<uint32_t>(std::clamp<int64_t>(queued, 0, beyond_own)), std::memory_order_relaxed);
      const auto kv_use = static_cast<float>(response.loads[i]->kv_use.value_or(-1));
      workers[i]->kv_use.store(kv_use, std::memory_order_relaxed);
      const OverloadLimits limits{
          .waiting = settings->exclude_waiting_above, .kv_use = settings->exclude_kv_above};
      const bool was = workers[i]->overloaded.load(std::memory_order_relaxed);
      SetOverloaded(
          workers[i].get(), IsOverloaded(limits, response.loads[i]->waiting, response.loads[i]->kv_use, was));
    } else if (response.heard || host->missed >= kForgottenPolls) {
      SetNotKnown(workers[i].get());
    }
  }
}

}  // namespace vllm_router
