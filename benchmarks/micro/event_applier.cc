// What a block costs from the payload of a batch to the index: decoding, engine hash, chain, index, removal.
//
//   prefill   48 blocks in a stored event, as many removed, one event each, as vLLM sends them
//   decode    16 stored events of one block in a batch, as many removed
//
// Blocks of 16 tokens, a quarter of whose ids take five bytes. Each source's cache is full when the time begins,
// so that each block stored is one removed. A block-op is one block stored or removed.
#include <benchmark/benchmark.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "events/event_applier.h"
#include "events/kv_event.h"
#include "index/reported_blocks.h"
#include "kv_engine.h"

namespace vllm_router::bench {
namespace {

// sources, blocks of each cache, blocks of a stored event
void BM_Apply(benchmark::State& state) {
  const auto sources = static_cast<size_t>(state.range(0));
  const auto capacity = static_cast<size_t>(state.range(1));
  const auto together = static_cast<size_t>(state.range(2));
  const size_t chain = together == 1 ? 16 : together;
  const BlockHasher hasher(kBlockTokens);
  ReportedBlocks reported(hasher);
  std::vector<ReportedBlocks::Known> known;
  for (size_t i = 0; i < sources; ++i)
    known.push_back({static_cast<WorkerId>(i), static_cast<WorkerSlot>(i)});
  reported.SetWorkers(known);
  std::deque<KvEngine> engines;
  std::vector<std::unique_ptr<EventApplier>> appliers;
  for (size_t i = 0; i < sources; ++i) {
    engines.emplace_back(
        KvEngineOptions{.seed = i + 1, .blocks = capacity, .chain = chain, .together = together});
    appliers.push_back(std::make_unique<EventApplier>(
        &reported, static_cast<WorkerId>(i), EventApplierOptions{.model = "m"}));
  }
  KvBatch batch;
  const auto apply = [&](size_t source, const std::string& payload) {
    if (!DecodeKvBatch({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}, &batch))
      state.SkipWithError("a batch was malformed");
    appliers[source]->Apply(batch, 0);
  };
  for (size_t i = 0; i < sources; ++i) {
    while (engines[i].resident() + chain <= capacity) apply(i, engines[i].Step());
  }
  constexpr size_t kPrepared = 4096;
  std::vector<std::string> payloads(kPrepared);
  size_t next = kPrepared;
  uint64_t ops = 0;
  for (auto _ : state) {
    if (next == kPrepared) {
      state.PauseTiming();
      for (size_t i = 0; i < kPrepared; ++i) payloads[i] = engines[i % sources].Step();
      next = 0;
      state.ResumeTiming();
    }
    apply(next % sources, payloads[next]);
    ++next;
    ops += 2 * chain;
  }
  size_t bytes = reported.index().stats().bytes;
  uint64_t pairs = 0;
  for (const auto& applier : appliers) {
    bytes += applier->bytes();
    pairs += applier->TierCounts()[0];
  }
  state.counters["ops/s"] = benchmark::Counter(static_cast<double>(ops), benchmark::Counter::kIsRate);
  state.counters["pairs"] = static_cast<double>(pairs);
  state.counters["bytes/pair"] = static_cast<double>(bytes) / static_cast<double>(pairs);
}
BENCHMARK(BM_Apply)
    ->ArgNames({"sources", "blocks", "together"})
    ->Args({8, 16'000, 48})
    ->Args({64, 16'000, 48})
    ->Args({64, 16'000, 1});

}  // namespace
}  // namespace vllm_router::bench
