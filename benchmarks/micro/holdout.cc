// What does a hold-out cost a request: to find its conversation, to choose the arm, and to keep the turn?
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/limits.h"
#include "holdout/arm_chooser.h"
#include "holdout/turn.h"
#include "routing/conversation.h"
#include "routing/request_view.h"
#include "usual_headers.h"

namespace vllm_router {
namespace {

constexpr size_t kTurnsPerTake = 1024;

std::vector<HeaderField> Headers(bool with_session) {
  std::vector<HeaderField> headers(std::begin(kUsualHeaders), std::end(kUsualHeaders) - 1);
  if (with_session) headers.push_back({"X-Session-ID", "conversation-12345"});
  return headers;
}

void BM_HeadersNameConversation(benchmark::State& state) {
  const bool is_named = state.range(0) != 0;
  const std::vector<HeaderField> headers = Headers(is_named);
  uint64_t named = 0;
  for (auto _ : state) named += HeadersNameConversation(headers) ? 1 : 0;
  if (named != (is_named ? static_cast<uint64_t>(state.iterations()) : 0))
    state.SkipWithError("a name was overlooked, or there was none");
}
BENCHMARK(BM_HeadersNameConversation)->ArgName("named")->Arg(0)->Arg(1);

// A chat of about so many bytes, whose opening is a tenth of it.
std::string ChatBody(size_t bytes, const std::string& member) {
  const std::string text(bytes / 10, 'x');
  std::string body =
      R"({"model":"llama-3","stream":true,"messages":[{"role":"user","content":")" + text + R"("})";
  for (bool model = true; body.size() < bytes; model = !model) {
    body += model ? R"(,{"role":"assistant","content":")" : R"(,{"role":"user","content":")";
    body += text + R"("})";
  }
  return body + R"(],"max_tokens":64)" + member + "}";
}

void FindConversation(benchmark::State& state, const RequestView& request) {
  uint64_t found = 0;
  uint64_t sum = 0;
  for (auto _ : state) {
    const std::optional<uint64_t> conversation = ConversationOf(request);
    found += conversation.has_value();
    sum += conversation.value_or(0);
  }
  benchmark::DoNotOptimize(sum);
  if (found != static_cast<uint64_t>(state.iterations())) state.SkipWithError("a conversation was not found");
}

void BM_ConversationInHeaders(benchmark::State& state) {
  const std::vector<HeaderField> headers = Headers(true);
  FindConversation(state, {.headers = headers, .path = "/v1/chat/completions"});
}
BENCHMARK(BM_ConversationInHeaders);

void BM_ConversationInBody(benchmark::State& state) {
  const std::vector<HeaderField> headers = Headers(false);
  const bool is_named = state.range(1) != 0;
  std::string body =
      ChatBody(static_cast<size_t>(state.range(0)), is_named ? R"(,"prompt_cache_key":"c")" : "");
  const size_t size = body.size();
  body.append(kBodyPadding, '\0');
  FindConversation(
      state, {.headers = headers,
              .path = "/v1/chat/completions",
              .body = std::string_view(body.data(), size),
              .body_is_padded = true});
}
BENCHMARK(BM_ConversationInBody)
    ->ArgNames({"bytes", "named"})
    ->ArgsProduct({{1024, 16'384, 102'400}, {0, 1}});

void BM_Arm(benchmark::State& state) {
  ArmChooser arms(HoldoutKey("secret"), HoldoutParts(50));
  uint64_t conversation = 0;
  uint64_t held_out = 0;
  for (auto _ : state) held_out += arms.Of(++conversation) == Arm::kHoldout;
  const auto all = static_cast<double>(state.iterations());
  if (all > 10'000 && (held_out < 0.4 * all || held_out > 0.6 * all))
    state.SkipWithError("not half are held out");
}
BENCHMARK(BM_Arm);

void BM_Turn(benchmark::State& state) {
  TurnBuffer buffer;
  Turn turn{.prompt_tokens = 1024, .cached_tokens = 960, .first_token_s = 0.03F};
  uint64_t taken = 0;
  for (auto _ : state) {
    ++turn.conversation;
    buffer.Add(turn);
    if (turn.conversation % kTurnsPerTake == 0) taken += buffer.Take().size();
  }
  taken += buffer.Take().size();
  if (taken != static_cast<uint64_t>(state.iterations())) state.SkipWithError("a turn was lost");
}
BENCHMARK(BM_Turn);

}  // namespace
}  // namespace vllm_router
