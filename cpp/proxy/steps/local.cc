#include <string>
#include <utility>

#include "base/limits.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/event_stream_reply.h"
#include "proxy/exchange/fan_out.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/security/authorizer.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/own_endpoints.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

// It waits for workers, or changes something.
bool MayTakeLong(Route route, std::string_view method) {
  const bool asks_workers =
      route == Route::kModels || route == Route::kModel || route == Route::kLoads || route == Route::kFanOut;
  return asks_workers || (method != "GET" && method != "HEAD");
}

// It is meant for the router alone, wherever it is sent.
bool HasAdminKey(const Request& request) {
  Authorizer& authorizer = request.thread.authorizer;
  if (!authorizer.takes_admin_keys()) return false;
  const bool has_port = !authorizer.Serves(ListenerKind::kPublic, Access::kAdmin);
  const ListenerKind kind = has_port ? ListenerKind::kAdmin : ListenerKind::kPublic;
  return !authorizer.Rejects(Access::kAdmin, kind, *request.head).has_value();
}

Task<AdminReply> FanOutToAll(Request& request) {
  FanOutRequest fan_out{
      .head = *request.head,
      .body = request.body->held(),
      .client = ClientSideOf(request),
      .timeout_ms = request.settings.request_timeout_ms};
  if (request.thread.authorizer.takes_admin_keys()) fan_out.client.drop_authorization = true;
  AdminReply reply = co_await FanOut(request.thread, request.scope, request.pipeline.own_endpoints, fan_out);
  co_return reply;
}

Task<AdminReply> Respond(Request& request) {
  const Route route = request.info.route;
  const bool as_client = (route == Route::kModels || route == Route::kModel) && !HasAdminKey(request);
  const AdminRequest admin_request{
      .route = route,
      .method = request.head->method,
      .path = request.head->path,
      .query = request.head->query,
      .body = request.body->held(),
      .settings = request.settings,
      .scope = request.scope,
      .has_admin_key = AccessOf(request) == Access::kAdmin && request.thread.authorizer.takes_admin_keys(),
      .credentials = as_client ? ForwardedCredentials(*request.head, ClientSideOf(request)) : std::string(),
      .fields = request.head->fields};
  AdminReply reply = co_await request.pipeline.own_endpoints.Respond(request.thread, admin_request);
  co_return reply;
}

bool IsLocal(Request& request) {
  if (request.route().own) return true;
  request.proxied = true;
  request.thread.telemetry.in_flight.fetch_add(1, std::memory_order_relaxed);
  return false;
}

Task<Verdict> RespondLocally(Request& request) {
  Downstream& client = request.client;
  const Route route = request.info.route;
  const RequestBody::End end = co_await request.body->Fill(request.route().max_body);
  if (end != RequestBody::End::kOk || !request.body->complete()) {
    co_await client.ReplyBodyFailed(end == RequestBody::End::kOk ? RequestBody::End::kTooLarge : end);
    co_return Verdict::kEnd;
  }
  Permit fan_out(request.thread.limits.fan_outs, request.thread);
  if (route == Route::kFanOut && !fan_out.TryAcquire(1)) {
    co_await client.Reject(HttpError::kFanOutBusy);
    co_return Verdict::kEnd;
  }
  if (route == Route::kFanOut) request.pipeline.OnFanOut(request);
  // A page comes in a moment, also for a probe that has closed its sending side.
  if (MayTakeLong(route, request.head->method)) client.watch().Begin();
  AdminReply reply;
  if (route == Route::kFanOut) {
    reply = co_await FanOutToAll(request);
  } else {
    reply = co_await Respond(request);
  }
  request.scope.set_long(false);  // the response does not take long
  if (request.scope.cancelled()) {
    request.Cancel(CancelReason::kShutdown);  // unless there was an earlier reason
    co_return Verdict::kNext;
  }
  request.info.error = reply.error_code;
  if (reply.stream != nullptr) {
    co_await ReplyWithEvents(request, std::move(reply));
  } else if (reply.page == nullptr) {
    co_await client.Reply(reply.status, reply.body, reply.content_type, reply.fields);
  } else {
    co_await client.ReplyPage(std::move(reply));
  }
  co_return Verdict::kEnd;
}

}  // namespace

extern constexpr Step kLocalStep = {.name = "local", .begin = &IsLocal, .run = &RespondLocally};

}  // namespace vllm_router
