#include "worker/worker_registry.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

StatusOr<uint32_t> WeightInThousandths(std::string_view url, double weight) {
  const double thousandths = std::round(weight * kWeightOne);
  if (!(thousandths >= kMinWeight && thousandths <= kMaxWeight)) {  // also true for NaN
    return absl::InvalidArgumentError(Concat(
        "the weight of worker ", url, " is ", weight, "; it is a relative capacity and must be between ",
        static_cast<double>(kMinWeight) / kWeightOne, " and ", kMaxWeight / kWeightOne, " (default 1)"));
  }
  return static_cast<uint32_t>(thousandths);
}

bool SameWorker(const WorkerUrl& a, const WorkerUrl& b) { return a.rank == b.rank && SameHost(a, b); }

}  // namespace

WorkerRegistry::WorkerRegistry(Planner planner)
    : planner_(std::move(planner)), snapshot_(std::make_shared<const FleetView>()) {}

Status WorkerRegistry::Add(std::string_view url, double weight, bool receives_api_key) {
  const NewWorker worker{.url = url, .weight = weight, .receives_api_key = receives_api_key};
  return AddAll(std::span(&worker, 1));
}

Status WorkerRegistry::AddAll(std::span<const NewWorker> workers) {
  if (workers.empty()) return absl::OkStatus();
  MutexLock lock(mutex_);
  StatusOr<std::vector<FleetView::Member>> members = Joined(workers);
  if (!members.ok()) return members.status();
  members_ = *std::move(members);
  next_id_ += static_cast<uint32_t>(workers.size());
  ++membership_version_;
  Publish();
  return absl::OkStatus();
}

Status WorkerRegistry::MayAdd(std::span<const NewWorker> workers) {
  MutexLock lock(mutex_);
  return Joined(workers).status();
}

// Built aside, so that one invalid worker leaves the fleet as it was.
StatusOr<std::vector<FleetView::Member>> WorkerRegistry::Joined(std::span<const NewWorker> workers) {
  if (members_.size() + workers.size() > kMaxWorkers) {
    return absl::ResourceExhaustedError(Concat(
        "adding ", workers.size(), " to the ", members_.size(),
        " workers of the fleet would pass the limit of ", kMaxWorkers,
        "; remove some first, or run a second router"));
  }
  std::vector<FleetView::Member> members = members_;
  uint32_t next_id = next_id_;
  for (const NewWorker& worker : workers) {
    StatusOr<WorkerUrl> url = ParseWorkerUrl(worker.url);
    if (!url.ok()) return url.status();
    if (requires_addresses_) ROUTER_RETURN_IF_ERROR(RequireAddress(*url));
    const StatusOr<uint32_t> weight = WeightInThousandths(url->url, worker.weight);
    if (!weight.ok()) return weight.status();
    url->receives_api_key = worker.receives_api_key;
    bool healthy = true;
    for (const FleetView::Member& member : members) {
      if (SameWorker(member.worker->url, *url)) {
        return absl::AlreadyExistsError(Concat(
            "worker ", url->url, " already exists in the fleet", member.draining ? ", draining" : "",
            "; remove it first to add it anew"));
      }
      if (!SameHost(member.worker->url, *url)) continue;
      // A rank that joins a host known to be down is down too. If any rank of a host receives the key,
      // all of them do.
      healthy = member.healthy;
      url->receives_api_key |= member.worker->url.receives_api_key;
    }
    members.push_back(
        {.worker = std::make_shared<Worker>(WorkerId{next_id++}, std::move(*url), *weight, loads_.New()),
         .healthy = healthy});
  }
  return members;
}

Status WorkerRegistry::RequireAddresses() {
  MutexLock lock(mutex_);
  for (const FleetView::Member& member : members_) ROUTER_RETURN_IF_ERROR(RequireAddress(member.worker->url));
  requires_addresses_ = true;
  return absl::OkStatus();
}

Status WorkerRegistry::Remove(std::string_view url) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<uint32_t>> found = Find(url);
  if (!found.ok()) return found.status();
  for (auto position = found->rbegin(); position != found->rend(); ++position) {
    members_.erase(members_.begin() + *position);
  }
  ++membership_version_;
  Publish();
  return absl::OkStatus();
}

Status WorkerRegistry::SetDraining(std::string_view url, bool draining) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<uint32_t>> found = Find(url);
  if (!found.ok()) return found.status();
  bool changed = false;
  for (const uint32_t position : *found) {
    changed |= std::exchange(members_[position].draining, draining) != draining;
  }
  if (changed) Publish();
  return absl::OkStatus();
}

Status WorkerRegistry::SetHealthy(std::string_view url, bool healthy) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<uint32_t>> found = Find(url);
  if (!found.ok()) return found.status();
  const WorkerUrl& host = members_[found->front()].worker->url;
  bool changed = false;
  for (FleetView::Member& member : members_) {
    if (SameHost(member.worker->url, host)) changed |= std::exchange(member.healthy, healthy) != healthy;
  }
  if (changed) Publish();
  return absl::OkStatus();
}

StatusOr<std::vector<std::shared_ptr<Worker>>> WorkerRegistry::Named(std::string_view url) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<uint32_t>> found = Find(url);
  if (!found.ok()) return found.status();
  std::vector<std::shared_ptr<Worker>> workers;
  for (const uint32_t position : *found) workers.push_back(members_[position].worker);
  return workers;
}

StatusOr<std::vector<uint32_t>> WorkerRegistry::Find(std::string_view url) const {
  const StatusOr<WorkerUrl> wanted = ParseWorkerUrl(url);
  std::vector<uint32_t> found;
  if (wanted.ok()) {
    for (uint32_t position = 0; position < members_.size(); ++position) {
      const WorkerUrl& known = members_[position].worker->url;
      const bool rank_matches = !wanted->rank || known.rank == wanted->rank;
      if (rank_matches && SameHost(known, *wanted)) found.push_back(position);
    }
  }
  if (!found.empty()) return found;

  std::vector<std::string_view> known;
  known.reserve(members_.size());
  for (const FleetView::Member& member : members_) known.push_back(member.worker->url.url);
  const std::string_view nearest = NearestName(url, known);
  return absl::NotFoundError(Concat(
      "no worker ", Quoted(url), " in the fleet of ", members_.size(),
      nearest.empty() ? std::string() : Concat("; did you mean ", nearest, "?")));
}

void WorkerRegistry::Refresh() {
  MutexLock lock(mutex_);
  Publish();
}

void WorkerRegistry::Publish() {
  for (FleetView::Member& member : members_) {
    member.open = member.worker->breaker.state() == BreakerState::kOpen;
  }
  FleetView next(members_, membership_version_);
  next.set_plan(snapshot_.Load()->shared_plan());
  next.set_plan(planner_ ? planner_(next) : nullptr);
  snapshot_.Publish(std::make_shared<const FleetView>(std::move(next)));
}

}  // namespace vllm_router
