#include "proxy/control/fleet_manager.h"

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/error_response.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/probe_failure.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kLongestSleepNs = 1'000 * kNanosPerMs;
constexpr int64_t kAdmitNanos = 50 * kNanosPerMs;  // workers that pass within it join in one publication
constexpr std::array<int64_t, 5> kPausesMs = {250, 500, 1'000, 2'000, 5'000};
constexpr int kMostUnanswered = 3;                     // queries for its models; then it joins without them
constexpr size_t kMostNamed = 8;                       // workers in one line of the log
constexpr int64_t kHoldLineNs = 60 * kNanosPerSecond;  // between two lines of one source's held list

// "a, b and 3 more"
std::string Listed(const std::vector<std::string>& urls) {
  std::string text;
  for (size_t i = 0; i < std::min(urls.size(), kMostNamed); ++i) text += (i == 0 ? "" : ", ") + urls[i];
  if (urls.size() > kMostNamed) text += Concat(" and ", urls.size() - kMostNamed, " more");
  return text;
}

}  // namespace

FleetManager::FleetManager(IoThread& thread, HealthChecker& health, Drainer& drainer, ModelService& models)
    : HostPoller(thread), health_(health), drainer_(drainer), models_(models) {
  manager_ = thread_.router->pool().registry().Manage([this] { thread_.loop.Post([this] { PassNow(); }); });
}

FleetManager::~FleetManager() { Release(); }

void FleetManager::Stop() {
  Release();
  HostPoller::Stop();
}

// Not called back any more.
void FleetManager::Release() {
  if (manager_ != 0) thread_.router->pool().registry().EndManaging(std::exchange(manager_, 0));
}

int64_t FleetManager::Pass(const FleetView&) {
  thread_.router->pool().registry().EndHolds(thread_.clock.NowNanos());
  FollowRows();
  Admit();
  const int64_t now = thread_.clock.NowNanos();
  int64_t next = kLongestSleepNs;
  if (!passed_.empty()) next = std::min(next, admitted_ns_ + kAdmitNanos - now);
  const int64_t patience = thread_.settings.Get()->worker_startup_timeout_ms * kNanosPerMs;
  std::map<std::string_view, std::vector<uint64_t>> due;  // rows by host
  for (auto& [id, pending] : pending_) {
    if (pending.checking) continue;
    if (now < pending.due_ns) {
      next = std::min(next, pending.due_ns - now);
    } else if (!health_.checks() && !models_.asks()) {
      passed_.push_back(id);
      pending.checking = true;
      next = 0;
    } else {
      due[pending.url.base].push_back(id);
    }
    if (now - pending.since_ns >= patience && !std::exchange(pending.warned, true)) {
      Log(LogLevel::kWarning,
          Concat(
              "worker ", pending.url.url, ", which ", pending.source, " declares, has not passed its health ",
              "check (", thread_.settings.Get()->health_check_endpoint, ") for ", patience / kNanosPerSecond,
              " s (--worker-startup-timeout-secs)", pending.failure.empty() ? "" : ": it ", pending.failure,
              "; it gets no requests before"));
    }
  }
  StartChecks(due);
  return std::max(next, kNanosPerMs);
}

// Hosts that were never checked come first, then those that wait for longest; and checks that follow others take half
// of the places at most. So workers that accept and never respond, however many, cannot keep those that join
// from their turn.
void FleetManager::StartChecks(const std::map<std::string_view, std::vector<uint64_t>>& due) {
  struct Turn {
    bool again;
    int64_t due_ns;
    const std::vector<uint64_t>* rows;
    bool operator<(const Turn& other) const {
      return std::tie(again, due_ns) < std::tie(other.again, other.due_ns);
    }
  };
  std::vector<Turn> turns;
  for (const auto& [host, rows] : due) {
    Turn turn{.again = true, .due_ns = INT64_MAX, .rows = &rows};
    for (const uint64_t id : rows) {
      const Pending& pending = pending_.at(id);
      turn.again &= pending.checks > 0;
      turn.due_ns = std::min(turn.due_ns, pending.due_ns);
    }
    turns.push_back(turn);
  }
  std::ranges::sort(turns, std::less<>());
  for (const Turn& turn : turns) {
    if (checking_ >= kMaxHealthChecks) break;  // the end of another check starts a new pass
    if (turn.again && checking_again_ >= kMaxHealthChecks / 2) break;
    for (const uint64_t id : *turn.rows) pending_.at(id).checking = true;
    ++checking_;
    if (turn.again) ++checking_again_;
    Spawn(Check(*turn.rows, pending_.at(turn.rows->front()).url, turn.again));
  }
}

void FleetManager::FollowRows() {
  WorkerRegistry& registry = thread_.router->pool().registry();
  if (registry.rows_version() == version_) return;
  const std::vector<DeclaredFleet::Row> rows = registry.Rows(&version_);
  const int64_t now = thread_.clock.NowNanos();
  std::set<uint64_t> awaiting;
  std::set<uint64_t> held;
  std::set<uint64_t> replaced;
  using Urls = std::vector<std::string>;
  std::map<std::pair<std::string, bool>, Urls> newly_held;  // by source, and if others are awaited
  std::map<std::pair<std::string, bool>, Urls> left;  // of those for which others were awaited; if in vain
  for (const DeclaredFleet::Row& row : rows) {
    if (row.awaits_check()) {
      awaiting.insert(row.id);
      pending_.try_emplace(
          row.id, Pending{.url = row.spec.url, .source = row.owners.front(), .since_ns = now, .due_ns = now});
    } else if (row.leaves()) {
      drainer_.Watch(
          row.member.worker, row.spec.drain_ms().value_or(thread_.settings.Get()->drain_timeout_ms));
      if (replaced_.contains(row.id)) left[{row.source, row.is_overdue}].push_back(row.spec.url.url);
    } else if (row.held) {
      held.insert(row.id);
      if (row.is_replaced) replaced.insert(row.id);
      if (held_.contains(row.id) && row.is_replaced == replaced_.contains(row.id)) continue;
      newly_held[{row.owners.front(), row.is_replaced}].push_back(row.spec.url.url);
      health_.ReportPassiveFailure(row.member.worker);
    }
  }
  std::erase_if(pending_, [&](const auto& entry) { return !awaiting.contains(entry.first); });
  held_ = std::move(held);
  replaced_ = std::move(replaced);
  for (const auto& [who, urls] : newly_held) LogHeld(who.first, urls, who.second, now);
  for (const auto& [who, urls] : left) {
    const auto& [source, in_vain] = who;
    Log(in_vain ? LogLevel::kWarning : LogLevel::kInfo,
        in_vain
            ? Concat(
                  "fleet: ", Listed(urls), ", which ", source, " left out, leave although new workers of it ",
                  "have not passed their health check: --discovery-hold-secs have passed")
            : Concat(
                  "fleet: ", Listed(urls), ", which ", source,
                  " left out, leave: no worker is awaited for them any more"));
  }
}

void FleetManager::LogHeld(
    const std::string& source, const std::vector<std::string>& urls, bool are_replaced, int64_t now) {
  if (are_replaced) {
    Log(LogLevel::kInfo, Concat(
                             "fleet: ", Listed(urls), ", which ", source,
                             " leaves out, stay until as many of its new workers ",
                             "have passed their health check (--discovery-hold-secs)"));
    return;
  }
  const auto [told, is_new] = told_ns_.try_emplace(source, now);
  if (!is_new && now - told->second < kHoldLineNs) return;  // a worker that flaps makes a new hold each time
  told->second = now;
  Log(LogLevel::kError,
      Concat(
          "fleet: the list of ", source, " leaves out ", urls.size(),
          " serving workers at once (--discovery-guard), so they are kept: ", Listed(urls),
          "; they leave when the list stays like this (--discovery-hold-secs), or at once with POST ",
          "/admin/discovery/adopt?source=", source));
}

Task<void> FleetManager::Check(std::vector<uint64_t> rows, WorkerUrl url, bool again) {
  const UnderWay under_way(*this);
  const std::shared_ptr<const Settings> settings = thread_.settings.Get();
  StatusOr<HttpResponse> response = HttpResponse{.status = 200};  // without health checks
  if (health_.checks()) {
    response = co_await thread_.http.Get(
        nullptr, url, settings->health_check_endpoint, settings->health_check_timeout_ms);
  }
  const bool passed = IsSuccess(response);
  bool knows_models = true;
  if (passed && !stopped()) knows_models = co_await models_.Fetch(url, /*joins=*/true);
  --checking_;
  if (again) --checking_again_;
  if (stopped()) co_return;
  for (const uint64_t id : rows) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) continue;  // not declared any more
    Pending& pending = found->second;
    if (passed && (knows_models || ++pending.unanswered >= kMostUnanswered)) {
      passed_.push_back(id);  // `checking` stays, so that it is not checked again before it is admitted
      continue;
    }
    pending.checking = false;
    if (!passed) {
      pending.failure =
          ProbeFailure(url, settings->health_check_endpoint, response, thread_.http.KeyUseFor(url));
    }
    const int64_t pause = kPausesMs[std::min(pending.checks++, kPausesMs.size() - 1)] * kNanosPerMs;
    const double spread = static_cast<double>(thread_.ids.Below(2001)) / 1000 - 1;
    pending.due_ns =
        thread_.clock.NowNanos() + pause + static_cast<int64_t>(static_cast<double>(pause) * 0.1 * spread);
    const bool loops = response.ok() && response->status == ErrorOf(HttpError::kLoopDetected).status;
    if (loops && !std::exchange(pending.warned, true)) {
      Log(LogLevel::kError,
          Concat(
              "worker ", url.url, ", which ", pending.source, " declares, leads back to this router; ",
              "correct the source so that it names engines only"));
    }
  }
  PassNow();
}

void FleetManager::Admit() {
  const int64_t now = thread_.clock.NowNanos();
  if (passed_.empty() || now - admitted_ns_ < kAdmitNanos) return;
  admitted_ns_ = now;
  std::vector<std::string> joined = thread_.router->pool().registry().Admit(passed_, now);
  for (const uint64_t id : std::exchange(passed_, {})) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) continue;
    const auto url = std::find(joined.begin(), joined.end(), found->second.url.url);
    if (url == joined.end()) {  // the fleet is full
      found->second.checking = false;
      found->second.due_ns = now + kPausesMs.back() * kNanosPerMs;
      continue;
    }
    *url += Concat(
        " (", found->second.source, ", ready after ", (now - found->second.since_ns) / kNanosPerMs, " ms)");
    pending_.erase(found);
  }
  if (joined.empty()) return;
  drainer_.ForgetReturned();
  health_.CheckNewHosts();
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  Log(LogLevel::kInfo, Concat(
                           "fleet: joined ", Listed(joined), "; ", fleet->in_rotation(), " of ",
                           fleet->members().size(), " in rotation"));
}

}  // namespace vllm_router
