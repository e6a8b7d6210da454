#include "proxy/picker/picked_request.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/query.h"
#include "proxy/api/error_response.h"
#include "proxy/api/request_id.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/model_member.h"
#include "routing/router.h"
#include "routing/truncated_json.h"

namespace vllm_router {
namespace {

// What llm-d's gateways read of a request that was not let in.
constexpr std::string_view kDroppedName = "x-llm-d-request-dropped-reason";
constexpr std::string_view kRankName = "x-data-parallel-rank";

std::string_view DroppedReason(PickResult result, HttpError error) {
  if (error == HttpError::kShuttingDown) return "rejected-shutting-down";
  if (error == HttpError::kQueueTimeout) return "rejected-ttl-expired";
  if (result == PickResult::kShed) return "rejected-saturated";
  if (result == PickResult::kNoWorkers || result == PickResult::kSubsetEmpty) return "rejected-no-endpoints";
  return {};
}

// Others of the queue may be waiting for workers of another model.
Permit::Worth MayHaveCapacity(IoThread& thread, const void* context) {
  const auto* const workers = static_cast<const EligibleWorkers*>(context);
  if (workers->AreFull(thread)) return Permit::Worth::kNobody;
  return workers->are_restricted() ? Permit::Worth::kThis : Permit::Worth::kFirst;
}

}  // namespace

std::string_view PickResultName(PickResult result) {
  switch (result) {
    case PickResult::kPicked:
      return "picked";
    case PickResult::kSubsetEmpty:
      return "subset_empty";
    case PickResult::kShed:
      return "shed";
    case PickResult::kNoWorkers:
      return "no_workers";
    case PickResult::kInvalid:
      return "invalid";
    case PickResult::kLeft:
      return "left";
    case PickResult::kObserved:
      break;
  }
  return "observed";
}

PickedRequest::PickedRequest(
    IoThread& thread, const ExtProcOptions& options, PickerCounts& counts, Peer& peer, int32_t stream,
    std::string client)
    : thread_(thread),
      counts_(counts),
      peer_(&peer),
      id_(stream),
      settings_(thread.settings.Get()),
      stream_(options),
      memory_(thread.limits.body_memory, thread.loop),
      permit_(
          thread.limits.concurrency, thread,
          thread.router->options().max_worker_requests != 0 ? &MayHaveCapacity : nullptr, &workers_),
      server_errors_(thread, settings_->breaker) {
  info_.client = std::move(client);
  counts_.streams.fetch_add(1, std::memory_order_relaxed);
}

PickedRequest::~PickedRequest() { counts_.streams.fetch_sub(1, std::memory_order_relaxed); }

// ---- what the data plane sends

void PickedRequest::Take(std::string_view message) {
  if (peer_ == nullptr) return;
  ProcessingRequest request;
  const Status read = ReadProcessingRequest(message, &request);
  if (!read.ok()) return Fail(read);
  const StatusOr<ExtProcStream::Progress> progress = stream_.Take(request);
  if (!progress.ok()) return Fail(progress.status());
  if (request.part == ProcessingPart::kResponseBody && !ticket_.finished()) ticket_.FirstToken();
  if (*progress == ExtProcStream::Progress::kRequest) TakeRequest();
  if (*progress == ExtProcStream::Progress::kResponse) TakeResponse();
  SendMessages();
}

void PickedRequest::End(Ending ending) {
  if (peer_ == nullptr) return;
  ending_ = ending;
  if (ending == Ending::kShutdown && begun_ && endpoint_.empty() && !rejected_) {
    Reject(PickResult::kShed, HttpError::kShuttingDown);
    SendMessages();
  }
  peer_ = nullptr;
  if (waiting_) {  // its coroutine sees it
    endpoints_.Cancel();
    return permit_.Leave();
  }
  Finish();
}

void PickedRequest::Fail(const Status& status) {
  counts_.protocol_errors.fetch_add(1, std::memory_order_relaxed);
  const bool too_much = absl::IsResourceExhausted(status);
  peer_->Finish(
      id_, too_much ? GrpcCode::kResourceExhausted : GrpcCode::kInvalidArgument,
      std::string(status.message()));
  End(Ending::kBroken);
}

void PickedRequest::Count(PickResult result) {
  counts_.Add(result);
  counted_ = true;
}

void PickedRequest::SendMessages() {
  for (const std::string& message : stream_.TakeMessages()) {
    if (peer_ != nullptr) peer_->Send(id_, message);
  }
}

// ---- before the choice

void PickedRequest::TakeRequest() {
  if (rejected_ || picking_) return;
  if (!begun_ && !Begin()) return;
  if (stream_.observes()) {
    if (stream_.must_pick()) {
      picking_ = true;
      Count(PickResult::kObserved);
    }
    return;
  }
  if (!HoldBody() || !HasEnough()) return;
  picking_ = true;
  Spawn(Pick(shared_from_this()));
}

// False: it is rejected.
bool PickedRequest::Begin() {
  begun_ = true;
  info_.wall_us = UnixMicros();
  info_.head_ns = thread_.clock.NowNanos();
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
  info_.request_id =
      ChooseRequestId(fields_, settings_->request_id_headers, RouteOf(info_.route).id_prefix, thread_.ids).id;
  thread_.telemetry.in_flight.fetch_add(1, std::memory_order_relaxed);
  if (stream_.observes()) return true;
  const std::optional<uint64_t> length =
      ParseDecimal(FindHeader(fields_, "content-length").value_or(std::string_view()));
  if (length) info_.bytes_in = *length;
  if (length && settings_->max_payload_size != 0 && *length > settings_->max_payload_size) {
    Reject(PickResult::kInvalid, HttpError::kBodyTooLarge);
    return false;
  }
  if (IsShed()) return false;
  needs_body_ = thread_.router->NeedsBody(fields_) || ReadsModel();
  return true;
}

bool PickedRequest::IsShed() {
  ServerLimits& limits = thread_.limits;
  if (limits.concurrency.full()) {
    Reject(PickResult::kShed, HttpError::kQueueFull);
    return true;
  }
  const int64_t too_early_ns = limits.rate.limits() ? limits.rate.Take(info_.head_ns) : 0;
  if (too_early_ns == 0) return false;
  Reject(PickResult::kShed, HttpError::kRateLimited, {}, too_early_ns);
  return true;
}

bool PickedRequest::ReadsModel() const {
  const bool matters = thread_.fleet.Get()->models()->decides() || !settings_->model_aliases.empty();
  return matters && (RouteOf(info_.route).inference || info_.method == "POST");
}

// A body is read as far as one that comes to the router itself.
bool PickedRequest::HasEnough() const {
  if (stream_.must_pick()) return true;
  return stream_.may_pick() && (!needs_body_ || stream_.body().size() >= kRoutedBodyBytes);
}

// False: it is rejected. A body cannot wait for memory, since those behind it come on the same connection.
bool PickedRequest::HoldBody() {
  const size_t bytes = stream_.body().size();
  if (settings_->max_payload_size != 0 && bytes > settings_->max_payload_size) {
    Reject(PickResult::kInvalid, HttpError::kBodyTooLarge);
    return false;
  }
  if (bytes <= kSmallBodyBytes || bytes <= memory_.held() || memory_.GrowNow(bytes)) return true;
  Reject(PickResult::kShed, HttpError::kNoBodyMemory);
  return false;
}

void PickedRequest::Reject(PickResult result, HttpError error, std::string message, int64_t retry_after_ns) {
  rejected_ = true;
  Count(result);
  const ErrorRow& row = ErrorOf(error);
  if (error == HttpError::kBodyTooLarge) {
    message = Concat(
        "The request body is longer than the ", settings_->max_payload_size,
        " bytes that this router accepts (--max-payload-size).");
  }
  const std::string body = ErrorBodyFor(
      info_.route, {.status = row.status,
                    .message = message.empty() ? row.message : std::string_view(message),
                    .type = row.type,
                    .code = row.code,
                    .param = row.param,
                    .request_id = info_.request_id});
  const std::string seconds =
      Concat(std::max<int64_t>(1, (retry_after_ns + kNanosPerSecond - 1) / kNanosPerSecond));
  std::vector<HeaderField> headers = {{.name = "content-type", .value = "application/json"}};
  if (row.retry_after || retry_after_ns != 0) headers.push_back({.name = "retry-after", .value = seconds});
  const std::string_view dropped = DroppedReason(result, error);
  if (!dropped.empty()) headers.push_back({.name = kDroppedName, .value = dropped});
  const std::string details = Concat("vllm_router_", row.code);
  stream_.Reject({.status = row.status, .headers = headers, .body = body, .details = details});
  memory_.Return();
  info_.status = row.status;
  info_.error = row.code;
  if (result == PickResult::kShed) info_.refusal = row.code;
}

// ---- the choice

// `self` keeps it while it waits.
Task<void> PickedRequest::Pick(std::shared_ptr<PickedRequest> self) {
  waiting_ = true;
  fleet_ = thread_.fleet.Get();
  if (!WorkerEndpoints::AreLiteral(*fleet_)) {
    co_await endpoints_.Resolve(fleet_, thread_.resolver, thread_.loop);
  }
  if (peer_ != nullptr && FindModel()) {
    MakeKey();
    std::optional<WorkerChoice::Selected> selected;
    bool held = permit_.TryAcquire(1);
    if (!held) held = co_await AwaitPermit(/*again=*/false);
    while (held && peer_ != nullptr) {
      selected = Select();
      if (selected || rejected_) break;
      held = co_await AwaitPermit(/*again=*/true);
    }
    if (selected && peer_ != nullptr) Choose(*std::move(selected));
  }
  waiting_ = false;
  fleet_.reset();
  memory_.Return();
  if (rejected_) permit_.Release();
  if (peer_ == nullptr) {
    Finish();
  } else {
    SendMessages();
  }
  self.reset();
}

// False: it is rejected.
bool PickedRequest::FindModel() {
  info_.body_ns = thread_.clock.NowNanos();
  const ModelAliases& aliases = settings_->model_aliases;
  const ModelPools& pools = *fleet_->models();
  if (!pools.decides() && aliases.empty()) {
    if (RouteOf(info_.route).inference) thread_.telemetry.DemandedAny();
    return true;
  }
  const bool is_api = path_.starts_with("/v1/") || path_.starts_with("/v2/");
  const bool is_known_path = RouteOf(info_.route).inference;
  std::string name;
  if (stream_.body().empty()) {
    const std::optional<QueryParameter> found = FindQueryParameter(query_, "model");
    if (found) name = found->value;
    if (name.empty()) return true;
    return FindWorkersOf(std::move(name), is_api);
  }
  if (!ReadsModel()) return true;
  const std::string_view type = FindHeader(fields_, "content-type").value_or(std::string_view());
  ModelMember found = IsForm(type) ? FindModelInForm(type, stream_.body()) : FindModelMember(stream_.body());
  if (found.kind == ModelMember::Kind::kMissing && !found.whole) return true;  // malformed
  name = std::move(found.name);
  if (found.kind == ModelMember::Kind::kMissing && is_known_path) {
    const std::vector<std::string>& bases = pools.names->bases;
    name = bases.size() == 1 ? bases.front() : settings_->default_model;
    if (name.empty() && bases.size() > 1 && is_api && pools.decides()) {
      std::string text =
          ModelRequiredMessage(pools, thread_.limits.models_are_private.load(std::memory_order_relaxed));
      Reject(PickResult::kInvalid, HttpError::kModelRequired, std::move(text));
      return false;
    }
  }
  return name.empty() || FindWorkersOf(std::move(name), is_known_path);
}

// `must_exist`: else a name that is not known is left to the worker. Workers of an alias are those of its model; the body
// goes on as it came, so that they must know the alias.
bool PickedRequest::FindWorkersOf(std::string name, bool must_exist) {
  if (const ModelAliases::Alias* const alias = settings_->model_aliases.Find(name)) {
    uint64_t hash = thread_.ids.Below(alias->total);
    const RequestView view{.headers = fields_, .path = path_, .body = stream_.body()};
    if (alias->targets.size() > 1) hash = thread_.router->SessionHash(view).value_or(hash);
    name = ModelAliases::TargetOf(*alias, hash);
  }
  info_.model.assign(name, 0, kMaxLoggedTextBytes);
  const ModelPools& pools = *fleet_->models();
  if (!must_exist && pools.Find(name) == nullptr) return true;
  const RequestedModel::Result result =
      RequestedModel::FindPool(fleet_, *settings_, name, thread_.clock.NowNanos());
  RequestedModel::Count(pools, name, result);
  switch (result) {
    case RequestedModel::Result::kAll:
    case RequestedModel::Result::kForwarded:
      return true;
    case RequestedModel::Result::kPool:
    case RequestedModel::Result::kAnything:
      workers_.model = std::make_unique<RequestedModel>(std::move(name));
      return true;
    case RequestedModel::Result::kUnknown:
      Reject(
          PickResult::kInvalid, HttpError::kModelNotFound,
          UnknownModelMessage(
              name, pools, settings_->model_aliases,
              thread_.limits.models_are_private.load(std::memory_order_relaxed)));
      return false;
    case RequestedModel::Result::kAsleep:
      break;
  }
  Reject(
      PickResult::kNoWorkers, HttpError::kNoWorkersForModel, SleepingModelMessage(name),
      10 * kNanosPerSecond);
  return false;
}

void PickedRequest::MakeKey() {
  RequestView view{.headers = fields_, .path = path_};
  view.body_bytes = std::max<uint64_t>(info_.bytes_in, stream_.body().size());
  std::string beginning;
  std::optional<TruncatedJson> truncated;
  if (stream_.body().size() > kRoutedBodyBytes) {
    beginning = stream_.body().substr(0, kRoutedBodyBytes);
    truncated.emplace(beginning);
    view.body = truncated->view();
    view.body_is_padded = true;
  } else if (needs_body_ && !stream_.body().empty()) {
    view.body = stream_.body();
  }
  thread_.router->MakeKey(view, &key_);
  if (!key_.model.empty()) info_.model = key_.model;
}

// False: there is no worker, and the request is rejected or over.
Task<bool> PickedRequest::AwaitPermit(bool again) {
  Permit::End end = Permit::End::kHeld;
  if (again) {
    thread_.telemetry.steps_back.fetch_add(1, std::memory_order_relaxed);
    end = co_await permit_.Requeue(settings_->queue_timeout_ms);
  } else {
    end = co_await permit_.Acquire(1, settings_->queue_timeout_ms);
  }
  info_.queue_ns = permit_.waited_ns();
  if (end == Permit::End::kHeld) co_return true;
  if (peer_ == nullptr) co_return false;
  Reject(PickResult::kShed, end == Permit::End::kTimeout ? HttpError::kQueueTimeout : HttpError::kQueueFull);
  co_return false;
}

bool PickedRequest::Passes(const Worker& worker) const {
  const std::string host = endpoints_.HostOf(worker);
  if (host.empty()) return false;
  return !stream_.subset() || stream_.subset()->Contains(host, worker.url.port);
}

bool PickedRequest::FindsSubset() const {
  const std::shared_ptr<const FleetView> fleet = workers_.Now(thread_);
  return std::ranges::any_of(fleet->members(), [this](const FleetView::Member& member) {
    return member.in_rotation() && Passes(*member.worker);
  });
}

// Empty: rejected, or all that may serve it are full.
std::optional<WorkerChoice::Selected> PickedRequest::Select() {
  if (stream_.subset() && !FindsSubset()) {
    Reject(
        PickResult::kSubsetEmpty, HttpError::kNoWorkers,
        Concat(
            "None of the ", stream_.subset()->size(),
            " endpoints that the gateway lists for this request is a worker that serves it."));
    return std::nullopt;
  }
  const FleetView& whole = *thread_.fleet.Get();
  const bool may_be_any = !stream_.subset() && !whole.any_prefix() && WorkerEndpoints::AreLiteral(whole);
  SubsetChoice found = may_be_any ? SelectAny() : SelectPassing();
  info_.chosen_ns = thread_.clock.NowNanos();
  if (!found.selected && !found.all_full) {
    Reject(PickResult::kNoWorkers, HttpError::kNoWorkers, std::move(found.message));
  }
  return std::move(found.selected);
}

SubsetChoice PickedRequest::SelectAny() {
  WorkerChoice choice(thread_, *settings_);
  choice.Begin({.key = &key_, .path = path_, .stage = workers_.first_stage(), .model = workers_.model.get()});
  SubsetChoice found{.selected = choice.Select({})};
  found.all_full = choice.all_full();
  if (!found.selected) found.message = choice.message();
  return found;
}

SubsetChoice PickedRequest::SelectPassing() {
  std::shared_ptr<const FleetView> fleet = workers_.Now(thread_);
  if (!fleet->all_admitting()) {
    AdmitHalfOpen(thread_, *fleet);
    fleet = workers_.Now(thread_);
  }
  return ChooseAmong(
      thread_, key_, settings_->breaker, *fleet, [this](const Worker& worker) { return Passes(worker); });
}

void PickedRequest::Choose(WorkerChoice::Selected selected) {
  ticket_ = std::move(selected.ticket);
  pass_ = std::move(selected.pass);
  info_.worker = ticket_.shared_worker();
  info_.decision = ticket_.decision();
  info_.prefill_tokens = ticket_.prefill_tokens();
  info_.attempts = 1;
  thread_.telemetry.Decided(info_.worker, *info_.decision);
  endpoint_ = endpoints_.Of(*info_.worker);
  std::string rank;
  std::vector<HeaderField> headers;
  if (info_.worker->url.rank) {
    rank = Concat(*info_.worker->url.rank);
    headers.push_back({.name = kRankName, .value = rank});
  }
  info_.sent_ns = thread_.clock.NowNanos();
  stream_.Choose({.endpoints = {&endpoint_, 1}, .headers = headers});
  Count(PickResult::kPicked);
}

// ---- the response

void PickedRequest::TakeResponse() {
  if (stream_.response_status() && info_.status == 0) {
    info_.status = *stream_.response_status();
    info_.responded_ns = thread_.clock.NowNanos();
    if (!ticket_.finished()) {
      FollowServed();
      Settle(info_.status);
    }
    key_ = {};
  }
  if (stream_.response_ended() && !ticket_.finished()) FinishTicket(Outcome::End::kFinished);
}

// What the worker's circuit breaker learns. The data plane may have attempted others, so a 5xx counts as the last word.
void PickedRequest::Settle(int status) {
  if (!pass_) return;
  const std::shared_ptr<Worker>& worker = info_.worker;
  const BreakerResult result = VerdictOf(status, /*has_retry_after=*/false);
  if (result == BreakerResult::kServerError) {
    server_errors_.Hold(worker, *std::move(pass_));
    pass_.reset();
    server_errors_.Ended();
    return;
  }
  thread_.telemetry.RecordResult(worker, result);
  const BreakerOptions& options = settings_->breaker;
  const int64_t now = thread_.clock.NowNanos();
  if (result == BreakerResult::kSuccess) worker->responses.CountSuccess(options.window_ms * kNanosPerMs, now);
  if (const std::optional<BreakerChange> change = pass_->Settle(options, result, now))
    OnBreakerStateChange(thread_, worker, *change, {});
}

// The load moves with the request, if the data plane sent it elsewhere.
void PickedRequest::FollowServed() {
  const std::string_view served = stream_.served();
  if (served.empty() || served == endpoint_) return;
  counts_.served_elsewhere.fetch_add(1, std::memory_order_relaxed);
  pass_.reset();
  const std::shared_ptr<const FleetView> fleet = workers_.Now(thread_);
  for (uint32_t position = 0; position < fleet->members().size(); ++position) {
    if (endpoints_.Of(fleet->worker(position)) != served) continue;
    StatusOr<Ticket> other = thread_.router->SelectPinned(key_, *fleet, position, /*bounded=*/false);
    if (!other.ok() || !ticket_.MoveTo(*std::move(other))) return;
    info_.worker = ticket_.shared_worker();
    info_.decision = ticket_.decision();
    return;
  }
}

void PickedRequest::FinishTicket(Outcome::End end) {
  ticket_.Finish({.end = end, .status = stream_.response_status().value_or(0)});
  permit_.Release();
}

// ---- the end

void PickedRequest::Finish() {
  if (std::exchange(finished_, true)) return;
  if (!ticket_.finished()) {
    // A data plane that does not send the end of the response closes the stream instead.
    const int status = stream_.response_status().value_or(0);
    const bool is_done = ending_ != Ending::kBroken && status != 0;
    if (!is_done) info_.end = ExchangeEnd::kClientGone;
    FinishTicket(
        is_done         ? Outcome::End::kFinished
        : status >= 500 ? Outcome::End::kWorkerFailed
                        : Outcome::End::kClientGone);
  }
  pass_.reset();
  permit_.Release();
  memory_.Return();
  if (!begun_) return;
  if (!counted_) Count(PickResult::kLeft);
  info_.end_ns = thread_.clock.NowNanos();
  thread_.telemetry.Record(info_);
  thread_.FlushLogSoon();
  thread_.telemetry.in_flight.fetch_sub(1, std::memory_order_release);
}

}  // namespace vllm_router
