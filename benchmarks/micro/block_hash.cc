// What does it cost to hash a prompt's blocks? Beside it the floor (one XXH3 over parent and tokens in one call), and
// the way that feeds a streaming state token by token.
#include "hashing/block_hash.h"

#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/random.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kBlocks = 512;

std::vector<uint32_t> Tokens(int64_t block_size) {
  Random random(3);
  std::vector<uint32_t> tokens(kBlocks * static_cast<size_t>(block_size));
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random.Next());
  return tokens;
}

// Runs `hash` over the prompt; time per block, and a checksum of the last hash.
template <typename Hash>
void Measure(benchmark::State& state, Hash hash) {
  const std::vector<uint32_t> tokens = Tokens(state.range(0));
  std::vector<BlockHash> chain(kBlocks);
  for (auto _ : state) {
    hash(tokens, chain);
    benchmark::DoNotOptimize(chain.data());
  }
  state.counters["block"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * kBlocks,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.SetLabel("checksum " + Hex16(chain.back()));
}

void BM_ChainedHash(benchmark::State& state) {
  const BlockHasher hasher(static_cast<uint32_t>(state.range(0)));
  Measure(state, [&](const auto& tokens, auto& chain) { hasher.Hash(hasher.Root({}), tokens, chain); });
}
BENCHMARK(BM_ChainedHash)->ArgName("block_size")->Arg(16)->Arg(32)->Arg(128);

void BM_PositionalHash(benchmark::State& state) {
  const BlockHasher hasher(static_cast<uint32_t>(state.range(0)));
  Measure(state, [&](const auto& tokens, auto& chain) { hasher.HashPositions(tokens, chain); });
}
BENCHMARK(BM_PositionalHash)->ArgName("block_size")->Arg(16);

void BM_ParentAndTokensInOneCall(benchmark::State& state) {
  Measure(state, [](const auto& tokens, auto& chain) {
    char joined[72];
    BlockHash parent = 0;
    for (size_t i = 0; i < kBlocks; ++i) {
      std::memcpy(joined, &parent, 8);
      std::memcpy(joined + 8, tokens.data() + 16 * i, 64);
      chain[i] = parent = XXH3_64bits(joined, sizeof(joined));
    }
  });
}
BENCHMARK(BM_ParentAndTokensInOneCall)->ArgName("block_size")->Arg(16);

void BM_StreamingTokenByToken(benchmark::State& state) {
  XXH3_state_t stream;
  Measure(state, [&](const auto& tokens, auto& chain) {
    BlockHash parent = 0;
    for (size_t i = 0; i < kBlocks; ++i) {
      XXH3_64bits_reset(&stream);
      XXH3_64bits_update(&stream, &parent, sizeof(parent));
      for (size_t k = 0; k < 16; ++k) XXH3_64bits_update(&stream, &tokens[16 * i + k], sizeof(uint32_t));
      chain[i] = parent = XXH3_64bits_digest(&stream);
    }
  });
}
BENCHMARK(BM_StreamingTokenByToken)->ArgName("block_size")->Arg(16);

}  // namespace
}  // namespace vllm_router
