// What does the map from an engine's hashes to places cost: to find a known hash, to miss an unknown one, and to
// keep its size while blocks come and go? And how many bytes is an entry, the growth of the table included?
//
// Hashes are looked up in an order of their own, one after the other, so most accesses to a large map miss the
// cache, and none waits for the one before. "prefetched": as EventApplier does it, 48 hashes ahead.
#include "events/identity_map.h"

#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"

namespace vllm_router {
namespace {

constexpr size_t kTogether = 48;  // blocks of an event

struct Filled {
  explicit Filled(size_t size) : map(UINT64_MAX, 7) {
    Random random(size);
    for (size_t i = 0; i < size; ++i) Add(random.Next());
  }
  void Add(EngineHash hash) {
    const BlockRef ref(static_cast<uint32_t>(hashes.size() / kTogether + 1), 1, hashes.size() % kTogether);
    map.AddCopy(map.Add(hash, {&ref, 1}));
    hashes.push_back(hash);
  }
  IdentityMap map;
  std::vector<EngineHash> hashes;
};

void BM_Find(benchmark::State& state) {
  Filled filled(static_cast<size_t>(state.range(0)));
  const bool known = state.range(1) != 0;
  const bool prefetched = state.range(2) != 0;
  Random random(3);
  std::vector<EngineHash> wanted(1 << 16);
  for (EngineHash& hash : wanted)
    hash = known ? filled.hashes[random.Below(filled.hashes.size())] : random.Next();
  size_t at = 0;
  uint64_t found = 0;
  for (auto _ : state) {
    if (prefetched) {
      for (size_t i = 0; i < kTogether; ++i) filled.map.Prefetch(wanted[(at + i) % wanted.size()]);
    }
    for (size_t i = 0; i < kTogether; ++i) found += filled.map.Find(wanted[at++ % wanted.size()]) != nullptr;
  }
  benchmark::DoNotOptimize(found);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kTogether));
}
BENCHMARK(BM_Find)
    ->ArgNames({"entries", "known", "prefetched"})
    ->ArgsProduct({{16'000, 1'000'000}, {0, 1}, {0, 1}});

// The oldest 48 are erased, and as many added.
void BM_Turnover(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  Filled filled(size);
  Random random(9);
  size_t oldest = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < kTogether; ++i) {
      IdentityMap::Entry* const entry = filled.map.Find(filled.hashes[oldest]);
      filled.map.Take(entry, Tier::kGpu);
      filled.map.Erase(entry);
      const EngineHash hash = random.Next();
      const BlockRef ref(static_cast<uint32_t>(oldest / kTogether + 1), 1, i);
      filled.map.AddCopy(filled.map.Add(hash, {&ref, 1}));
      filled.hashes[oldest] = hash;
      if (++oldest == size) oldest = 0;
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kTogether));
  state.counters["bytes/entry"] = static_cast<double>(filled.map.bytes()) / static_cast<double>(size);
}
BENCHMARK(BM_Turnover)->ArgName("entries")->Arg(16'000)->Arg(1'000'000);

void BM_Grow(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  double bytes = 0;
  for (auto _ : state) {
    const Filled filled(size);
    bytes = static_cast<double>(filled.map.bytes()) / static_cast<double>(size);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["bytes/entry"] = bytes;
}
BENCHMARK(BM_Grow)->ArgName("entries")->Arg(1'000)->Arg(16'000)->Arg(24'000)->Arg(1'000'000);

}  // namespace
}  // namespace vllm_router
