#include "proxy/exchange/request.h"

#include <utility>

#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/exchange.h"
#include "proxy/security/authorizer.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// Workers of another model may be free while those of this one are not, so a request for a model wakes itself only.
Permit::Worth MayHaveCapacity(IoThread& thread, const void* context) {
  const auto* workers = static_cast<const EligibleWorkers*>(context);
  if (workers->AreFull(thread)) return Permit::Worth::kNobody;
  return workers->are_restricted() ? Permit::Worth::kThis : Permit::Worth::kFirst;
}

void OnBodyFailed(void* context, RequestBody::End end) {
  auto* request = static_cast<Request*>(context);
  request->body_end = end;
  request->Cancel(
      end == RequestBody::End::kClientGone ? CancelReason::kClientGone : CancelReason::kBodyFailed);
}

void OnBodySent(void* context) { static_cast<Request*>(context)->client.watch().Begin(); }

}  // namespace

std::string_view CodeOfCut(CancelReason reason) {
  switch (reason) {
    case CancelReason::kIdleTimeout:
      return "stream_idle_timeout";
    case CancelReason::kShutdown:
      return ErrorOf(HttpError::kShuttingDown).code;
    case CancelReason::kDrained:
      return ErrorOf(HttpError::kWorkerDrained).code;
    case CancelReason::kTotalTimeout:
      return "total_timeout";
    case CancelReason::kSlowWorker:
      return ErrorOf(HttpError::kWorkerWriteTimeout).code;
    case CancelReason::kWorkerDead:
      return "worker_dead";
    default:
      return {};
  }
}

Request::Request(Exchange& exchange, Connection& connection, Downstream& client)
    : exchange(exchange),
      connection(connection),
      client(client),
      thread(connection.thread),
      settings(*connection.settings),
      pipeline(connection.pipeline),
      head(thread),
      permit(
          thread.limits.concurrency, thread,
          thread.router->options().max_worker_requests != 0 ? &MayHaveCapacity : nullptr, &workers),
      retry_loop(
          thread, settings, info, {.body_failed = &OnBodyFailed, .body_sent = &OnBodySent, .context = this}),
      attempts(&retry_loop) {}

void Request::Cancel(CancelReason reason) { exchange.Cancel(reason); }

void Request::UseAttempts(std::unique_ptr<Attempts> other) {
  other_attempts = std::move(other);
  attempts = other_attempts.get();
}

void Request::ArmDeadline(int64_t ms, Timer::Callback callback) {
  deadline.Arm(thread.loop.timers(), ms, callback, this);
}

void Request::ArmTotalDeadline(int64_t ms) {
  const auto cancel = [](void* context) {
    static_cast<Request*>(context)->Cancel(CancelReason::kTotalTimeout);
  };
  total_deadline.Arm(thread.loop.timers(), ms, cancel, this);
}

void Request::Forget() {
  scope.set_via({});
  key = {};
  body->Release();
  if (connection.in.empty()) connection.in.Release();
  head.Release();
}

bool HasStages(const Request& request) { return request.thread.fleet.Get()->stages() != nullptr; }

Access AccessOf(const Request& request) {
  const bool is_opened = request.info.route == Route::kScale && request.settings.scale_public;
  return is_opened ? Access::kAnybody : request.route().access;
}

ClientSide ClientSideOf(const Request& request) {
  const Connection& connection = request.connection;
  const Settings& settings = request.settings;
  return {
      .request_id = request.id.to_worker(),
      .request_id_name = request.id.header_name,
      .hide_ids = HasStages(request),
      .id_names = settings.request_id_headers,
      .address = connection.peer.address,
      .tls = connection.socket.is_tls(),
      .drop_authorization = request.thread.authorizer.takes_client_keys(),
      .preserve_host = settings.preserve_host,
      .trust_forwarded = settings.trust_forwarded,
      .identity = request.client.has_keepalive() || request.edits.edits_response(),
      .trace = request.info.trace.get()};
}

bool MayContinueResponse(const Request& request) {
  const Route route = request.info.route;
  return route == Route::kResponses || route == Route::kCompact || route == Route::kInputTokens;
}

bool IsRecorded(const Request& request) {
  return request.thread.telemetry.lines.wants_prompts() && request.route().computes;
}

void KeepPrompt(Request& request, const RequestView& view) {
  request.info.prompt = std::make_unique<PromptReading>();
  request.thread.router->ReadPrompt(view, request.key, request.info.prompt.get());
}

}  // namespace vllm_router
