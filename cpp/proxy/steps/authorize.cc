// Whether this port serves the path, and the client is permitted to use it.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "proxy/api/cors.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/security/authorizer.h"
#include "proxy/security/key_validator.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// An external service decides. A client that leaves meanwhile ends its own wait; the query is dropped
// unless others wait for the same result.
Task<std::optional<HttpError>> ValidateKey(
    Request& request, KeyValidator& validator, std::optional<KeyMatch>* match) {
  const std::optional<std::string_view> given = KeyOf(*request.head);
  if (!given.has_value()) co_return HttpError::kInvalidApiKey;
  std::string key(*given);
  const Digest256 digest = Sha256({key});
  const auto waiter =
      std::make_shared<KeyValidator::Waiter>(request.thread.loop, validator, request.connection.peer.address);
  OnCancel leave(request.scope, [&waiter] { KeyValidator::Waiter::Cancel(waiter); });
  request.client.watch().BeginEnd();
  const KeyVerdict verdict = co_await validator.Validate(std::move(key), waiter);
  request.client.watch().StopEnd();
  if (verdict.validity == KeyValidity::kYes) {
    if (verdict.grant != nullptr || request.thread.authorizer.tells_clients_apart())
      *match = KeyMatch{.digest = digest, .grant = verdict.grant};
    co_return std::nullopt;
  }
  co_return verdict.validity == KeyValidity::kNo ? HttpError::kInvalidApiKey : HttpError::kKeyNotChecked;
}

void BeginCors(Request& request, Access access, bool preflight) {
  const Cors& cors = request.settings.cors;
  const RequestHead& head = *request.head;
  const std::string_view origin = Cors::OriginOf(head);
  if (origin.empty() && cors.allowed_origins().empty()) return;
  Downstream::Browser& browser = request.client.BeginBrowser();
  browser.origin = origin;
  const RouteInfo& route = request.route();
  browser.fields = preflight
                       ? cors.PreflightFieldsFor(head, access, route.own ? route.allow : kForwardedMethods)
                       : cors.FieldsFor(browser.origin, access);
}

Task<Verdict> Authorize(Request& request) {
  Downstream& client = request.client;
  Authorizer& authorizer = request.thread.authorizer;
  const ListenerKind listener_kind = request.connection.listener_kind;
  const Access access = listener_kind == ListenerKind::kMetrics ? Access::kAnybody : AccessOf(request);
  const bool preflight = Cors::IsPreflight(*request.head);
  BeginCors(request, access, preflight);
  const bool wrong_port = listener_kind == ListenerKind::kMetrics ? request.info.route != Route::kMetrics
                                                                  : !authorizer.Serves(listener_kind, access);
  if (wrong_port) {
    co_await client.ReplyError(
        HttpError::kNotFound, listener_kind == ListenerKind::kMetrics
                                  ? "Only /metrics is served on this port."
                              : listener_kind == ListenerKind::kAdmin
                                  ? "Only health and admin endpoints are served on this port."
                                  : "Admin endpoints are served on another port (--admin-port).");
    co_return Verdict::kEnd;
  }
  if (access == Access::kAdmin && request.settings.cors.IsCrossSite(request.head->fields)) {
    co_await client.ReplyError(HttpError::kCrossSiteRequest);
    co_return Verdict::kEnd;
  }
  if (preflight) {
    co_await client.Reply(200, {}, {});
    co_return Verdict::kEnd;
  }
  std::optional<KeyMatch> match;
  std::optional<HttpError> refusal = authorizer.Rejects(access, listener_kind, *request.head, &match);
  if (refusal.has_value()) {
    KeyValidator* const validator = authorizer.ValidatorFor(access, *refusal);
    if (validator != nullptr) refusal = co_await ValidateKey(request, *validator, &match);
  }
  if (match.has_value()) request.state.Emplace<KeyMatch>(*std::move(match));
  if (!refusal.has_value() || request.is_cancelled()) co_return Verdict::kNext;
  const HeaderField challenge{
      "WWW-Authenticate", refusal == HttpError::kInvalidApiKey
                              ? R"(Bearer realm="vllm-router", error="invalid_token")"
                              : R"(Bearer realm="vllm-router")"};
  const bool for_want_of_a_key = ErrorOf(*refusal).status == 401;
  const std::span<const HeaderField> extra(&challenge, for_want_of_a_key ? 1 : 0);
  co_await client.ReplyError(*refusal, {}, extra);
  co_return Verdict::kEnd;
}

}  // namespace

extern constexpr Step kAuthorizeStep = {.name = "authorize", .run = &Authorize};

}  // namespace vllm_router
