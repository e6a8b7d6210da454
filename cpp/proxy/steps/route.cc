// Which endpoint the request is for, and whether it may be one at all.
#include <string>
#include <utility>

#include "base/limits.h"
#include "http/dot_segments.h"
#include "http/via.h"
#include "proxy/api/fan_out_paths.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

bool ContainsEncodedNul(std::string_view path) { return path.find("%00") != std::string_view::npos; }

Route RouteFor(const Request& request) {
  const RequestHead& head = *request.head;
  if (request.connection.listener_kind == ListenerKind::kMetrics)
    return head.path == "/metrics" ? Route::kMetrics : Route::kOther;
  if (head.method == "OPTIONS" && head.path == "*") return Route::kServerOptions;
  Route route = FindRoute(head.path);
  if (route == Route::kRoot && (head.websocket || !MethodAllowed(RouteOf(Route::kRoot).allow, head.method)))
    route = Route::kOther;
  if (route == Route::kOther && request.thread.fan_out_paths.Contains(head.path, head.method))
    route = Route::kFanOut;
  return route;
}

// The router's own endpoints reject as well, so that a router that is its own worker is found unhealthy.
Task<bool> RejectRoutingLoop(Request& request) {
  const Hops hops = ReadVia(request.head->via, request.thread.hop_name);
  if (!hops.own && hops.routers <= kMaxRouterHops) co_return false;
  const std::string message =
      hops.own
          ? std::string(
                "The request has passed through this router already: one of its workers leads back to it.")
          : "The request has passed through " + std::to_string(hops.routers) + " routers; more than " +
                std::to_string(kMaxRouterHops) + " are taken for a routing loop.";
  co_await request.client.ReplyError(HttpError::kLoopDetected, message);
  co_return true;
}

Task<Verdict> FindEndpoint(Request& request) {
  Connection& connection = request.connection;
  IoThread& thread = request.thread;
  RequestInfo& info = request.info;
  const bool metrics_listener = connection.listener_kind == ListenerKind::kMetrics;
  info.method = request.head->method;
  info.path = request.head->path;
  // Before any decision by path, since a worker with a prefix gets the resolved path.
  std::string path;
  const DotSegments dots = !metrics_listener && thread.fleet.Get()->any_prefix()
                               ? ResolveDotSegments(request.head->path, &path)
                               : DotSegments::kNone;
  if (dots == DotSegments::kInside) request.head.ReplacePath(std::move(path));
  const RequestHead& head = *request.head;
  info.route = RouteFor(request);
  request.id = ChooseRequestId(
      head.fields, request.settings.request_id_headers, request.route().id_prefix, thread.ids);
  if (HasStages(request)) HideFromWorkers(&request.id, thread.ids);
  connection.keep = head.keep_alive;
  request.body.emplace(connection, head.framing, head.content_length, head.size);

  if (!head.via.empty()) {
    const bool rejected = co_await RejectRoutingLoop(request);
    if (rejected) co_return Verdict::kEnd;
  }
  if (ContainsEncodedNul(head.path)) {
    co_await request.client.ReplyError(HttpError::kNulInPath);
    co_return Verdict::kEnd;
  }
  if (dots == DotSegments::kOutside) {
    co_await request.client.ReplyError(HttpError::kPathOutsidePrefix);
    co_return Verdict::kEnd;
  }
  if (info.route == Route::kOther && !metrics_listener && thread.fan_out_paths.Resembles(head.path)) {
    co_await request.client.ReplyError(
        HttpError::kNotFound,
        "The path is another spelling of an admin endpoint's path; write it without empty and dot segments, "
        "parameters, encoded characters and a slash at the end.");
    co_return Verdict::kEnd;
  }
  co_return Verdict::kNext;
}

}  // namespace

extern constexpr Step kRouteStep = {.name = "route", .run = &FindEndpoint};

}  // namespace vllm_router
