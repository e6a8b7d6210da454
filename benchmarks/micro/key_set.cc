// What the look-up of a client's key costs, by the number of keys in the file, and whether it is one of them.
#include <benchmark/benchmark.h>

#include <string>

#include "proxy/security/key_set.h"

namespace vllm_router {
namespace {

std::string KeyOf(int64_t number) { return "sk-" + std::to_string(number * 7919) + "-0123456789abcdef"; }

KeySet Make(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += KeyOf(i) + "\n";
  return *KeySet::Parse(text, "keys");
}

// The digest of the key is part of it.
void BM_KeyThatIsThere(benchmark::State& state) {
  const KeySet keys = Make(state.range(0));
  const std::string key = KeyOf(state.range(0) / 2);
  for (auto _ : state) benchmark::DoNotOptimize(keys.Contains(key));
}
void BM_KeyThatIsNot(benchmark::State& state) {
  const KeySet keys = Make(state.range(0));
  const std::string key = KeyOf(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(keys.Contains(key));
}
void BM_ParseKeys(benchmark::State& state) {
  std::string text;
  for (int64_t i = 0; i < state.range(0); ++i) text += KeyOf(i) + "\n";
  for (auto _ : state) benchmark::DoNotOptimize(KeySet::Parse(text, "keys"));
}

BENCHMARK(BM_KeyThatIsThere)->Arg(1)->Arg(100)->Arg(10'000);
BENCHMARK(BM_KeyThatIsNot)->Arg(1)->Arg(100)->Arg(10'000);
BENCHMARK(BM_ParseKeys)->Arg(1)->Arg(100)->Arg(10'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace vllm_router
