#include "worker/worker_registry.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

using Row = DeclaredFleet::Row;

Status CheckWeight(std::string_view url, double weight) {
  const double thousandths = std::round(weight * kWeightOne);
  if (thousandths >= kMinWeight && thousandths <= kMaxWeight) return absl::OkStatus();  // not of NaN
  return absl::InvalidArgumentError(Concat(
      "the weight of worker ", url, " is ", weight, "; it is a relative capacity and must be between ",
      static_cast<double>(kMinWeight) / kWeightOne, " and ", kMaxWeight / kWeightOne, " (default 1)"));
}

// A fleet with stages has no other workers, one without has none of them.
Status CheckStage(std::string_view url, Stage stage, bool is_staged) {
  if ((stage != Stage::kAll) == is_staged) return absl::OkStatus();
  if (is_staged) {
    return absl::InvalidArgumentError(Concat(
        "worker ", url, " has no stage, and this fleet is split into prefill and decode workers; declare it ",
        "with worker_type prefill or decode"));
  }
  return absl::InvalidArgumentError(Concat(
      "worker ", url, " is declared as ", StageName(stage),
      ", and this fleet has no stages; start the router ",
      "with --mode pd, or declare the worker as regular"));
}

// A worker without a stage has none.
Status CheckKvGroup(std::string_view url, const WorkerRole& role) {
  if (role.kv_group.empty()) return absl::OkStatus();
  if (role.stage == Stage::kAll) {
    return absl::InvalidArgumentError(Concat(
        "worker ", url, " has a kv_group, and no stage; it says which prefill and decode workers may be a ",
        "pair, so leave it out"));
  }
  const bool is_printable =
      std::ranges::none_of(role.kv_group, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  const bool is_trimmed = TrimBlanks(role.kv_group) == role.kv_group;
  if (role.kv_group.size() <= kMaxKvGroupBytes && is_printable && is_trimmed) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      "the kv_group of worker ", url, " has ", role.kv_group.size(), " bytes; it must have at most ",
      kMaxKvGroupBytes, ", no control characters and no blanks at its ends, such as llama-70b/16"));
}

// Prefill workers whose blocks would fit no decode worker, though there are some.
void MarkWithoutPartner(std::vector<FleetView::Member>& members) {
  std::set<std::string_view> groups;  // of decode workers in rotation
  bool any_named = false;
  for (const FleetView::Member& member : members) {
    if (!member.in_rotation()) continue;
    if (member.worker->stage == Stage::kDecode) groups.insert(member.worker->kv_group);
    any_named |= member.worker->stage == Stage::kPrefill && !member.worker->kv_group.empty();
  }
  if (!any_named || groups.empty() || groups.contains(std::string_view())) return;
  for (FleetView::Member& member : members) {
    const std::string& group = member.worker->kv_group;
    const bool is_prefill = member.in_rotation() && member.worker->stage == Stage::kPrefill;
    if (is_prefill && !group.empty() && !groups.contains(group)) member.pair = PairState::kNoPartner;
  }
}

bool Serves(const Row& row) { return row.serves(); }

}  // namespace

WorkerRegistry::WorkerRegistry(Planner planner, const GuardOptions& guard, bool is_staged)
    : planner_(std::move(planner)), is_staged_(is_staged), snapshot_(std::make_shared<const FleetView>()) {
  MutexLock lock(mutex_);
  fleet_.set_guard(guard);
  fleet_.set_models_of([models = &models_](std::string_view base) { return models->NamesOf(base); });
  auto empty = std::make_shared<FleetView>();
  empty->set_models(models_.Publish(*empty, {}, nullptr, nullptr, 0));
  if (is_staged_) {
    empty->set_stages(std::make_shared<const StageViews>(StageViews{
        .prefill = std::make_shared<const FleetView>(empty->StageOf(Stage::kPrefill)),
        .decode = std::make_shared<const FleetView>(empty->StageOf(Stage::kDecode))}));
  }
  snapshot_.Publish(std::move(empty));
}

Status WorkerRegistry::CheckAll(std::vector<WorkerDeclaration>* workers) const {
  for (WorkerDeclaration& worker : *workers) {
    const std::string& url = worker.url.url;
    if (requires_addresses_) ROUTER_RETURN_IF_ERROR(RequireAddress(worker.url));
    ROUTER_RETURN_IF_ERROR(CheckWeight(url, worker.weight));
    worker.weight = static_cast<double>(worker.weight_thousandths()) / kWeightOne;
    ROUTER_RETURN_IF_ERROR(CheckStage(url, worker.role.stage, is_staged_));
    ROUTER_RETURN_IF_ERROR(CheckKvGroup(url, worker.role));
  }
  return absl::OkStatus();
}

Status WorkerRegistry::AddAll(std::vector<WorkerDeclaration> workers, std::string_view source) {
  if (workers.empty()) return absl::OkStatus();
  MutexLock lock(mutex_);
  ROUTER_RETURN_IF_ERROR(CheckAll(&workers));
  ROUTER_RETURN_IF_ERROR(fleet_.Add(source, workers, SteadyClock().NowNanos()));
  Publish();
  return absl::OkStatus();
}

Status WorkerRegistry::Add(std::string_view url, double weight, bool receives_api_key) {
  StatusOr<WorkerDeclaration> worker = DeclareWorker(url, receives_api_key);
  if (!worker.ok()) return worker.status();
  worker->weight = weight;
  return AddAll({*std::move(worker)});
}

Status WorkerRegistry::MayAdd(std::vector<WorkerDeclaration> workers) {
  MutexLock lock(mutex_);
  ROUTER_RETURN_IF_ERROR(CheckAll(&workers));
  return fleet_.MayAdd(workers);
}

Status WorkerRegistry::RequireAddresses() {
  MutexLock lock(mutex_);
  for (const Row& row : fleet_.rows()) ROUTER_RETURN_IF_ERROR(RequireAddress(row.spec.url));
  requires_addresses_ = true;
  return absl::OkStatus();
}

Status WorkerRegistry::Remove(std::string_view url) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<size_t>> found = Find(url, [](const Row&) { return true; });
  if (!found.ok()) return found.status();
  ROUTER_RETURN_IF_ERROR(fleet_.Remove(*found));
  Publish();
  return absl::OkStatus();
}

Status WorkerRegistry::SetDraining(std::string_view url, bool draining) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<size_t>> found = Find(url, [draining](const Row& row) {
    if (draining) return row.state != DeclaredFleet::State::kLeft;
    return row.state != DeclaredFleet::State::kPending && !row.owners.empty();
  });
  if (!found.ok()) return found.status();
  if (fleet_.SetDraining(*found, draining, SteadyClock().NowNanos())) {
    Publish();
    if (!draining) CallManagers();
  }
  return absl::OkStatus();
}

Status WorkerRegistry::SetHealthy(std::string_view url, bool healthy) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<size_t>> found = Find(url, &Serves);
  if (!found.ok()) return found.status();
  const WorkerUrl host = fleet_.rows()[found->front()].spec.url;
  if (fleet_.SetHealthy(host, healthy, SteadyClock().NowNanos())) Publish();
  return absl::OkStatus();
}

StatusOr<std::vector<std::shared_ptr<Worker>>> WorkerRegistry::Named(std::string_view url) {
  MutexLock lock(mutex_);
  const StatusOr<std::vector<size_t>> found = Find(url, &Serves);
  if (!found.ok()) return found.status();
  std::vector<std::shared_ptr<Worker>> workers;
  for (const size_t position : *found) workers.push_back(fleet_.rows()[position].member.worker);
  return workers;
}

StatusOr<std::vector<size_t>> WorkerRegistry::Find(
    std::string_view url, const std::function<bool(const Row&)>& wanted) const {
  const StatusOr<WorkerUrl> parsed = ParseWorkerUrl(url);
  const std::span<const Row> rows = fleet_.rows();
  std::vector<size_t> found;
  for (size_t position = 0; parsed.ok() && position < rows.size(); ++position) {
    const WorkerUrl& known = rows[position].spec.url;
    const bool rank_matches = !parsed->rank || known.rank == parsed->rank;
    if (rank_matches && SameHost(known, *parsed) && wanted(rows[position])) found.push_back(position);
  }
  if (!found.empty()) return found;

  std::vector<std::string_view> known;
  for (const Row& row : rows) {
    if (wanted(row)) known.push_back(row.spec.url.url);
  }
  const std::string_view nearest = NearestName(url, known);
  return absl::NotFoundError(Concat(
      "no worker ", Quoted(url), " in the fleet of ", known.size(),
      nearest.empty() ? std::string() : Concat("; did you mean ", nearest, "?")));
}

StatusOr<Difference> WorkerRegistry::Reconcile(
    std::string_view source, std::vector<WorkerDeclaration> list, bool complete,
    std::span<const std::string> deleted, int64_t now_ns) {
  std::vector<WorkerUrl> ended;
  for (const std::string& text : deleted) {
    StatusOr<WorkerUrl> url = ParseWorkerUrl(text);
    if (!url.ok()) return url.status();
    ended.push_back(*std::move(url));
  }
  MutexLock lock(mutex_);
  ROUTER_RETURN_IF_ERROR(CheckAll(&list));
  const uint64_t before = fleet_.version();
  StatusOr<Difference> difference = fleet_.Reconcile(source, std::move(list), complete, ended, now_ns);
  PublishIfChanged(before);
  return difference;
}

StatusOr<Difference> WorkerRegistry::WouldReconcile(
    std::string_view source, std::vector<WorkerDeclaration> list, bool complete, int64_t now_ns) const {
  MutexLock lock(mutex_);
  ROUTER_RETURN_IF_ERROR(CheckAll(&list));
  return fleet_.WouldReconcile(source, std::move(list), complete, now_ns);
}

StatusOr<Difference> WorkerRegistry::ReconcileAgain(std::string_view source, int64_t now_ns) {
  MutexLock lock(mutex_);
  const uint64_t before = fleet_.version();
  StatusOr<Difference> difference = fleet_.ReconcileAgain(source, now_ns);
  PublishIfChanged(before);
  return difference;
}

StatusOr<std::vector<std::string>> WorkerRegistry::Adopt(std::string_view source, int64_t now_ns) {
  MutexLock lock(mutex_);
  const uint64_t before = fleet_.version();
  StatusOr<std::vector<std::string>> left = fleet_.Adopt(source, now_ns);
  PublishIfChanged(before);
  return left;
}

std::string WorkerRegistry::Awaited() const {
  std::string names;
  for (const SourceReport& report : Sources()) {
    if (!report.listed) names += (names.empty() ? "" : ", ") + report.name;
  }
  return names;
}

void WorkerRegistry::SetGuard(const GuardOptions& guard) {
  MutexLock lock(mutex_);
  fleet_.set_guard(guard);
}

Status WorkerRegistry::ReportError(std::string_view source, std::string_view kind, std::string_view message) {
  MutexLock lock(mutex_);
  return fleet_.ReportError(source, kind, message);
}

uint64_t WorkerRegistry::Manage(std::function<void()> changed) {
  MutexLock lock(mutex_);
  fleet_.SetManaged(true, SteadyClock().NowNanos());
  managers_.emplace(next_manager_, std::move(changed));
  return next_manager_++;
}

void WorkerRegistry::EndManaging(uint64_t id) {
  MutexLock lock(mutex_);
  managers_.erase(id);
  if (!managers_.empty()) return;
  const uint64_t before = fleet_.version();
  fleet_.SetManaged(false, SteadyClock().NowNanos());
  PublishIfChanged(before);
}

std::vector<std::string> WorkerRegistry::Admit(std::span<const uint64_t> rows, int64_t now_ns) {
  MutexLock lock(mutex_);
  const uint64_t before = fleet_.version();
  std::vector<std::string> admitted = fleet_.Admit(rows, now_ns);
  PublishIfChanged(before);
  return admitted;
}

void WorkerRegistry::EndHolds(int64_t now_ns) {
  MutexLock lock(mutex_);
  const uint64_t before = fleet_.version();
  fleet_.EndHolds(now_ns);
  PublishIfChanged(before);
}

void WorkerRegistry::Drained(std::span<const WorkerId> workers, int64_t now_ns) {
  MutexLock lock(mutex_);
  const uint64_t before = fleet_.version();
  fleet_.Drained(workers, now_ns);
  PublishIfChanged(before);
}

bool WorkerRegistry::SetModels(
    std::string_view base, std::span<const ModelCard> cards, int64_t now_ns, size_t* refused) {
  MutexLock lock(mutex_);
  models_.Say(base, cards, now_ns, refused);
  return models_.changed();
}

bool WorkerRegistry::ForgetModels(std::string_view base, bool if_awaited) {
  MutexLock lock(mutex_);
  models_.Forget(base, if_awaited);
  return models_.changed();
}

bool WorkerRegistry::AwaitModels(std::string_view base, int64_t now_ns) {
  MutexLock lock(mutex_);
  models_.Await(base, now_ns);
  return models_.changed();
}

void WorkerRegistry::PublishModels() {
  MutexLock lock(mutex_);
  if (models_.changed()) Publish();
}

void WorkerRegistry::ExpectModels(std::span<const std::string> names, int64_t memory_ns, bool spread) {
  MutexLock lock(mutex_);
  models_.Expect(names, memory_ns, spread);
  Publish();
}

void WorkerRegistry::SetPairRule(const PairRule& rule) {
  MutexLock lock(mutex_);
  pair_rule_ = rule;
  Publish();
}

void WorkerRegistry::Refresh() {
  MutexLock lock(mutex_);
  Publish();
}

uint64_t WorkerRegistry::rows_version() const {
  MutexLock lock(mutex_);
  return fleet_.version();
}

std::vector<Row> WorkerRegistry::Rows(uint64_t* version) const {
  MutexLock lock(mutex_);
  if (version != nullptr) *version = fleet_.version();
  return {fleet_.rows().begin(), fleet_.rows().end()};
}

std::vector<SourceReport> WorkerRegistry::Sources() const {
  MutexLock lock(mutex_);
  return fleet_.Report();
}

void WorkerRegistry::PublishIfChanged(uint64_t before) {
  if (fleet_.version() == before) return;
  Publish();
  CallManagers();
}

void WorkerRegistry::CallManagers() {
  for (const auto& [id, changed] : managers_) changed();
}

std::shared_ptr<const FleetView> WorkerRegistry::PlannedStage(
    const FleetView& next, Stage stage, const StageViews* last) const {
  FleetView view = next.StageOf(stage);
  view.set_plan(last->of(stage)->shared_plan());
  view.set_plan(planner_ ? planner_(view) : nullptr);
  return std::make_shared<const FleetView>(std::move(view));
}

EngineKind WorkerRegistry::EngineOfFleet() const {
  if (!pair_rule_.one_engine) return EngineKind::kUnknown;
  EngineKind first = EngineKind::kUnknown;
  for (const Row& row : fleet_.rows()) {
    if (!row.serves()) continue;
    const EngineKind engine = row.member.worker->engine.load(std::memory_order_relaxed);
    if (engine == EngineKind::kUnknown) continue;
    if (engine == engine_) return engine_;
    if (first == EngineKind::kUnknown) first = engine;
  }
  return first;
}

PairState WorkerRegistry::PairStateOf(const Worker& worker) const {
  if (pair_rule_.registered && !worker.peer) return PairState::kNotRegistered;
  const bool needs_id = pair_rule_.engine_ids && worker.stage == Stage::kPrefill;
  if (needs_id && worker.engine_id.Load() == nullptr) return PairState::kNoEngineId;
  if (!pair_rule_.one_engine) return PairState::kReady;
  const EngineKind engine = worker.engine.load(std::memory_order_relaxed);
  if (engine == EngineKind::kUnknown) return PairState::kEngineUnknown;
  return engine == engine_ ? PairState::kReady : PairState::kOtherEngine;
}

void WorkerRegistry::Publish() {
  engine_ = EngineOfFleet();
  std::vector<FleetView::Member> members;
  std::vector<std::pair<WorkerId, uint32_t>> published;
  members.reserve(fleet_.rows().size());
  published.reserve(fleet_.rows().size());
  std::vector<ModelCatalog::Listed> listed;
  listed.reserve(fleet_.rows().size());
  for (const Row& row : fleet_.rows()) {
    if (!row.serves()) continue;
    FleetView::Member& member = members.emplace_back(row.member);
    member.held = row.held;
    member.open = member.worker->breaker.state() == BreakerState::kOpen;
    member.in_doubt = member.worker->in_doubt.load(std::memory_order_relaxed);
    member.overloaded = member.worker->overloaded.load(std::memory_order_relaxed);
    member.pair = PairStateOf(*member.worker);
    published.emplace_back(member.worker->id, member.worker->weight);
    listed.push_back({.base = member.worker->url.base, .declared = row.spec.models});
  }
  if (is_staged_) MarkWithoutPartner(members);
  if (published != published_) {
    published_ = std::move(published);
    ++membership_version_;
  }
  FleetView next(std::move(members), membership_version_);
  const std::shared_ptr<const FleetView> last = snapshot_.Load();
  if (is_staged_) {
    next.set_stages(std::make_shared<const StageViews>(StageViews{
        .prefill = PlannedStage(next, Stage::kPrefill, last->stages()),
        .decode = PlannedStage(next, Stage::kDecode, last->stages()),
        .engine = engine_}));
  } else {
    next.set_plan(last->shared_plan());
    next.set_plan(planner_ ? planner_(next) : nullptr);
  }
  // Pools of models have no stages, and so no plan where each policy plans for a stage.
  const Planner of_pools = is_staged_ ? nullptr : planner_;
  next.set_models(models_.Publish(next, listed, last->models().get(), of_pools, SteadyClock().NowNanos()));
  snapshot_.Publish(std::make_shared<const FleetView>(std::move(next)));
}

}  // namespace vllm_router
