#include "proxy/picker/worker_search.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/query.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/exchange/worker_gate.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/model_member.h"
#include "routing/router.h"
#include "routing/truncated_json.h"
#include "worker/fleet_view.h"

namespace vllm_router {

WorkerSearch::WorkerSearch(
    IoThread& thread, const Settings& settings, const ExtProcStream& stream, RequestInfo& info)
    : thread_(thread), settings_(settings), stream_(stream), info_(info) {}

void WorkerSearch::ReadHead() {
  std::string_view target;
  for (const HeaderField& field : stream_.head()) {
    if (field.name == ":path") target = field.value;
    if (field.name == ":method") info_.method = field.value;
    if (!field.name.starts_with(':')) fields_.push_back(field);
  }
  path_ = target.substr(0, target.find('?'));
  if (path_.size() < target.size()) query_ = target.substr(path_.size() + 1);
  info_.path.assign(path_, 0, kMaxLoggedTextBytes);
  info_.route = FindRoute(path_);
}

bool WorkerSearch::needs_body() const { return thread_.router->NeedsBody(fields_) || ReadsModel(); }

bool WorkerSearch::ReadsModel() const {
  const bool matters = thread_.fleet.Get()->models()->decides() || !settings_.model_aliases.empty();
  return matters && (RouteOf(info_.route).inference || info_.method == "POST");
}

Task<void> WorkerSearch::ResolveNames() {
  std::shared_ptr<const FleetView> fleet = thread_.fleet.Get();
  if (WorkerEndpoints::AreLiteral(*fleet)) co_return;
  co_await endpoints_.Resolve(std::move(fleet), thread_.resolver, thread_.loop);
}

// ---- the model

std::optional<PickRejection> WorkerSearch::FindModel() {
  const std::shared_ptr<const FleetView> fleet = thread_.fleet.Get();
  const ModelAliases& aliases = settings_.model_aliases;
  const ModelPools& pools = *fleet->models();
  if (!pools.decides() && aliases.empty()) {
    if (RouteOf(info_.route).inference) thread_.telemetry.DemandedAny();
    return std::nullopt;
  }
  const bool is_api = path_.starts_with("/v1/") || path_.starts_with("/v2/");
  const bool is_known_path = RouteOf(info_.route).inference;
  std::string name;
  if (stream_.body().empty()) {
    const std::optional<QueryParameter> found = FindQueryParameter(query_, "model");
    if (found) name = found->value;
    if (name.empty()) return std::nullopt;
    return FindWorkersOf(fleet, std::move(name), is_api);
  }
  if (!ReadsModel()) return std::nullopt;
  const std::string_view type = FindHeader(fields_, "content-type").value_or(std::string_view());
  ModelMember found = IsForm(type) ? FindModelInForm(type, stream_.body()) : FindModelMember(stream_.body());
  if (found.kind == ModelMember::Kind::kMissing && !found.whole) return std::nullopt;  // malformed
  name = std::move(found.name);
  if (found.kind == ModelMember::Kind::kMissing && is_known_path) {
    const std::vector<std::string>& bases = pools.names->bases;
    name = bases.size() == 1 ? bases.front() : settings_.default_model;
    if (name.empty() && bases.size() > 1 && is_api && pools.decides()) {
      return PickRejection{
          .result = PickResult::kInvalid,
          .error = HttpError::kModelRequired,
          .message =
              ModelRequiredMessage(pools, thread_.limits.models_are_private.load(std::memory_order_relaxed))};
    }
  }
  if (name.empty()) return std::nullopt;
  return FindWorkersOf(fleet, std::move(name), is_known_path);
}

// `must_exist`: else a name that is not known is left to the worker. Workers of an alias are those of its model; the body
// goes on as it came, so that they must know the alias.
std::optional<PickRejection> WorkerSearch::FindWorkersOf(
    const std::shared_ptr<const FleetView>& fleet, std::string name, bool must_exist) {
  if (const ModelAliases::Alias* const alias = settings_.model_aliases.Find(name)) {
    uint64_t hash = thread_.ids.Below(alias->total);
    const RequestView view{.headers = fields_, .path = path_, .body = stream_.body()};
    if (alias->targets.size() > 1) hash = thread_.router->SessionHash(view).value_or(hash);
    name = ModelAliases::TargetOf(*alias, hash);
  }
  info_.model.assign(name, 0, kMaxLoggedTextBytes);
  const ModelPools& pools = *fleet->models();
  if (!must_exist && pools.Find(name) == nullptr) return std::nullopt;
  const RequestedModel::Result result =
      RequestedModel::FindPool(fleet, settings_, name, thread_.clock.NowNanos());
  RequestedModel::Count(pools, name, result);
  switch (result) {
    case RequestedModel::Result::kAll:
    case RequestedModel::Result::kForwarded:
      return std::nullopt;
    case RequestedModel::Result::kPool:
    case RequestedModel::Result::kAnything:
      workers_.model = std::make_unique<RequestedModel>(std::move(name));
      return std::nullopt;
    case RequestedModel::Result::kUnknown:
      return PickRejection{
          .result = PickResult::kInvalid,
          .error = HttpError::kModelNotFound,
          .message = UnknownModelMessage(
              name, pools, settings_.model_aliases,
              thread_.limits.models_are_private.load(std::memory_order_relaxed))};
    case RequestedModel::Result::kAsleep:
      break;
  }
  return PickRejection{
      .result = PickResult::kNoWorkers,
      .error = HttpError::kNoWorkersForModel,
      .message = SleepingModelMessage(name),
      .retry_after_ns = 10 * kNanosPerSecond};
}

// ---- the choice

void WorkerSearch::MakeKey() {
  RequestView view{.headers = fields_, .path = path_};
  view.body_bytes = std::max<uint64_t>(info_.bytes_in, stream_.body().size());
  std::string beginning;
  std::optional<TruncatedJson> truncated;
  if (stream_.body().size() > kRoutedBodyBytes) {
    beginning = stream_.body().substr(0, kRoutedBodyBytes);
    truncated.emplace(beginning);
    view.body = truncated->view();
    view.body_is_padded = true;
  } else if (needs_body() && !stream_.body().empty()) {
    view.body = stream_.body();
  }
  thread_.router->MakeKey(view, &key_);
  if (!key_.model.empty()) info_.model = key_.model;
}

bool WorkerSearch::Passes(const Worker& worker) const {
  const std::string host = endpoints_.HostOf(worker);
  if (host.empty()) return false;
  return !stream_.subset() || stream_.subset()->Contains(host, worker.url.port);
}

bool WorkerSearch::PassesAny() const {
  const std::shared_ptr<const FleetView> fleet = workers_.Now(thread_);
  return std::ranges::any_of(fleet->members(), [this](const FleetView::Member& member) {
    return member.in_rotation() && Passes(*member.worker);
  });
}

WorkerSearch::Found WorkerSearch::Select() {
  const FleetView& whole = *thread_.fleet.Get();
  const bool all_pass = !stream_.subset() && !whole.any_prefix() && WorkerEndpoints::AreLiteral(whole);
  if (stream_.subset() && !PassesAny()) {
    return {
        .rejection = PickRejection{
            .result = PickResult::kSubsetEmpty,
            .error = HttpError::kNoWorkers,
            .message = Concat(
                "None of the ", stream_.subset()->size(),
                " endpoints that the gateway lists for this request is a worker that serves it.")}};
  }
  if (!all_pass && !PassesAny()) {
    return {
        .rejection = PickRejection{
            .error = HttpError::kNoWorkers,
            .message = "No worker that serves this request has an address that the gateway could be told."}};
  }
  WorkerChoice::Request request{
      .key = &key_, .path = path_, .stage = workers_.first_stage(), .model = workers_.model.get()};
  const std::function<bool(const Worker&)> passes = [this](const Worker& worker) { return Passes(worker); };
  if (!all_pass) request.only = &passes;
  WorkerChoice choice(thread_, settings_);
  choice.Begin(request);
  Found found{.selected = choice.Select({})};
  info_.chosen_ns = thread_.clock.NowNanos();
  if (!found.selected && !choice.all_full())
    found.rejection = PickRejection{.error = HttpError::kNoWorkers, .message = choice.message()};
  return found;
}

// Ranks of one engine share an endpoint, which is named once.
std::vector<std::string> WorkerSearch::Alternatives(const Worker& chosen, size_t count) {
  std::vector<std::string> endpoints;
  if (count == 0) return endpoints;
  const std::shared_ptr<const FleetView> fleet = workers_.Now(thread_);
  const std::string first = endpoints_.Of(chosen);
  WorkerGate::Positions left_out;
  for (const uint32_t position : fleet->eligible()) {
    const Worker& worker = fleet->worker(position);
    const bool fits = worker.breaker.Admits() && !worker.backoff.active() && Passes(worker) &&
                      endpoints_.Of(worker) != first;
    if (!fits) left_out.push_back(position);
  }
  key_.dry_run = true;
  key_.explanation = nullptr;  // it is of the choice, which has it
  for (const Decision& decision : thread_.router->Rank(key_, fleet->Without(left_out), count)) {
    std::string endpoint = endpoints_.Of(fleet->worker(decision.position));
    if (std::ranges::find(endpoints, endpoint) == endpoints.end()) endpoints.push_back(std::move(endpoint));
  }
  key_.dry_run = false;
  return endpoints;
}

std::optional<Ticket> WorkerSearch::TicketAt(std::string_view endpoint) {
  const std::shared_ptr<const FleetView> fleet = workers_.Now(thread_);
  for (uint32_t position = 0; position < fleet->members().size(); ++position) {
    if (endpoints_.Of(fleet->worker(position)) != endpoint) continue;
    StatusOr<Ticket> ticket = thread_.router->SelectPinned(key_, *fleet, position, /*bounded=*/false);
    if (!ticket.ok()) return std::nullopt;
    return *std::move(ticket);
  }
  return std::nullopt;
}

}  // namespace vllm_router
