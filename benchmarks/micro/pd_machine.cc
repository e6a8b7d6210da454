// What does the life cycle of a request with prefill and decode workers cost, per step?
#include "disaggregation/pd_machine.h"

#include <span>

#include <benchmark/benchmark.h>

namespace vllm_router {
namespace {

constexpr PdEvent Plan(PdOrder order) { return {.type = PdEventType::kPlanned, .plan = {.order = order}}; }

// As most requests go.
constexpr PdEvent kSerial[] = {
    Plan(PdOrder::kSerial),        {.type = PdEventType::kPOkWhole},   {.type = PdEventType::kDSent},
    {.type = PdEventType::kDHead}, {.type = PdEventType::kDFirstByte}, {.type = PdEventType::kDDone}};
constexpr PdEvent kConcurrent[] = {Plan(PdOrder::kConcurrent),         {.type = PdEventType::kDSent},
                                   {.type = PdEventType::kDHead},      {.type = PdEventType::kPOkWhole},
                                   {.type = PdEventType::kDFirstByte}, {.type = PdEventType::kDDone}};
// Two attempts, the second of them local, and a client that leaves.
constexpr PdEvent kFailing[] = {
    Plan(PdOrder::kConcurrent),
    {.type = PdEventType::kDSent},
    {.type = PdEventType::kDError},
    {.type = PdEventType::kNoOtherPair},
    {.type = PdEventType::kPlanned, .plan = {.kind = PdAttemptKind::kLocal}},
    {.type = PdEventType::kDSent},
    {.type = PdEventType::kClientGone}};

// The time is that of one step, with the loop over its actions.
void BM_PdMachineStep(benchmark::State& state, std::span<const PdEvent> events) {
  uint64_t actions = 0;
  bool over = true;
  size_t at = 0;
  PdMachine machine;
  for (auto _ : state) {
    for (const PdAction action : machine.Step(events[at])) actions += static_cast<uint64_t>(action);
    if (++at == events.size()) {
      over &= machine.over();
      machine = PdMachine();
      at = 0;
    }
  }
  benchmark::DoNotOptimize(actions);
  if (!over) state.SkipWithError("a story did not end");
}
BENCHMARK_CAPTURE(BM_PdMachineStep, serial, std::span<const PdEvent>(kSerial));
BENCHMARK_CAPTURE(BM_PdMachineStep, concurrent, std::span<const PdEvent>(kConcurrent));
BENCHMARK_CAPTURE(BM_PdMachineStep, failing, std::span<const PdEvent>(kFailing));

}  // namespace
}  // namespace vllm_router
