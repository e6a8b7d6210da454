#include "proxy/peer_sync/peer_admin.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/control/drainer.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/worker_registry.h"

namespace vllm_router {
namespace {

constexpr int64_t kForgetNanos = 10 * kNanosPerSecond;  // between looks for facts that have ended
// Between health checks of a worker that another router added.
constexpr int64_t kFirstPauseNanos = 250'000'000;
constexpr int64_t kLongestPauseNanos = 5 * kNanosPerSecond;

StatusOr<WorkerDeclaration> DeclarationOf(const AdminFact& fact) {
  StatusOr<WorkerDeclaration> worker = DeclareWorker(fact.url, fact.receives_api_key);
  if (!worker.ok()) return worker;
  worker->weight = static_cast<double>(fact.weight) / kWeightOne;
  worker->role = fact.role;
  return worker;
}

}  // namespace

void PeerAdmin::Stop() {
  stopped_ = true;
  for (CancelScope* const scope : joins_) scope->Cancel();
}

void PeerAdmin::Turn(int64_t now_ns) {
  CarryOutDrains();
  if (!streams_.knows_time() || now_ns - forgot_ns_ < kForgetNanos) return;
  forgot_ns_ = now_ns;
  const auto knows = [this](const std::string& url) { return Knows(url); };
  sync_.ForgetFacts(static_cast<uint64_t>(streams_.RedisMs(now_ns)), knows);
  std::erase_if(drains_, [this](const auto& entry) { return !sync_.facts().Counts(entry.second); });
}

void PeerAdmin::Tell(AdminFact fact) {
  if (const StatusOr<WorkerUrl> named = ParseWorkerUrl(fact.url); named.ok()) fact.url = named->url;
  fact.router = sync_.options().router;
  const int64_t now_ms = streams_.knows_time() ? streams_.RedisMs(thread_.clock.NowNanos())
                                               : static_cast<int64_t>(UnixSeconds() * 1e3);
  fact.at_ms = static_cast<uint64_t>(now_ms);
  const auto known = sync_.facts().all().find({fact.kind, fact.url});
  if (known != sync_.facts().all().end()) fact.at_ms = std::max(fact.at_ms, known->second.at_ms + 1);
  drains_.erase(fact.url);
  if (sync_.TellFact(fact)) return;
  warn_(absl::PermissionDeniedError(Concat(
      "other routers are not told of ", fact.url, "; at most ", AdminFacts::kMaxFacts,
      " workers that admins added or drained are told of")));
}

void PeerAdmin::CarryOut(const AdminFact& fact) {
  if (fact.kind == AdminFact::Kind::kDrain) drains_.erase(fact.url);
  if (!sync_.facts().Counts(fact)) return;
  Status done;
  std::string_view what;
  if (fact.kind == AdminFact::Kind::kMember && fact.holds) {
    what = " was added";
    StatusOr<WorkerDeclaration> worker = DeclarationOf(fact);
    done = worker.ok() ? MayAdd(fact, *worker) : worker.status();
    if (done.ok()) return Spawn(Join(fact, *std::move(worker)));
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
Status PeerAdmin::MayAdd(const AdminFact& fact, const WorkerDeclaration& worker) {
  Router& router = *thread_.router;
  Status may = router.MayAddWorker(worker);
  if (!absl::IsAlreadyExists(may) || !HasOtherRole(fact)) return may;
  may = router.RemoveWorker(fact.url);
  return may.ok() ? router.MayAddWorker(worker) : may;
}

bool PeerAdmin::HasOtherRole(const AdminFact& fact) const {
  const std::vector<DeclaredFleet::Row> rows = thread_.router->pool().registry().Rows();
  return std::ranges::any_of(rows, [&](const DeclaredFleet::Row& row) {
    const bool is_it = row.spec.url.url == fact.url || row.spec.url.base == fact.url;
    return is_it && row.spec.role != fact.role && row.owners.size() == 1 &&
           row.owners.front() == DeclaredFleet::kApi;
  });
}

bool PeerAdmin::Knows(const std::string& url) {
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

Task<void> PeerAdmin::Join(AdminFact fact, WorkerDeclaration worker) {
  CancelScope scope({});
  joins_.insert(&scope);
  int64_t pause = kFirstPauseNanos;
  bool healthy = false;
  while (!stopped_ && !healthy && sync_.facts().Counts(fact)) {
    const std::shared_ptr<const Settings> settings = thread_.settings.Get();
    const StatusOr<HttpResponse> response = co_await thread_.http.Get(
        &scope, worker.url, settings->health_check_endpoint, settings->health_check_timeout_ms);
    healthy = IsSuccess(response);
    if (healthy) break;
    const bool go_on = co_await scope.Pause(thread_.loop, pause);
    if (!go_on) break;
    pause = std::min(2 * pause, kLongestPauseNanos);
  }
  if (!stopped_ && healthy && sync_.facts().Counts(fact)) {
    const Status joined = thread_.router->AddWorker(worker);
    thread_.router->fleet()->MarkChecked(worker.url.base);
    if (joined.ok())
      Log(LogLevel::kInfo,
          Concat("peer sync: ", fact.url, " was added at router ", Hex16(fact.router), ", and here"));
  }
  joins_.erase(&scope);
}

// Of workers that came here after another router had drained them.
void PeerAdmin::CarryOutDrains() {
  std::vector<AdminFact> due;
  for (const auto& [url, fact] : drains_) {
    if (Knows(url)) due.push_back(fact);
  }
  for (const AdminFact& fact : due) CarryOut(fact);
}

}  // namespace vllm_router
