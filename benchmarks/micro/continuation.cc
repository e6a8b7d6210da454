// What does it cost to remember a stream, and to compare another run with it, per event?
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "continuation/choice_event.h"
#include "continuation/delivered_text.h"
#include "continuation/event_gate.h"
#include "continuation/rerun_verifier.h"

namespace vllm_router {
namespace {

constexpr int kEvents = 1000;

// As vLLM writes an event of a chat with one token.
constexpr std::string_view kEvent =
    R"(data: {"id":"chatcmpl-8d3c0b7e1f2a4c5d","object":"chat.completion.chunk","created":1764400000,)"
    R"("model":"Qwen/Qwen3-8B","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,)"
    R"("finish_reason":null,"token_ids":null}]})"
    "\n\n";

void BM_ReadChoiceEvent(benchmark::State& state) {
  const std::string_view data = kEvent.substr(6, kEvent.size() - 8);
  for (auto _ : state) benchmark::DoNotOptimize(ReadChoiceEvent(data));
}
BENCHMARK(BM_ReadChoiceEvent);

void BM_EventGate(benchmark::State& state) {
  EventGate gate;
  for (auto _ : state) benchmark::DoNotOptimize(gate.Take(kEvent));
}
BENCHMARK(BM_EventGate);

void BM_DeliveredText(benchmark::State& state) {
  DeliveredText delivered;
  for (auto _ : state) delivered.Add(kEvent);
  if (!delivered.ok()) state.SkipWithError("the stream was not read");
}
BENCHMARK(BM_DeliveredText);

// Half of the events are dropped, the others go on.
void BM_RerunVerifier(benchmark::State& state) {
  DeliveredText delivered;
  for (int i = 0; i < kEvents; ++i) delivered.Add(kEvent);
  RerunState last = RerunState::kVerifying;
  for (auto _ : state) {
    std::string to_client;
    RerunVerifier verifier(delivered);
    for (int i = 0; i < 2 * kEvents; ++i) last = verifier.Add(kEvent, &to_client);
    benchmark::DoNotOptimize(to_client);
  }
  if (last != RerunState::kCaughtUp) state.SkipWithError("the runs differ");
  state.SetItemsProcessed(state.iterations() * 2 * kEvents);
}
BENCHMARK(BM_RerunVerifier);

}  // namespace
}  // namespace vllm_router
