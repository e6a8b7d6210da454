#include "proxy/client/remote_tokenizer.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/time_units.h"
#include "routing/tokenize_call.h"

namespace vllm_router {
namespace {

constexpr std::string_view kTarget = "/tokenize";

// A worker that has the endpoint but rejects this request returns an OpenAI-style error; a web framework
// without the path does not.
bool IsRejection(const HttpResponse& response) {
  if (response.status == 400 || response.status == 413 || response.status == 422) return true;
  return response.status == 404 && response.body.find("\"error\"") != std::string::npos;
}

bool IsUnknown(const HttpResponse& response) {
  return response.status == 404 || response.status == 405 || response.status == 501;
}

}  // namespace

// Outlives its request during a name lookup, which cannot be cancelled.
struct RemoteTokenizer::Call {
  explicit Call(std::span<const std::string_view> via) : scope(via) {}

  CancelScope scope;               // of this call alone
  CancelScope* waiting = nullptr;  // the waiting request; null: none any more
  bool responded = false;
  int64_t timeout_ms = 0;
  WorkerUrl url;
  std::shared_ptr<Host> host;
  std::string json;
  StatusOr<HttpResponse> response = absl::UnknownError("not requested");
};

// Outlives the request, so it owns all its data.
struct RemoteTokenizer::BackgroundCall {
  RoutingKey::UntokenizedPrompt text;
  WorkerId worker;
  WorkerUrl url;
  std::shared_ptr<Host> host;
  std::string json;
  std::vector<std::string> hops;
  int64_t timeout_ms;
};

Task<bool> RemoteTokenizer::Tokenize(
    CancelScope& scope, RoutingKey::UntokenizedPrompt text, std::string_view body, const FleetView& fleet,
    int64_t timeout_ms) {
  const auto count = [this](TokenizeEnd end) {
    telemetry_.tokenize_calls[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  };
  std::optional<std::string> json = WriteTokenizeCall(body, /*padded=*/true, text.is_chat);
  const Worker* worker = json ? Choose(fleet) : nullptr;
  if (worker == nullptr) {
    count(TokenizeEnd::kNobody);
    co_return false;
  }
  auto call = std::make_shared<Call>(scope.via());
  call->url = worker->url;
  call->json = *std::move(json);
  call->host = hosts_.at(worker->url.base);
  call->waiting = &scope;
  call->timeout_ms = timeout_ms;
  const int64_t begun = clock_.NowNanos();
  Spawn(Send(call));
  if (!call->responded) {
    co_await scope.Pause(http_.loop(), timeout_ms * kNanosPerMs);
  }
  call->waiting = nullptr;
  call->scope.Cancel();

  PromptIds ids;
  const TokenizeEnd end = scope.cancelled()  ? TokenizeEnd::kGone
                          : !call->responded ? TokenizeEnd::kTimeout
                                             : EndOf(call->response, &ids);
  count(end);
  telemetry_.tokenize_nanos.fetch_add(
      static_cast<uint64_t>(clock_.NowNanos() - begun), std::memory_order_relaxed);
  const int64_t now = clock_.NowNanos();
  if (end == TokenizeEnd::kOk || end == TokenizeEnd::kRefused) call->host->backoff.Worked();
  if (end == TokenizeEnd::kUnknown) call->host->backoff.Unknown(now);
  if (end == TokenizeEnd::kTimeout || end == TokenizeEnd::kFailed) call->host->backoff.Failed(now);
  if (end != TokenizeEnd::kOk) co_return false;
  router_.token_cache()->Store(text.name, std::move(ids));
  co_return true;
}

TokenizeEnd RemoteTokenizer::EndOf(const StatusOr<HttpResponse>& fetched, PromptIds* ids) {
  if (!fetched.ok()) return TokenizeEnd::kFailed;
  const HttpResponse& response = *fetched;
  if (IsRejection(response)) return TokenizeEnd::kRefused;
  if (IsUnknown(response)) return TokenizeEnd::kUnknown;
  if (response.status != 200) return TokenizeEnd::kFailed;
  StatusOr<PromptIds> parsed = ParseTokenizeResponse(response.body);
  if (!parsed.ok()) return TokenizeEnd::kFailed;
  *ids = *std::move(parsed);
  return TokenizeEnd::kOk;
}

// Any worker will do, since all serve the same models; the one with the fewest open calls responds
// first.
const Worker* RemoteTokenizer::Choose(const FleetView& fleet) {
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
    if (!host->backoff.over(now) || host->open >= kMaxTokenizeCalls) continue;
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
  std::string target(kTarget);
  call->response = co_await http_.Post(&call->scope, call->url, target, call->json, call->timeout_ms);
  --host->open;
  call->responded = true;
  if (call->waiting != nullptr) call->waiting->EndPause();
}

void RemoteTokenizer::TokenizeLater(
    const RoutingKey::UntokenizedPrompt& text, std::string_view body, std::span<const std::string_view> via,
    const Worker& worker, int64_t timeout_ms) {
  const int64_t now = clock_.NowNanos();
  std::shared_ptr<Host>& host = hosts_[worker.url.base];
  if (host == nullptr) host = std::make_shared<Host>();
  const bool may_ask = host->backoff.over(now) && host->background_backoff.over(now) &&
                       host->background_open < kMaxBackgroundTokenizeCalls;
  std::optional<std::string> json;
  if (may_ask) json = WriteTokenizeCall(body, /*padded=*/true, text.is_chat);
  if (!json) {
    telemetry_.background_tokenize_calls[static_cast<size_t>(TokenizeEnd::kNobody)].fetch_add(
        1, std::memory_order_relaxed);
    return;
  }
  ++host->background_open;
  background_calls_.fetch_add(1);
  Spawn(SendLater(std::make_shared<BackgroundCall>(BackgroundCall{
      text, worker.id, worker.url, host, *std::move(json), {via.begin(), via.end()}, timeout_ms})));
}

Task<void> RemoteTokenizer::SendLater(std::shared_ptr<BackgroundCall> call) {
  const std::vector<std::string_view> via(call->hops.begin(), call->hops.end());
  CancelScope scope(via);
  std::string target(kTarget);
  const StatusOr<HttpResponse> response =
      co_await http_.Post(&scope, call->url, target, std::move(call->json), call->timeout_ms);
  --call->host->background_open;
  PromptIds ids;
  const TokenizeEnd end =
      absl::IsDeadlineExceeded(response.status()) ? TokenizeEnd::kTimeout : EndOf(response, &ids);
  telemetry_.background_tokenize_calls[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  const int64_t now = clock_.NowNanos();
  if (end == TokenizeEnd::kOk || end == TokenizeEnd::kRefused) call->host->background_backoff.Worked();
  if (end == TokenizeEnd::kUnknown) call->host->backoff.Unknown(now);
  if (end == TokenizeEnd::kTimeout || end == TokenizeEnd::kFailed) call->host->background_backoff.Failed(now);
  if (end == TokenizeEnd::kOk) router_.LearnTokens(call->text, call->worker, std::move(ids));
  background_calls_.fetch_sub(1);
}

}  // namespace vllm_router
