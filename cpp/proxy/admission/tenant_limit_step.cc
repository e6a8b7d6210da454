// A tenant that has limits is held to them: from the head alone as to its requests, per minute and at a time, and once the
// prompt is known as to its tokens. What needs no worker, as a response from the response cache, ends in between. Without a
// file of classes, and for tenants without limits, neither step does anything.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admission/tenant_tokens.h"
#include "base/clock.h"
#include "policy/routing_key.h"
#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/tenant_limit.h"
#include "proxy/admission/thread_admission.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

TenantLimit* LimitOf(const Request& request) { return request.state.Find<TenantLimit>(); }

// The router's own pages cost a tenant nothing.
bool MustReject(Request& request) {
  const IdentityInfo* const identity = request.info.identity.get();
  auto* const tenants = request.thread.features.Find<ThreadTenants>();
  if (identity == nullptr || tenants == nullptr || request.route().own) return false;
  auto& classes = *request.thread.features.Find<ThreadClasses>();
  const std::shared_ptr<const AdmissionSettings>& settings = classes.rules.Get()->settings;
  if (settings == nullptr) return false;
  const int64_t now = request.thread.clock.NowNanos();
  std::optional<TenantLimit> found = TenantLimit::Find(tenants, *settings, identity->tenant, now);
  if (!found.has_value()) return false;
  return !request.state.Emplace<TenantLimit>(*std::move(found)).Begin(now);
}

HttpError ErrorFor(TenantRejection reason) {
  switch (reason) {
    case TenantRejection::kRequests:
      return HttpError::kTenantRateLimited;
    case TenantRejection::kTokens:
      return HttpError::kTenantTokensLimited;
    case TenantRejection::kConcurrency:
      break;
  }
  return HttpError::kTenantConcurrency;
}

Task<Verdict> Reject(Request& request) {
  const TenantLimit& limit = *LimitOf(request);
  const TenantRejection reason = limit.rejected()->reason;
  const IdentityInfo& identity = *request.info.identity;
  request.thread.features.Find<ThreadAdmission>()->tokens.Add(
      identity.tenant, identity.configured, RejectionOf(reason));
  std::string message = limit.Message();
  const int64_t retry_after_ns = limit.retry_after_ns();
  if (retry_after_ns != 0) {
    co_await request.client.Reject(ErrorFor(reason), retry_after_ns, message);
    co_return Verdict::kEnd;
  }
  // The clients of OpenAI and Anthropic would send it again.
  const HeaderField never{"x-should-retry", "false"};
  const std::span<const HeaderField> fields(&never, 1);
  request.info.refusal = ErrorOf(ErrorFor(reason)).code;
  co_await request.client.ReplyError(ErrorFor(reason), std::move(message), fields);
  co_return Verdict::kEnd;
}

// ---- responses

// A worker's response goes to the client: its place is returned at the end of the body.
struct Relayed final : BodySink {
  explicit Relayed(TenantLimit& limit) : limit(limit) {}

  Took Write(std::string_view /*data*/, bool last) override {
    if (last) limit.ReturnPlace();
    return Took::kAll;
  }
  Task<Took> Flush() override { co_return Took::kAll; }

  TenantLimit& limit;
};

void BeginRelay(Request& request, const ResponseHead&) {
  TenantLimit* const limit = LimitOf(request);
  if (limit == nullptr || request.state.Find<Relayed>() != nullptr) return;
  request.state.Emplace<Relayed>(*limit);
}

BodySink* PlaceAtEnd(Request& request, const ResponseHead&) {
  Relayed* const relayed = request.state.Find<Relayed>();
  return relayed != nullptr && relayed->limit.has_places() ? relayed : nullptr;
}

// A response of the router's own, or from the cache. The head of a stream that is kept alive has no status yet.
bool IsOwn(const Request& request) {
  return request.info.status != 0 && request.state.Find<Relayed>() == nullptr;
}

// No worker had it, and it has no response but an error. What the cache responds, or the router itself, is a request.
bool IsUnserved(const Request& request) {
  const RequestInfo& info = request.info;
  return info.worker == nullptr && (info.status == 0 || info.status >= 400);
}

void AddFields(const Request& request, std::vector<HeaderField>* fields) {
  TenantLimit* const limit = LimitOf(request);
  if (limit == nullptr) return;
  const int64_t now = request.thread.clock.NowNanos();
  if (IsOwn(request)) {
    limit->ReturnPlace();
    if (IsUnserved(request)) limit->ReturnRequest(now);
  }
  limit->AddFields(IsAnthropic(request.info.route), now, UnixMicros(), fields);
}

// ---- tokens

// Else the key's tokens are estimated from the bytes of the body, which may be those of a recording.
bool IsPromptRead(const RoutingKey& key) {
  return key.has_blocks || key.prompt.kind != Prompt::Kind::kMissing;
}

// A WebSocket, or a GET of a stored response, has no prompt.
bool MustRejectTokens(Request& request) {
  TenantLimit* const limit = LimitOf(request);
  if (limit == nullptr || !MayCompute(request)) return false;
  const bool counted = IsPromptRead(request.key);
  const uint64_t prompt = PromptTokensOf(request, counted);
  const bool generates = request.route().generates || request.info.route == Route::kOther;
  const uint64_t output = generates ? request.key.expected_output : 0;
  return !limit->TakeTokens(prompt, output, counted, request.thread.clock.NowNanos());
}

// nullopt: its worker has not said. A request that failed used nothing, unless the client left it or it took too long.
std::optional<uint64_t> TokensUsed(const Request& request) {
  const RequestInfo& info = request.info;
  if (info.worker == nullptr) return 0;
  const bool is_known = info.prompt_tokens && (info.completion_tokens || !request.route().generates);
  if (is_known) return *info.prompt_tokens + info.completion_tokens.value_or(0);
  const bool has_failed = info.status >= 400 && info.end != ExchangeEnd::kClientGone &&
                          info.end != ExchangeEnd::kSlowClient && info.end != ExchangeEnd::kTimeout;
  return has_failed ? std::optional<uint64_t>(0) : std::nullopt;
}

void EndLimit(Request& request) {
  TenantLimit* const limit = LimitOf(request);
  if (limit == nullptr) return;
  const int64_t now = request.thread.clock.NowNanos();
  if (IsUnserved(request)) limit->ReturnRequest(now);
  limit->End(TokensUsed(request), request.info.events, now);
}

}  // namespace

extern constexpr Step kTenantLimitStep = {
    .name = "tenant_limit",
    .begin = &MustReject,
    .run = &Reject,
    .add_fields = &AddFields,
    .on_response = &BeginRelay,
    .tap = &PlaceAtEnd,
    .on_end = &EndLimit};
extern constexpr Step kTenantTokensStep = {
    .name = "tenant_tokens", .begin = &MustRejectTokens, .run = &Reject};

}  // namespace vllm_router
