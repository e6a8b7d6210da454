#include "proxy/disaggregation/pair_fact_poller.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kFirstPauseNs = 250 * kNanosPerMs;
constexpr int64_t kLongestPauseNs = 5'000 * kNanosPerMs;
constexpr int kMostDoublings = 6;
constexpr int64_t kAfterPoll = INT64_MAX;

}  // namespace

PairFactPoller::PairFactPoller(IoThread& thread, std::string target)
    : HostPoller(thread), target_(std::move(target)), publish_delay_(thread.loop) {}

int64_t PairFactPoller::Pass(const FleetView& fleet) {
  const int64_t now = thread_.clock.NowNanos();
  if (followed_.get() != &fleet) FollowFleet(fleet, now);
  return std::max(StartPolls(now) - now, kNanosPerMs);
}

void PairFactPoller::FollowFleet(const FleetView& fleet, int64_t now) {
  std::map<std::string, std::shared_ptr<Host>> hosts;
  for (const FleetView::Member& member : fleet.members()) {
    Worker& worker = *member.worker;
    std::optional<WorkerUrl> address = AddressOf(worker);
    if (!address) continue;
    std::shared_ptr<Host>& host = hosts[address->base];
    if (host == nullptr) {
      const auto last = hosts_.find(address->base);
      host = last != hosts_.end() ? last->second : std::make_shared<Host>();
      host->workers.clear();
      host->address = *std::move(address);
    }
    if (!member.healthy) {
      host->healthy.erase(worker.id);
      IsDown(worker);
    } else if (host->healthy.insert(worker.id).second) {
      host->due_ns = now;
      host->failures = 0;
    }
    host->workers.push_back(member.worker);
  }
  for (const auto& [base, host] : hosts) {
    std::set<WorkerId> left = host->healthy;
    for (const std::shared_ptr<Worker>& worker : host->workers) left.erase(worker->id);
    for (const WorkerId worker : left) host->healthy.erase(worker);
  }
  hosts_ = std::move(hosts);
  followed_ = thread_.router->fleet();
  if (followed_.get() != &fleet) followed_ = nullptr;  // the next pass looks again
}

// Returns when the next pass is due.
int64_t PairFactPoller::StartPolls(int64_t now) {
  int64_t next = now + kLookNanos;
  std::vector<std::tuple<bool, int64_t, std::shared_ptr<Host>>> due;
  for (const auto& [base, host] : hosts_) {
    if (host->polling || host->healthy.empty()) continue;
    int64_t due_ns = host->due_ns;
    if (host->doubted) due_ns = std::min(due_ns, host->doubt_ns + kRecheckNanos);
    if (now < due_ns) {
      next = std::min(next, due_ns);
    } else {
      due.emplace_back(host->failures != 0, due_ns, host);
    }
  }
  std::ranges::sort(due);
  for (const auto& [failed, due_ns, host] : due) {
    if (polling_ == kMaxHealthChecks) break;  // the end of another poll starts a new pass
    host->polling = true;
    ++polling_;
    Spawn(Poll(host));
  }
  return next;
}

Task<void> PairFactPoller::Poll(std::shared_ptr<Host> host) {
  const UnderWay under_way(*this);
  const bool doubted = std::exchange(host->doubted, false);
  if (doubted) host->doubt_ns = thread_.clock.NowNanos();
  host->due_ns = kAfterPoll;
  // Doubts from here on may be of what this request finds.
  for (const std::shared_ptr<Worker>& worker : host->workers)
    worker->engine_id_doubted.store(false, std::memory_order_relaxed);
  const WorkerUrl address = host->address;
  const StatusOr<HttpResponse> response = co_await thread_.http.Get(
      nullptr, address, target_, thread_.settings.Get()->health_check_timeout_ms, kMaxReplyBytes);
  host->polling = false;
  if (polling_-- == kMaxHealthChecks) PassNow();  // others may have waited for their turn
  if (stopped()) co_return;
  const bool whole = Learn(host->address, host->workers, response, doubted, host->failures);
  host->failures = whole ? 0 : std::min(host->failures + 1, kMostDoublings);
  const int64_t pause = whole ? Jittered(kIntervalNanos)
                              : Jittered(std::min(kLongestPauseNs, kFirstPauseNs << (host->failures - 1)));
  // Unless a worker has joined or become healthy since this began.
  if (host->due_ns == kAfterPoll) host->due_ns = thread_.clock.NowNanos() + pause;
  PassNow();
}

void PairFactPoller::PublishSoon() {
  if (!std::exchange(publishing_, true)) Spawn(PublishLater());
}

Task<void> PairFactPoller::PublishLater() {
  const UnderWay under_way(*this);
  co_await publish_delay_.For(published_ns_ + kPublishNanos - thread_.clock.NowNanos());
  publishing_ = false;
  published_ns_ = thread_.clock.NowNanos();
  thread_.router->RefreshFleet();
  Published(*thread_.router->fleet());
}

void PairFactPoller::FollowSettings() {
  followed_ = nullptr;
  PassNow();
}

void PairFactPoller::Recheck(const std::shared_ptr<Worker>& worker) {
  if (worker->engine_id_doubted.exchange(true, std::memory_order_relaxed)) return;
  thread_.loop.Post([this, worker] {
    const std::optional<WorkerUrl> address = AddressOf(*worker);
    const auto found = address ? hosts_.find(address->base) : hosts_.end();
    if (stopped()) return;
    if (found == hosts_.end()) return worker->engine_id_doubted.store(false, std::memory_order_relaxed);
    found->second->doubted = true;
    PassNow();
  });
}

}  // namespace vllm_router
