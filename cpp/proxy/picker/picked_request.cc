#include "proxy/picker/picked_request.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text.h"
#include "proxy/api/request_id.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr std::string_view kRankName = "x-data-parallel-rank";
constexpr std::string_view kEventStream = "text/event-stream";

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
      features_(thread.limits.features.Find<DelegatedRequests>()),
      stream_(options),
      search_(thread, *settings_, stream_, info_),
      delegated_{.thread = thread, .key = search_.key(), .info = info_},
      worker_(thread, *settings_, info_),
      memory_(thread.limits.body_memory, thread.loop),
      permit_(
          thread.limits.concurrency, thread,
          thread.router->options().max_worker_requests != 0 ? &MayHaveCapacity : nullptr,
          &search_.workers()) {
  info_.client = std::move(client);
  counts_.streams.fetch_add(1, std::memory_order_relaxed);
}

PickedRequest::~PickedRequest() { counts_.streams.fetch_sub(1, std::memory_order_relaxed); }

// ---- what the data plane sends

void PickedRequest::Take(std::string message) {
  if (peer_ == nullptr) return;
  ProcessingRequest request;
  const Status read = ReadProcessingRequest(message, &request);
  if (!read.ok()) return Fail(read);
  const StatusOr<ExtProcStream::Progress> progress = stream_.Take(request, &message);
  if (!progress.ok()) return Fail(progress.status());
  if (request.part == ProcessingPart::kResponseBody) worker_.TakeBody(request.body);
  if (*progress == ExtProcStream::Progress::kRequest) TakeRequest();
  if (*progress == ExtProcStream::Progress::kResponse) TakeResponse(request);
  SendMessages();
}

void PickedRequest::CatchUp() {
  if (worker_.is_chosen()) memory_.Return();
}

void PickedRequest::End(Ending ending) {
  if (peer_ == nullptr) return;
  ending_ = ending;
  if (ending == Ending::kShutdown && begun_ && awaited() == Awaited::kChoice) {
    Refuse({.result = PickResult::kShed, .error = HttpError::kShuttingDown});
    SendMessages();
  }
  peer_ = nullptr;
  if (waiting_) {  // its coroutine sees it
    search_.Cancel();
    return permit_.Leave();
  }
  Finish();
}

PickedRequest::Awaited PickedRequest::awaited() const {
  if (stream_.is_amid_body()) return Awaited::kBody;
  const bool waits = !rejected_ && !stream_.observes() && !worker_.is_chosen();
  return waits ? Awaited::kChoice : Awaited::kNothing;
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
  for (std::string& message : stream_.TakeMessages()) {
    if (peer_ != nullptr) peer_->Send(id_, std::move(message));
  }
}

// ---- before the choice

void PickedRequest::TakeRequest() {
  if (rejected_) return;
  if (!begun_ && !Begin()) return;
  if (stream_.observes()) {
    if (stream_.must_pick() && !std::exchange(picking_, true)) Count(PickResult::kObserved);
    return;
  }
  const bool held = HoldBody();
  if (!held && waiting_) {  // its coroutine sees why
    search_.Cancel();
    permit_.Leave();
  }
  if (!held || picking_ || !HasEnough()) return;
  picking_ = true;
  Spawn(Pick(shared_from_this()));
}

// False: it is rejected.
bool PickedRequest::Begin() {
  begun_ = true;
  info_.wall_us = UnixMicros();
  info_.head_ns = thread_.clock.NowNanos();
  search_.ReadHead();
  info_.request_id =
      ChooseRequestId(
          search_.fields(), settings_->request_id_headers, RouteOf(info_.route).id_prefix, thread_.ids)
          .id;
  thread_.telemetry.in_flight.fetch_add(1, std::memory_order_relaxed);
  if (stream_.observes()) return true;
  const std::optional<uint64_t> length =
      ParseDecimal(FindHeader(search_.fields(), "content-length").value_or(std::string_view()));
  if (length) info_.bytes_in = *length;
  if (length && settings_->max_payload_size != 0 && *length > settings_->max_payload_size) {
    Refuse({.result = PickResult::kInvalid, .error = HttpError::kBodyTooLarge});
    return false;
  }
  if (IsShed()) return false;
  delegated_.fields = search_.fields();
  delegated_.path = search_.path();
  needs_body_ = search_.needs_body() || (features_ != nullptr && features_->NeedBody(delegated_));
  return true;
}

bool PickedRequest::IsShed() {
  ServerLimits& limits = thread_.limits;
  if (limits.concurrency.full()) {
    Refuse({.result = PickResult::kShed, .error = HttpError::kQueueFull});
    return true;
  }
  const int64_t too_early_ns = limits.rate.limits() ? limits.rate.Take(info_.head_ns) : 0;
  if (too_early_ns == 0) return false;
  Refuse({.result = PickResult::kShed, .error = HttpError::kRateLimited, .retry_after_ns = too_early_ns});
  return true;
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
    Refuse({.result = PickResult::kInvalid, .error = HttpError::kBodyTooLarge});
    return false;
  }
  if (bytes <= kSmallBodyBytes || bytes <= memory_.held() || memory_.GrowNow(bytes)) return true;
  Refuse({.result = PickResult::kShed, .error = HttpError::kNoBodyMemory});
  return false;
}

void PickedRequest::Refuse(const PickRejection& rejection) {
  rejected_ = true;
  Count(rejection.result);
  Reject(rejection, *settings_, &stream_, &info_);
  memory_.Return();
}

// ---- the choice

// `self` keeps it while it waits.
Task<void> PickedRequest::Pick(std::shared_ptr<PickedRequest> self) {
  waiting_ = true;
  co_await search_.ResolveNames();
  if (is_wanted() && FindModel()) {
    std::optional<WorkerChoice::Selected> selected;
    bool held = permit_.TryAcquire(1);
    if (!held) held = co_await AwaitPermit(/*again=*/false);
    while (held && is_wanted()) {
      selected = Select();
      if (selected || rejected_) break;
      held = co_await AwaitPermit(/*again=*/true);
    }
    if (selected && is_wanted()) Choose(*std::move(selected));
  }
  waiting_ = false;
  if (rejected_) permit_.Release();
  if (peer_ == nullptr) {
    Finish();
  } else {
    SendMessages();
    // The body may go back to a data plane that does not read it.
    if (!peer_->is_behind(id_)) memory_.Return();
  }
  self.reset();
}

// And the key. False: it is rejected.
bool PickedRequest::FindModel() {
  info_.body_ns = thread_.clock.NowNanos();
  if (const std::optional<PickRejection> rejection = search_.FindModel()) {
    Refuse(*rejection);
    return false;
  }
  search_.MakeKey();
  if (features_ == nullptr) return true;
  delegated_.body = stream_.body();
  delegated_.body_bytes = std::max<uint64_t>(info_.bytes_in, stream_.body().size());
  features_->Begin(delegated_);
  delegated_.body = {};
  return true;
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
  if (!is_wanted()) co_return false;
  Refuse(
      {.result = PickResult::kShed,
       .error = end == Permit::End::kTimeout ? HttpError::kQueueTimeout : HttpError::kQueueFull});
  co_return false;
}

// Empty: rejected, or all that may serve it are full.
std::optional<WorkerChoice::Selected> PickedRequest::Select() {
  WorkerSearch::Found found = search_.Select();
  if (found.rejection) Refuse(*found.rejection);
  return std::move(found.selected);
}

void PickedRequest::Choose(WorkerChoice::Selected selected) {
  const std::shared_ptr<Worker> worker = selected.ticket.shared_worker();
  worker_.Choose(std::move(selected), search_.EndpointOf(*worker));
  std::vector<std::string> endpoints = {worker_.endpoint()};
  for (std::string& other : search_.Alternatives(*worker, thread_.options.epp_fallbacks))
    endpoints.push_back(std::move(other));
  std::string rank;
  std::vector<HeaderField> headers;
  if (worker->url.rank) {
    rank = Concat(*worker->url.rank);
    headers.push_back({.name = kRankName, .value = rank});
  }
  info_.sent_ns = thread_.clock.NowNanos();
  stream_.Choose({.endpoints = endpoints, .headers = headers});
  Count(PickResult::kPicked);
}

// ---- the response

void PickedRequest::TakeResponse(const ProcessingRequest& request) {
  if (stream_.response_status() && info_.status == 0) {
    info_.status = *stream_.response_status();
    info_.responded_ns = thread_.clock.NowNanos();
    const std::string_view type = FindHeader(request.fields, "content-type").value_or(std::string_view());
    info_.stream = type.starts_with(kEventStream);
    const PickedWorker::Response response{
        .status = info_.status,
        .served = stream_.served(),
        .retry_after = FindHeader(request.fields, "retry-after").value_or(std::string_view())};
    if (worker_.Respond(response, search_)) counts_.served_elsewhere.fetch_add(1, std::memory_order_relaxed);
    search_.ForgetKey();
  }
  if (stream_.response_ended() && worker_.has_load()) FinishWorker(Outcome::End::kFinished);
}

void PickedRequest::FinishWorker(Outcome::End end) {
  worker_.Finish(end);
  permit_.Release();
}

// ---- the end

void PickedRequest::Finish() {
  if (std::exchange(finished_, true)) return;
  if (worker_.has_load()) {
    // A data plane that does not send the end of the response closes the stream instead.
    const int status = stream_.response_status().value_or(0);
    const bool is_done = ending_ != Ending::kBroken && status != 0;
    if (!is_done) info_.end = ExchangeEnd::kClientGone;
    FinishWorker(
        is_done         ? Outcome::End::kFinished
        : status >= 500 ? Outcome::End::kWorkerFailed
                        : Outcome::End::kClientGone);
  }
  permit_.Release();
  if (!begun_) return;
  if (!counted_) Count(PickResult::kLeft);
  info_.end_ns = thread_.clock.NowNanos();
  if (features_ != nullptr) features_->End(delegated_);
  thread_.telemetry.Record(info_);
  thread_.FlushLogSoon();
  thread_.telemetry.in_flight.fetch_sub(1, std::memory_order_release);
}

}  // namespace vllm_router
