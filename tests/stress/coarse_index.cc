// Two threads record and take back, two refine matches, one takes workers away and brings them back. A match is never
// longer than its prompt, and one that is known by strides alone ends with a stride; in the end nothing is left.
#include "index/coarse_index.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr uint32_t kStride = 4;
constexpr int kRecords = 20'000;
constexpr size_t kWorkers = 5;

// Prompts with common beginnings: block b of prompt p is named by b and, from the tenth block on, by p.
std::vector<BlockHash> MakePrompt(Random* random) {
  const uint64_t prompt = random->Below(20);
  std::vector<BlockHash> blocks;
  const size_t length = random->Below(40);
  for (size_t i = 0; i < length; ++i) blocks.push_back(1 + i + (i < 10 ? 0 : 1'000 * (1 + prompt)));
  return blocks;
}

void ThreadsShareAnIndex() {
  CoarseIndex coarse({.stride_blocks = kStride, .tracker = {.max_blocks_per_worker = 200}});
  for (size_t slot = 0; slot < kWorkers; ++slot) coarse.Add(static_cast<WorkerSlot>(slot));
  std::atomic<int> recording{2};
  RunTogether(5, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    if (thread < 2) {
      std::vector<BlockHash> strides;
      for (int i = 0; i < kRecords; ++i) {
        const auto slot = static_cast<WorkerSlot>(random.Below(kWorkers));
        CoarseIndex::StridesOf(MakePrompt(&random), kStride, &strides);
        if (random.Below(2) == 0) {
          coarse.Record(slot, strides);
        } else if (const uint64_t claim = coarse.RecordOpen(slot, strides, random.Below(3)); claim != 0) {
          random.Below(2) == 0 ? coarse.Confirm(claim) : coarse.Withdraw(claim);
        }
      }
      --recording;
      return;
    }
    BlockMatches matches;
    while (recording > 0) {
      if (thread == 4) {
        const auto slot = static_cast<WorkerSlot>(random.Below(kWorkers));
        coarse.Remove(slot);
        coarse.Add(slot);
        coarse.Forget(static_cast<WorkerSlot>(random.Below(kWorkers)));
        continue;
      }
      const std::vector<BlockHash> prompt = MakePrompt(&random);
      const auto own = static_cast<WorkerSlot>(random.Below(kWorkers));
      const auto held = static_cast<uint32_t>(random.Below(prompt.size() + 1));
      matches.Clear();
      matches.Raise(own, {held, held, held});
      coarse.Refine(prompt, &matches);
      for (const BlockMatch& match : matches.entries()) {
        STRESS_CHECK(match.longest() <= prompt.size());
        STRESS_CHECK(match.owner == own || match.longest() % kStride == 0);
      }
    }
  });
  for (size_t slot = 0; slot < kWorkers; ++slot) coarse.Remove(static_cast<WorkerSlot>(slot));
  STRESS_CHECK(coarse.strides() == 0);
}

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::ThreadsShareAnIndex();
  return 0;
}
