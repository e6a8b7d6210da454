#include "proxy/exchange/request.h"

#include <chrono>
#include <utility>

#include "http/head_parser.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/exchange.h"
#include "proxy/security/authorizer.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// Workers of another model may be free while those of this one are not, so a request for a model wakes itself only.
Permit::Worth MayHaveCapacity(IoThread& thread, const void* context) {
  const auto* request = static_cast<const Request*>(context);
  const auto is_full = [&thread, request](Stage stage) {
    const RequestedModel* const model = request->model.get();
    std::shared_ptr<const FleetView> fleet = FleetFor(thread, model, stage);
    if (!fleet->all_admitting()) {
      AdmitHalfOpen(thread, *fleet);
      fleet = FleetFor(thread, model, stage);
    }
    return fleet->in_rotation() != 0 && thread.router->FreePlaces(*fleet) == 0;
  };
  const bool takes_both = request->workers == Workers::kBothStages;
  if (is_full(request->first_stage()) || (takes_both && is_full(Stage::kDecode)))
    return Permit::Worth::kNobody;
  const bool has_stage = request->workers != Workers::kOne;
  return request->model != nullptr || has_stage ? Permit::Worth::kThis : Permit::Worth::kFirst;
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
      permit(
          thread.limits.concurrency, thread,
          thread.router->options().max_worker_requests != 0 ? &MayHaveCapacity : nullptr, this),
      retry_loop(
          thread, settings, info, {.body_failed = &OnBodyFailed, .body_sent = &OnBodySent, .context = this}),
      attempts(&retry_loop) {}

Request::~Request() { thread.request_parsers.Release(std::move(parser)); }

void Request::Cancel(CancelReason reason) { exchange.Cancel(reason); }

bool Request::has_stages() const { return thread.fleet.Get()->stages() != nullptr; }

Access Request::access() const {
  const bool is_opened = info.route == Route::kScale && settings.scale_public;
  return is_opened ? Access::kAnybody : route().access;
}

ClientSide Request::client_side() const {
  return {
      .request_id = id.to_worker(),
      .request_id_name = id.header_name,
      .hide_ids = has_stages(),
      .id_names = settings.request_id_headers,
      .address = connection.peer.address,
      .tls = connection.socket.is_tls(),
      .drop_authorization = thread.authorizer.takes_client_keys(),
      .preserve_host = settings.preserve_host,
      .trust_forwarded = settings.trust_forwarded,
      .identity = client.has_keepalive(),
      .trace = info.trace.get()};
}

Stage Request::first_stage() const {
  return workers == Workers::kDecodeAlone ? Stage::kDecode : Stage::kPrefill;
}

std::shared_ptr<const FleetView> Request::fleet() const {
  return FleetFor(thread, model.get(), first_stage());
}

bool Request::may_continue_response() const {
  return info.route == Route::kResponses || info.route == Route::kCompact ||
         info.route == Route::kInputTokens;
}

bool Request::is_recorded() const { return thread.telemetry.wants_prompts() && route().computes; }

void Request::KeepPrompt(const RequestView& view) {
  info.prompt = std::make_unique<PromptReading>();
  thread.router->ReadPrompt(view, key, info.prompt.get());
}

Request::Rewritten& Request::Rewrite() {
  if (rewritten == nullptr) rewritten = std::make_unique<Rewritten>();
  return *rewritten;
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
  head = nullptr;
  scope.set_via({});
  key = {};
  body->Release();
  if (connection.in.empty()) connection.in.Release();
  thread.request_parsers.Release(std::move(parser));
}

}  // namespace vllm_router
