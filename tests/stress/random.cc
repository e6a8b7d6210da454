// Many threads throw one Random: no number may be lost or thrown twice.
#include "base/random.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr size_t kThrows = 50'000;
  constexpr uint64_t kSeed = 7;

  Random shared(kSeed);
  std::vector<std::vector<uint64_t>> thrown(kThreads, std::vector<uint64_t>(kThrows));
  RunTogether(kThreads, [&](int thread) {
    for (uint64_t& number : thrown[thread]) number = shared.Next();
  });

  std::vector<uint64_t> together;
  for (const auto& part : thrown) together.insert(together.end(), part.begin(), part.end());
  std::vector<uint64_t> alone(together.size());
  Random lonely(kSeed);
  std::generate(alone.begin(), alone.end(), [&] { return lonely.Next(); });
  std::sort(together.begin(), together.end());
  std::sort(alone.begin(), alone.end());
  STRESS_CHECK(together == alone);
}
