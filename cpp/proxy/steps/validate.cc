// Method, size, and what the client sets in the head.
#include <optional>
#include <string>

#include "base/limits.h"
#include "base/text.h"
#include "proxy/api/cors.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/cost_override_header.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/security/authorizer.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr std::string_view kFanOutMethodsWithoutKey = "POST, PUT, DELETE";

// Engines do not use TRACE, and a server that implements it shows what the router added to the request:
// keys, addresses. Compared without case, since some servers ignore it.
bool IsTrace(std::string_view method) {
  return method.size() == 5 && (EqualsIgnoreCase(method, "TRACE") || EqualsIgnoreCase(method, "TRACK"));
}
constexpr std::string_view kTraceMessage =
    "TRACE and TRACK are not passed on to workers; see the Allow header.";

// Reads what the client sets of the cost.
Task<bool> RejectOverride(Request& request) {
  const std::optional<std::string_view> given = FindHeader(request.head->fields, kCostOverrideHeader);
  if (!given) co_return false;
  StatusOr<CostOverride> parsed = ParseCostOverride(*given);
  if (parsed.ok()) {
    request.state.Emplace<CostOverride>(*parsed);
    co_return false;
  }
  co_await request.client.ReplyError(HttpError::kInvalidArgument, std::string(parsed.status().message()));
  co_return true;
}

Task<Verdict> Validate(Request& request) {
  Downstream& client = request.client;
  const RequestHead& head = *request.head;
  const RouteInfo& route = request.route();
  // A page of another site can make a browser send GET without its origin, by an image for instance, but
  // not with a key.
  const bool no_get = request.info.route == Route::kFanOut && !request.thread.authorizer.takes_admin_keys();
  const std::string_view allowed = no_get ? kFanOutMethodsWithoutKey : route.allow;
  if (route.own && !MethodAllowed(allowed, head.method)) {
    const HeaderField allow{"Allow", allowed};
    co_await client.ReplyError(HttpError::kMethodNotAllowed, {}, {&allow, 1});
    co_return Verdict::kEnd;
  }
  if (!route.own && head.websocket && !request.settings.cors.MayOpenWebSocket(head)) {
    co_await client.ReplyError(HttpError::kCrossSiteRequest);
    co_return Verdict::kEnd;
  }
  if (!route.own && IsTrace(head.method)) {
    const HeaderField allow{"Allow", kForwardedMethods};
    co_await client.ReplyError(HttpError::kMethodNotAllowed, std::string(kTraceMessage), {&allow, 1});
    co_return Verdict::kEnd;
  }
  const uint64_t maximum = route.own ? route.max_body : request.settings.max_payload_size;
  if (head.framing == BodyFraming::kLength && head.content_length > maximum) {
    const std::string message = "The request body has " + std::to_string(head.content_length) +
                                " bytes; this router accepts at most " + std::to_string(maximum) +
                                (route.own ? "." : " (--max-payload-size).");
    co_await client.ReplyError(HttpError::kBodyTooLarge, message);
    co_return Verdict::kEnd;
  }
  if (request.settings.allow_request_overrides && !route.own) {
    const bool rejected = co_await RejectOverride(request);
    if (rejected) co_return Verdict::kEnd;
  }
  co_return Verdict::kNext;
}

}  // namespace

extern constexpr Step kValidateStep = {.name = "validate", .run = &Validate};

}  // namespace vllm_router
