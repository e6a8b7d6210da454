// What does the table of prefixes cost: to put an entry, to put it again, to find it or miss it, at its limit of
// entries, and how many bytes of the heap is an entry?
//
// Digests and workers are made before the time begins. "holders": workers of each prefix.
#include "index/prefix_table.h"

#include <malloc.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"

namespace vllm_router {
namespace {

constexpr uint32_t kWorkers = 64;

size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::vector<Digest256> Digests(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<Digest256> digests(count);
  for (Digest256& digest : digests) {
    for (size_t at = 0; at < digest.size(); at += 8) {
      const uint64_t word = random.Next();
      std::memcpy(&digest[at], &word, sizeof word);
    }
  }
  return digests;
}

struct Filled {
  Filled(size_t entries, size_t holders, uint64_t limit)
      : digests(Digests(1, entries / holders)), table({.max_entries = limit}) {
    std::vector<WorkerId> workers;
    for (uint32_t i = 0; i < kWorkers; ++i) workers.push_back(WorkerId{i});
    table.SetWorkers(workers);
    const size_t before = HeapBytes();
    for (size_t i = 0; i < digests.size(); ++i) {
      for (size_t k = 0; k < holders; ++k) table.Put(digests[i], Worker(i + k), 512, true, 0);
    }
    bytes = static_cast<double>(HeapBytes() - before) / static_cast<double>(digests.size() * holders);
  }
  static WorkerId Worker(size_t i) { return WorkerId{static_cast<uint32_t>(i % kWorkers)}; }

  std::vector<Digest256> digests;
  PrefixTable table;
  double bytes = 0;
};

// New prefixes in a table that is at its limit: each tenth of the entries that goes is in the time.
void BM_PutAtTheLimit(benchmark::State& state) {
  const auto entries = static_cast<size_t>(state.range(0));
  Filled filled(entries, 1, entries);
  const std::vector<Digest256> fresh = Digests(2, 2 * entries);
  size_t at = 0;
  for (auto _ : state) {
    filled.table.Put(fresh[at % fresh.size()], Filled::Worker(at), 512, true, 1);
    ++at;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_PutAtTheLimit)->ArgName("entries")->Arg(100'000)->Arg(1'000'000);

void BM_PutAgain(benchmark::State& state) {
  const auto entries = static_cast<size_t>(state.range(0));
  const auto holders = static_cast<size_t>(state.range(1));
  Filled filled(entries, holders, 2 * entries);
  Random random(3);
  for (auto _ : state) {
    const size_t i = random.Below(filled.digests.size());
    filled.table.Put(filled.digests[i], Filled::Worker(i), 1024, true, 1);
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["bytes/entry"] = filled.bytes;
}
BENCHMARK(BM_PutAgain)
    ->ArgNames({"entries", "holders"})
    ->Args({100'000, 1})
    ->Args({100'000, 8})
    ->Args({1'000'000, 1});

void BM_Find(benchmark::State& state) {
  const auto entries = static_cast<size_t>(state.range(0));
  const bool known = state.range(2) != 0;
  Filled filled(entries, static_cast<size_t>(state.range(1)), 2 * entries);
  const std::vector<Digest256> unknown = Digests(4, 1 << 16);
  const std::vector<Digest256>& wanted = known ? filled.digests : unknown;
  Random random(5);
  std::vector<PrefixTable::Held> held;
  for (auto _ : state) {
    filled.table.Find(wanted[random.Below(wanted.size())], 1, &held);
    benchmark::DoNotOptimize(held.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Find)
    ->ArgNames({"entries", "holders", "known"})
    ->Args({100'000, 1, 1})
    ->Args({100'000, 1, 0})
    ->Args({100'000, 8, 1})
    ->Args({1'000'000, 1, 1});

}  // namespace
}  // namespace vllm_router
