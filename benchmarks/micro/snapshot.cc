// What does a look at the published fleet cost: by the lock, and by the per-thread copy that only compares a number?
#include "base/snapshot.h"

#include <cstdint>
#include <memory>

#include <benchmark/benchmark.h>

namespace vllm_router {
namespace {

Snapshot<uint64_t>& Shared() {
  static Snapshot<uint64_t> snapshot(std::make_shared<const uint64_t>(1));
  return snapshot;
}

void BM_SnapshotLoad(benchmark::State& state) {
  uint64_t checksum = 0;
  for (auto _ : state) checksum += *Shared().Load();
  if (checksum != static_cast<uint64_t>(state.iterations())) state.SkipWithError("a value was misread");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_SnapshotLoad)->ThreadRange(1, 4)->UseRealTime();

void BM_SnapshotCachedGet(benchmark::State& state) {
  Snapshot<uint64_t>::Cached cached(&Shared());
  uint64_t checksum = 0;
  for (auto _ : state) {
    checksum += *cached.Get();
    benchmark::ClobberMemory();
  }
  if (checksum != static_cast<uint64_t>(state.iterations())) state.SkipWithError("a value was misread");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_SnapshotCachedGet)->ThreadRange(1, 4)->UseRealTime();

}  // namespace
}  // namespace vllm_router
