#include "proxy/client/remote_tokenizer.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/time_units.h"
#include "routing/model_member.h"
#include "routing/tool_order.h"

namespace vllm_router {

// Outlives its request during a name lookup, which cannot be cancelled.
struct RemoteTokenizer::Call {
  explicit Call(std::span<const std::string_view> via) : scope(via) {}

  CancelScope scope;               // of this call alone
  CancelScope* waiting = nullptr;  // the waiting request; null: none any more
  bool responded = false;
  int64_t timeout_ms = 0;
  WorkerUrl url;
  std::shared_ptr<Host> host;
  size_t endpoint = 0;
  std::string json;
  std::string credentials;
  StatusOr<HttpResponse> response = absl::UnknownError("not requested");
};

// Outlives the request, so it owns all its data.
struct RemoteTokenizer::BackgroundCall {
  RoutingKey::UntokenizedPrompt text;
  WorkerId worker;
  WorkerUrl url;
  std::shared_ptr<Host> host;
  std::string json;
  std::string credentials;
  std::vector<std::string> hops;
  int64_t timeout_ms;
};

Task<TokenizeEnd> RemoteTokenizer::Fetch(
    CancelScope& scope, const FleetView& fleet, size_t endpoint, std::optional<std::string> json,
    std::string credentials, int64_t timeout_ms, PromptIds* ids) {
  const Worker* worker = json ? Choose(fleet, endpoint) : nullptr;
  if (worker == nullptr) co_return TokenizeEnd::kNobody;
  auto call = std::make_shared<Call>(scope.via());
  call->url = worker->url;
  call->endpoint = endpoint;
  call->json = *std::move(json);
  call->credentials = std::move(credentials);
  call->host = hosts_.at(worker->url.base);
  call->waiting = &scope;
  call->timeout_ms = timeout_ms;
  Spawn(Send(call));
  if (!call->responded) {
    co_await scope.Pause(http_.loop(), timeout_ms * kNanosPerMs);
  }
  call->waiting = nullptr;
  call->scope.Cancel();

  const TokenizeEnd end = scope.cancelled()  ? TokenizeEnd::kGone
                          : !call->responded ? TokenizeEnd::kTimeout
                                             : EndOf(call->response, ids);
  const int64_t now = clock_.NowNanos();
  Backoff& backoff = call->host->endpoints[endpoint].backoff;
  if (end == TokenizeEnd::kOk || end == TokenizeEnd::kRefused) backoff.Worked();
  if (end == TokenizeEnd::kUnknown) backoff.Unknown(now);
  if (end == TokenizeEnd::kTimeout || end == TokenizeEnd::kFailed) backoff.Failed(now);
  co_return end;
}

Task<bool> RemoteTokenizer::Tokenize(
    CancelScope& scope, RoutingKey::UntokenizedPrompt text, Source source, const FleetView& fleet,
    int64_t timeout_ms) {
  const int64_t begun = clock_.NowNanos();
  PromptIds ids;
  std::optional<std::string> json = WriteTokenizeCall(source.body, /*padded=*/true, text.call);
  const TokenizeEnd end = co_await Fetch(
      scope, fleet, TokenEndpointOf(text.call), std::move(json), std::move(source.credentials), timeout_ms,
      &ids);
  counts_.calls[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  if (end != TokenizeEnd::kNobody) {
    counts_.nanos.fetch_add(static_cast<uint64_t>(clock_.NowNanos() - begun), std::memory_order_relaxed);
  }
  if (end != TokenizeEnd::kOk) co_return false;
  router_.token_cache()->Store(text.name, std::move(ids));
  co_return true;
}

Task<bool> RemoteTokenizer::LearnToolOrder(
    CancelScope& scope, Source source, const FleetView& fleet, int64_t timeout_ms) {
  const int64_t now = clock_.NowNanos();
  if (now < tool_order_pause_end_) co_return false;
  const std::string model = FindModelMember(source.body).name;
  if (tool_order_tries_.size() >= ToolOrders::kPlaces) tool_order_tries_.clear();
  const auto tried = tool_order_tries_.try_emplace(model, now).first;
  if (now < tried->second) co_return false;
  const int64_t next_try = tried->second = now + kToolOrderRetryNs;
  std::array<PromptIds, 2> ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::optional<std::string> probe = WriteToolProbe(model, i == 1);
    const TokenizeEnd end = co_await Fetch(
        scope, fleet, TokenEndpointOf(TokenCall::kChat), std::move(probe), source.credentials, timeout_ms,
        &ids[i]);
    if (end == TokenizeEnd::kOk) continue;
    if (end == TokenizeEnd::kGone || end == TokenizeEnd::kNobody) {
      tool_order_tries_[model] = now;  // no worker was at fault: the next request tries
    } else if (end != TokenizeEnd::kRefused) {
      tool_order_pause_end_ = next_try;  // others would fail as well, whatever their model
    }
    co_return false;
  }
  router_.tool_orders().Learn(model, CompareToolProbes(ids[0], ids[1]));
  co_return true;
}

TokenizeEnd RemoteTokenizer::EndOf(const StatusOr<HttpResponse>& fetched, PromptIds* ids) {
  if (!fetched.ok()) return TokenizeEnd::kFailed;
  const HttpResponse& response = *fetched;
  if (response.status != 200) {
    switch (FaultOf(response.status, response.body)) {
      case TokenizeFault::kRequest:
        return TokenizeEnd::kRefused;
      case TokenizeFault::kEndpoint:
        return TokenizeEnd::kUnknown;
      case TokenizeFault::kWorker:
        return TokenizeEnd::kFailed;
    }
  }
  StatusOr<PromptIds> parsed = ParseTokenizeResponse(response.body);
  if (!parsed.ok()) return TokenizeEnd::kFailed;
  *ids = *std::move(parsed);
  return TokenizeEnd::kOk;
}

// Any worker will do, since all serve the same models; the one with the fewest open calls responds
// first.
const Worker* RemoteTokenizer::Choose(const FleetView& fleet, size_t endpoint) {
  if (hosts_.size() > fleet.members().size()) {
    std::set<std::string_view> known;
    for (const FleetView::Member& member : fleet.members()) known.insert(member.worker->url.base);
    std::erase_if(hosts_, [&known](const auto& entry) { return !known.contains(entry.first); });
  }
  const int64_t now = clock_.NowNanos();
  const Worker* best = nullptr;
  uint64_t equals = 0;
  for (const uint32_t position : fleet.eligible()) {
    const Worker& worker = fleet.worker(position);
    std::shared_ptr<Host>& host = hosts_[worker.url.base];
    if (host == nullptr) host = std::make_shared<Host>();
    if (!host->endpoints[endpoint].backoff.over(now) || host->open >= kMaxTokenizeCalls) continue;
    const int64_t more = best == nullptr ? -1 : worker.load.open_requests() - best->load.open_requests();
    if (more > 0) continue;
    if (more < 0) equals = 0;
    if (ids_.Below(++equals) == 0) best = &worker;
  }
  return best;
}

Task<void> RemoteTokenizer::Send(std::shared_ptr<Call> call) {
  const std::shared_ptr<Host> host = call->host;
  ++host->open;
  std::string target(kTokenEndpoints[call->endpoint]);
  call->response = co_await http_.PostWith(
      std::move(call->credentials), &call->scope, call->url, target, std::move(call->json), call->timeout_ms);
  --host->open;
  call->responded = true;
  if (call->waiting != nullptr) call->waiting->EndPause();
}

void RemoteTokenizer::TokenizeLater(
    const RoutingKey::UntokenizedPrompt& text, Source source, std::span<const std::string_view> via,
    const Worker& worker, int64_t timeout_ms) {
  const int64_t now = clock_.NowNanos();
  std::shared_ptr<Host>& host = hosts_[worker.url.base];
  if (host == nullptr) host = std::make_shared<Host>();
  const Host::Endpoint& endpoint = host->endpoints[TokenEndpointOf(text.call)];
  const bool may_call = endpoint.backoff.over(now) && endpoint.background_backoff.over(now) &&
                        host->background_open < kMaxBackgroundTokenizeCalls;
  std::optional<std::string> json;
  if (may_call) json = WriteTokenizeCall(source.body, /*padded=*/true, text.call);
  if (!json) {
    counts_.background_calls[static_cast<size_t>(TokenizeEnd::kNobody)].fetch_add(
        1, std::memory_order_relaxed);
    return;
  }
  ++host->background_open;
  background_calls_.fetch_add(1);
  Spawn(SendLater(std::make_shared<BackgroundCall>(BackgroundCall{
      text,
      worker.id,
      worker.url,
      host,
      *std::move(json),
      std::move(source.credentials),
      {via.begin(), via.end()},
      timeout_ms})));
}

Task<void> RemoteTokenizer::SendLater(std::shared_ptr<BackgroundCall> call) {
  const std::vector<std::string_view> via(call->hops.begin(), call->hops.end());
  CancelScope scope(via);
  const size_t at = TokenEndpointOf(call->text.call);
  std::string target(kTokenEndpoints[at]);
  const StatusOr<HttpResponse> response = co_await http_.PostWith(
      std::move(call->credentials), &scope, call->url, target, std::move(call->json), call->timeout_ms);
  --call->host->background_open;
  PromptIds ids;
  const TokenizeEnd end =
      absl::IsDeadlineExceeded(response.status()) ? TokenizeEnd::kTimeout : EndOf(response, &ids);
  counts_.background_calls[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  const int64_t now = clock_.NowNanos();
  Host::Endpoint& endpoint = call->host->endpoints[at];
  if (end == TokenizeEnd::kOk || end == TokenizeEnd::kRefused) endpoint.background_backoff.Worked();
  if (end == TokenizeEnd::kUnknown) endpoint.backoff.Unknown(now);
  if (end == TokenizeEnd::kTimeout || end == TokenizeEnd::kFailed) endpoint.background_backoff.Failed(now);
  if (end == TokenizeEnd::kOk) router_.LearnTokens(call->text, call->worker, std::move(ids));
  background_calls_.fetch_sub(1);
}

}  // namespace vllm_router
