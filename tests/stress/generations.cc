// Threads look generations up while others raise them and one merges what Redis has: to each thread they only grow, a
// raise is seen at once by the thread that made it, and no step is lost on its way to Redis.
#include "response_cache/generations.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stress.h"

namespace {

using namespace vllm_router;

constexpr int kThreads = 4;
constexpr uint32_t kRounds = 20'000;
constexpr uint32_t kModels = 64;

std::string ModelOf(uint32_t number) { return "model-" + std::to_string(number % kModels); }

}  // namespace

int main() {
  Generations generations(/*seed=*/1, /*largest_step=*/3);
  std::map<std::string, uint64_t> redis;  // of the first thread
  const auto exchange = [&] {
    for (const Generations::Increment& increment : generations.Pending())
      generations.Written(increment.field, increment.by, redis[increment.field] += increment.by);
    std::vector<Generations::Field> fields;
    for (const auto& [name, count] : redis) fields.push_back({name, count});
    STRESS_CHECK(generations.Merge(fields).empty());
  };
  RunTogether(kThreads, [&](int thread) {
    std::array<uint64_t, kModels> seen{};
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t number = round * 7 + static_cast<uint32_t>(thread);
      uint64_t& last = seen[number % kModels];
      const uint64_t now = generations.Of(ModelOf(number));
      STRESS_CHECK(now >= last);
      last = now;
      if (thread == 0 && round % 16 == 0) exchange();
      if (thread != 0 && round % 64 == 0) {
        const uint64_t raised = generations.Bump(ModelOf(number));
        STRESS_CHECK(raised > last && generations.Of(ModelOf(number)) >= raised);
      }
      if (thread != 0 && round % 1'024 == 0) generations.BumpAll();
    }
  });
  exchange();
  STRESS_CHECK(generations.Pending().empty());
  for (const Generations::Count& count : generations.Counts())
    STRESS_CHECK(redis[count.field] == count.count);
}
