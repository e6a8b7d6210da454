// What does a throw cost, alone and with others at the same random?
#include "base/random.h"

#include <benchmark/benchmark.h>

namespace vllm_router {
namespace {

void BM_DiceBelow(benchmark::State& state) {
  static Random random(1);
  uint64_t checksum = 0;
  for (auto _ : state) checksum += random.Below(64);
  benchmark::DoNotOptimize(checksum);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_DiceBelow)->ThreadRange(1, 4)->UseRealTime();

}  // namespace
}  // namespace vllm_router
