// What does a ring cost: to build, to look up, and to walk when owners are rejected? Beside it the same lookups by
// std::lower_bound over the sorted points, which is what a ring without a bucket table does.
#include "index/hash_ring.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/dice.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr uint32_t kPointsPerWorker = 160;
constexpr size_t kQueries = 1 << 16;

std::vector<std::string> Names(int64_t workers) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < workers; ++i)
    names.push_back(Concat("http://10.1.", i / 256, ".", i % 256, ":8000"));
  return names;
}

HashRing Ring(const std::vector<std::string>& names, HashFunction function) {
  std::vector<HashRing::Node> nodes;
  for (const std::string& name : names) nodes.push_back({.name = name, .points = kPointsPerWorker});
  return HashRing(nodes, function);
}

std::vector<uint64_t> Queries() {
  Dice dice(5);
  std::vector<uint64_t> queries(kQueries);
  for (uint64_t& query : queries) query = dice.Next();
  return queries;
}

// Runs `lookup` over the queries, in order, with a checksum of one pass.
template <typename Lookup>
void Look(benchmark::State& state, Lookup lookup) {
  const std::vector<uint64_t> queries = Queries();
  uint64_t checksum = 0;
  for (size_t i = 0; i < kQueries; ++i) checksum += (i + 1) * (lookup(queries[i]) + 1);
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(lookup(queries[next]));
    next = (next + 1) % kQueries;
  }
  state.SetItemsProcessed(state.iterations());
  state.SetLabel("checksum " + Hex16(checksum));
}

void BM_HashRingLookup(benchmark::State& state) {
  const HashRing ring = Ring(Names(state.range(0)), HashFunction::kXxh3);
  Look(state, [&ring](uint64_t hash) { return ring.owner(ring.FindPoint(hash)); });
}
BENCHMARK(BM_HashRingLookup)->ArgName("workers")->Arg(8)->Arg(64)->Arg(1024);

void BM_SortedVectorLookup(benchmark::State& state) {
  const HashRing ring = Ring(Names(state.range(0)), HashFunction::kXxh3);
  std::vector<uint64_t> points;
  for (size_t i = 0; i < ring.size(); ++i) points.push_back(ring.hash(i));
  Look(state, [&](uint64_t hash) {
    const size_t point =
        static_cast<size_t>(std::lower_bound(points.begin(), points.end(), hash) - points.begin());
    return ring.owner(point == points.size() ? 0 : point);
  });
}
BENCHMARK(BM_SortedVectorLookup)->ArgName("workers")->Arg(8)->Arg(64)->Arg(1024);

// One worker in four is rejected, as when a quarter of the fleet is down.
void BM_HashRingWalk(benchmark::State& state) {
  const HashRing ring = Ring(Names(state.range(0)), HashFunction::kXxh3);
  Look(state, [&ring](uint64_t hash) {
    return ring.FindOwner(hash, [](uint32_t owner) { return owner % 4 != 0; });
  });
}
BENCHMARK(BM_HashRingWalk)->ArgName("workers")->Arg(8)->Arg(64)->Arg(1024);

void BM_HashRingBuild(benchmark::State& state, HashFunction function) {
  const std::vector<std::string> names = Names(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Ring(names, function).size());
  const HashRing ring = Ring(names, function);
  uint64_t checksum = 0;
  for (size_t i = 0; i < ring.size(); ++i) checksum += ring.hash(i) * (ring.owner(i) + 1);
  state.SetItemsProcessed(state.iterations() * state.range(0) * kPointsPerWorker);
  state.SetLabel("checksum " + Hex16(checksum));
}
BENCHMARK_CAPTURE(BM_HashRingBuild, function
                  : furc, HashFunction::kFurc)
    ->ArgName("workers")
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_HashRingBuild, function
                  : xxh3, HashFunction::kXxh3)
    ->ArgName("workers")
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vllm_router
