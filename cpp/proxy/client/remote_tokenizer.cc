#include "proxy/client/remote_tokenizer.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "routing/tokenize_call.h"

namespace vllm_router {
namespace {

constexpr std::string_view kTarget = "/tokenize";

// A worker that has the call and will not answer this request says so as OpenAI does; a web framework that knows no such
// path does not.
bool IsRefusal(const HttpResponse& answer) {
  if (answer.status == 400 || answer.status == 413 || answer.status == 422) return true;
  return answer.status == 404 && answer.body.find("\"error\"") != std::string::npos;
}

bool IsUnknown(const HttpResponse& answer) {
  return answer.status == 404 || answer.status == 405 || answer.status == 501;
}

}  // namespace

// Outlives the request that it is for where a name is being looked up, which nobody can cut short.
struct Tokenizer::Question {
  explicit Question(std::span<const std::string_view> via) : errand(via) {}

  CancelScope errand;              // of the call alone
  CancelScope* waiting = nullptr;  // who wants to know; null: nobody any more
  bool answered = false;
  WorkerUrl url;
  std::shared_ptr<Host> host;
  std::string call;
  StatusOr<HttpResponse> answer = absl::UnknownError("not asked");
};

// Outlives the request, so it has all of its own.
struct Tokenizer::BackgroundCall {
  RoutingKey::UnknownText text;
  WorkerId worker;
  WorkerUrl url;
  std::shared_ptr<Host> host;
  std::string json;
  std::vector<std::string> hops;
};

Task<bool> Tokenizer::Ask(
    CancelScope& errand, RoutingKey::UnknownText text, std::string_view body, const FleetView& fleet) {
  const auto count = [this](TokenizeEnd end) {
    recorder_.tokenize_calls[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  };
  std::optional<std::string> call = WriteTokenizeCall(body, /*padded=*/true, text.is_chat);
  const Worker* worker = call ? Choose(fleet) : nullptr;
  if (worker == nullptr) {
    count(TokenizeEnd::kNobody);
    co_return false;
  }
  auto question = std::make_shared<Question>(errand.via());
  question->url = worker->url;
  question->call = *std::move(call);
  question->host = hosts_.at(worker->url.base);
  question->waiting = &errand;
  const int64_t begun = clock_.NowNanos();
  Spawn(Send(question));
  if (!question->answered) {
    const int64_t patience = options_.tokenize_timeout_ms * 1'000'000;
    co_await errand.Pause(http_.loop(), patience);
  }
  question->waiting = nullptr;
  question->errand.Cancel();

  PromptIds ids;
  const TokenizeEnd end = errand.cancelled()    ? TokenizeEnd::kGone
                          : !question->answered ? TokenizeEnd::kTimeout
                                                : Judge(question->answer, &ids);
  count(end);
  recorder_.tokenize_nanos.fetch_add(
      static_cast<uint64_t>(clock_.NowNanos() - begun), std::memory_order_relaxed);
  const int64_t now = clock_.NowNanos();
  if (end == TokenizeEnd::kOk || end == TokenizeEnd::kRefused) question->host->rest.Worked();
  if (end == TokenizeEnd::kUnknown) question->host->rest.Unknown(now);
  if (end == TokenizeEnd::kTimeout || end == TokenizeEnd::kFailed) question->host->rest.Failed(now);
  if (end != TokenizeEnd::kOk) co_return false;
  router_.token_cache()->Store(text.name, std::move(ids));
  co_return true;
}

TokenizeEnd Tokenizer::Judge(const StatusOr<HttpResponse>& fetched, PromptIds* ids) {
  if (!fetched.ok()) return TokenizeEnd::kFailed;
  const HttpResponse& answer = *fetched;
  if (IsRefusal(answer)) return TokenizeEnd::kRefused;
  if (IsUnknown(answer)) return TokenizeEnd::kUnknown;
  if (answer.status != 200) return TokenizeEnd::kFailed;
  StatusOr<PromptIds> parsed = ParseTokenizeAnswer(answer.body);
  if (!parsed.ok()) return TokenizeEnd::kFailed;
  *ids = *std::move(parsed);
  return TokenizeEnd::kOk;
}

// Any of them will do, since all serve the same models; the one with the least in hand answers first.
const Worker* Tokenizer::Choose(const FleetView& fleet) {
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
    if (!host->rest.over(now) || host->open >= kMaxTokenizeCalls) continue;
    const int64_t more = best == nullptr ? -1 : worker.load.open_requests() - best->load.open_requests();
    if (more > 0) continue;
    if (more < 0) equals = 0;
    if (ids_.Below(++equals) == 0) best = &worker;
  }
  return best;
}

Task<void> Tokenizer::Send(std::shared_ptr<Question> question) {
  const std::shared_ptr<Host> host = question->host;
  ++host->open;
  std::string target(kTarget);
  question->answer = co_await http_.Post(
      &question->errand, question->url, target, question->call, options_.tokenize_timeout_ms);
  --host->open;
  question->answered = true;
  if (question->waiting != nullptr) question->waiting->EndPause();
}

void Tokenizer::AskLater(
    const RoutingKey::UnknownText& text, std::string_view body, std::span<const std::string_view> via,
    const Worker& worker) {
  const int64_t now = clock_.NowNanos();
  std::shared_ptr<Host>& host = hosts_[worker.url.base];
  if (host == nullptr) host = std::make_shared<Host>();
  const bool may_ask = host->rest.over(now) && host->background_rest.over(now) &&
                       host->background_open < kMaxBackgroundTokenizeCalls;
  std::optional<std::string> json;
  if (may_ask) json = WriteTokenizeCall(body, /*padded=*/true, text.is_chat);
  if (!json) {
    recorder_.background_tokenize_calls[static_cast<size_t>(TokenizeEnd::kNobody)].fetch_add(
        1, std::memory_order_relaxed);
    return;
  }
  ++host->background_open;
  background_calls_.fetch_add(1);
  Spawn(SendLater(std::make_shared<BackgroundCall>(
      BackgroundCall{text, worker.id, worker.url, host, *std::move(json), {via.begin(), via.end()}})));
}

Task<void> Tokenizer::SendLater(std::shared_ptr<BackgroundCall> call) {
  const std::vector<std::string_view> via(call->hops.begin(), call->hops.end());
  CancelScope errand(via);
  std::string target(kTarget);
  const StatusOr<HttpResponse> answer =
      co_await http_.Post(&errand, call->url, target, std::move(call->json), options_.tokenize_timeout_ms);
  --call->host->background_open;
  PromptIds ids;
  const TokenizeEnd end =
      absl::IsDeadlineExceeded(answer.status()) ? TokenizeEnd::kTimeout : Judge(answer, &ids);
  recorder_.background_tokenize_calls[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  const int64_t now = clock_.NowNanos();
  if (end == TokenizeEnd::kOk || end == TokenizeEnd::kRefused) call->host->background_rest.Worked();
  if (end == TokenizeEnd::kUnknown) call->host->rest.Unknown(now);
  if (end == TokenizeEnd::kTimeout || end == TokenizeEnd::kFailed) call->host->background_rest.Failed(now);
  if (end == TokenizeEnd::kOk) router_.LearnTokens(call->text, call->worker, std::move(ids));
  background_calls_.fetch_sub(1);
}

}  // namespace vllm_router
