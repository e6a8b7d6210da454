// Simulated requests per second of a replay: the router's decisions, the engines' steps and the events between them.
// A chat-like load for 8 workers: 400 conversations over 40 system prompts, turns that grow.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "simulation/replay.h"

namespace vllm_router {
namespace {

struct Load {
  std::vector<double> arrival_s;
  std::vector<uint32_t> input_tokens;
  std::vector<uint32_t> output_tokens;
  std::vector<uint64_t> block_ids;
  std::vector<int64_t> block_offsets{0};
  std::vector<uint64_t> session_ids;

  explicit Load(size_t requests) {
    constexpr uint32_t kBlock = 128;
    Random random(1);
    std::vector<std::vector<uint64_t>> chats(400);
    uint64_t next = 1000;
    for (size_t i = 0; i < requests; ++i) {
      const uint64_t chat = random.Below(chats.size());
      std::vector<uint64_t>& blocks = chats[chat];
      if (blocks.empty() || blocks.size() > 60) {
        blocks.clear();
        for (uint64_t k = 0; k < 4 + chat % 40 % 29; ++k) blocks.push_back(chat % 40 * 100 + k);
      }
      for (uint64_t k = 0; k <= random.Below(8); ++k) blocks.push_back(next++);
      arrival_s.push_back(static_cast<double>(i) * 0.04);
      input_tokens.push_back(static_cast<uint32_t>(blocks.size()) * kBlock);
      output_tokens.push_back(static_cast<uint32_t>(50 + random.Below(400)));
      block_ids.insert(block_ids.end(), blocks.begin(), blocks.end());
      block_offsets.push_back(static_cast<int64_t>(block_ids.size()));
      session_ids.push_back(chat);
    }
  }
};

void BM_Replay(benchmark::State& state, const std::string& policy) {
  const Load load(20'000);
  const ReplayTrace trace{
      .arrival_s = load.arrival_s,
      .input_tokens = load.input_tokens,
      .output_tokens = load.output_tokens,
      .block_ids = load.block_ids,
      .block_offsets = load.block_offsets,
      .session_ids = load.session_ids,
      .block_size = 128};
  ReplayRouting routing;
  routing.router.policy.policy = policy;
  routing.router.policy.max_blocks_per_worker = 5000;
  const ReplayFleet fleet{.workers = 8, .engine = {.cache_blocks = 5000}};
  for (auto run : state) benchmark::DoNotOptimize(Simulate(trace, routing, fleet).value().span_s);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(load.arrival_s.size()));
}

int RegisterAll() {
  for (const std::string policy :
       {"round_robin", "least_load", "consistent_hash", "vllm_cache_aware", "auto", "compare_lmetric"}) {
    benchmark::RegisterBenchmark(
        Concat("BM_Replay/policy:", policy).c_str(),
        [policy](benchmark::State& state) { BM_Replay(state, policy); })
        ->Unit(benchmark::kMillisecond);
  }
  return 0;
}

[[maybe_unused]] const int registered = RegisterAll();

}  // namespace
}  // namespace vllm_router
