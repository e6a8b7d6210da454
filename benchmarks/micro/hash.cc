// What does the hash of a key cost? 24 bytes is a short session key, 57 one with a UUID, 1024 the head of a prompt.
#include "hashing/hash.h"

#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "base/text.h"
#include "hashing/sha256.h"

namespace vllm_router {
namespace {

constexpr size_t kKeys = 1024;  // a power of two; all of them stay in the cache

std::vector<std::string> Keys(size_t bytes) {
  Random random(1);
  std::vector<std::string> keys(kKeys);
  for (std::string& key : keys) {
    while (key.size() < bytes) key += Hex16(random.Next());
    key.resize(bytes);
  }
  return keys;
}

void BM_Hash(benchmark::State& state, uint64_t (*hash)(std::string_view)) {
  const std::vector<std::string> keys = Keys(static_cast<size_t>(state.range(0)));
  uint64_t checksum = 0;
  for (const std::string& key : keys) checksum += hash(key);
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(hash(keys[next]));
    next = (next + 1) % kKeys;
  }
  state.SetItemsProcessed(state.iterations());
  state.SetLabel("checksum " + Hex16(checksum));
}

uint64_t Xxh3Of(std::string_view key) { return Xxh3(key); }
uint64_t Sha256Of(std::string_view key) { return DigestWord(Sha256({key}), 0); }
uint64_t FurcPoint(std::string_view key) { return RingHash(HashFunction::kFurc, key); }
uint64_t Murmur(std::string_view key) { return Murmur64A(key, 1); }

BENCHMARK_CAPTURE(BM_Hash, function : xxh3, Xxh3Of)->ArgName("bytes")->Arg(24)->Arg(57)->Arg(1024);
BENCHMARK_CAPTURE(BM_Hash, function : sha256, Sha256Of)->ArgName("bytes")->Arg(24)->Arg(57)->Arg(1024);
BENCHMARK_CAPTURE(BM_Hash, function : murmur64a, Murmur)->ArgName("bytes")->Arg(24)->Arg(57)->Arg(1024);
BENCHMARK_CAPTURE(BM_Hash, function : furc, FurcPoint)->ArgName("bytes")->Arg(24)->Arg(57)->Arg(1024);

}  // namespace
}  // namespace vllm_router
