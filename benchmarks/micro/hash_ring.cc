// What does a ring cost: to build, to look up, and to walk when owners are rejected? Beside it the same lookups by
// std::lower_bound over the sorted points, which is what a ring without a bucket table does.
#include "index/hash_ring.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/limits.h"
#include "base/random.h"
#include "base/text.h"
#include "index/load_bound.h"

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
  Random random(5);
  std::vector<uint64_t> queries(kQueries);
  for (uint64_t& query : queries) query = random.Next();
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

// Bounded loads, as prefix_aware picks: a fifth of the traffic on ten keys, 32 requests open per worker, each pick
// ends the oldest. Beside it the same picks by std::lower_bound. The checksum is over the workers picked.
template <typename Start>
void Pick(benchmark::State& state, Start start) {
  const auto workers = static_cast<uint32_t>(state.range(0));
  const HashRing ring = Ring(Names(workers), HashFunction::kXxh3);
  const auto first_point = start(ring);
  std::vector<uint64_t> queries = Queries();
  Random random(9);
  for (uint64_t& query : queries) {
    if (random.Below(5) == 0) query = Xxh3(Concat("hot ", random.Below(10)));
  }
  std::vector<int64_t> loads;
  std::vector<uint32_t> open;
  uint64_t steps = 0;
  size_t next = 0;
  const auto pick = [&] {
    uint32_t& oldest = open[next % open.size()];
    const uint64_t total = next < open.size() ? next : open.size() - 1;
    if (next >= open.size()) --loads[oldest];
    const int64_t cap = LoadBound(total, uint64_t{workers} * kWeightOne, 1250).Cap(kWeightOne);
    size_t point = first_point(queries[next % kQueries]);
    while (loads[ring.owner(point)] >= cap) {
      if (++point == ring.size()) point = 0;
      ++steps;
    }
    oldest = ring.owner(point);
    ++loads[oldest];
    ++next;
    return oldest;
  };
  const auto empty = [&] {
    loads.assign(workers, 0);
    open.assign(size_t{32} * workers, 0);
    next = 0;
    steps = 0;
  };
  empty();
  uint64_t checksum = 0;
  for (size_t i = 0; i < kQueries; ++i) checksum += (i + 1) * (pick() + 1);
  for (auto _ : state) benchmark::DoNotOptimize(pick());
  state.SetItemsProcessed(state.iterations());
  state.counters["extra_steps"] = static_cast<double>(steps) / static_cast<double>(next);
  state.SetLabel("checksum " + Hex16(checksum));
}

void BM_HashRingPickBounded(benchmark::State& state) {
  Pick(state, [](const HashRing& ring) { return [&ring](uint64_t hash) { return ring.FindPoint(hash); }; });
}
BENCHMARK(BM_HashRingPickBounded)->ArgName("workers")->Arg(64)->Arg(1024);

void BM_SortedVectorPickBounded(benchmark::State& state) {
  Pick(state, [](const HashRing& ring) {
    std::vector<uint64_t> points;
    for (size_t i = 0; i < ring.size(); ++i) points.push_back(ring.hash(i));
    return [points = std::move(points)](uint64_t hash) {
      const auto point =
          static_cast<size_t>(std::lower_bound(points.begin(), points.end(), hash) - points.begin());
      return point == points.size() ? 0 : point;
    };
  });
}
BENCHMARK(BM_SortedVectorPickBounded)->ArgName("workers")->Arg(64)->Arg(1024);

// One worker leaves and comes back: two rings, each made of the one before it.
void BM_HashRingChange(benchmark::State& state, HashFunction function) {
  const std::vector<std::string> names = Names(state.range(0));
  std::vector<HashRing::Node> nodes;
  for (const std::string& name : names) nodes.push_back({.name = name, .points = kPointsPerWorker});
  const std::span<const HashRing::Node> all(nodes);
  HashRing ring(all, function);
  for (auto _ : state) {
    ring = ring.Changed(all.first(all.size() - 1));
    ring = ring.Changed(all);
  }
  uint64_t checksum = 0;
  for (size_t i = 0; i < ring.size(); ++i) checksum += ring.hash(i) * (ring.owner(i) + 1);
  state.SetItemsProcessed(state.iterations() * 2);
  state.SetLabel("checksum " + Hex16(checksum));
}
BENCHMARK_CAPTURE(BM_HashRingChange, function
                  : furc, HashFunction::kFurc)
    ->ArgName("workers")
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);

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
