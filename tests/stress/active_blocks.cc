// Threads open and close requests of a few workers, one of which is replaced by others all the time: what is left in the end
// is what is open, and no worker has the blocks of another.
#include "policy/active_blocks.h"

#include <utility>
#include <vector>

#include "base/random.h"
#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  constexpr uint64_t kReplaced = 3;  // the slot whose worker changes

  ActiveBlocks active;
  RunTogether(kThreads, [&](int thread) {
    Random random(static_cast<uint64_t>(thread) + 1);
    std::vector<std::pair<ActiveBlocks::Place, uint64_t>> open;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t slot = random.Below(4);
      const auto worker = static_cast<uint32_t>(slot == kReplaced ? 100 + random.Below(1000) : slot);
      const ActiveBlocks::Place place{static_cast<WorkerSlot>(slot), WorkerId{worker}};
      std::vector<BlockHash> chain;
      for (uint64_t block = random.Below(40); block > 0; --block) chain.push_back(1000 * worker + block);
      open.emplace_back(place, active.Open(place, chain));
      STRESS_CHECK(active.CountLeading(place, chain) <= chain.size());
      if (slot != kReplaced) STRESS_CHECK(active.Count(place) <= 40);
      if (round % 3 == 0) continue;
      const size_t which = random.Below(open.size());
      active.Close(open[which].first, open[which].second);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    }
    for (const auto& [place, request] : open) active.Close(place, request);
  });
  for (uint32_t worker = 0; worker < kReplaced; ++worker)
    STRESS_CHECK(active.Count({static_cast<WorkerSlot>(worker), WorkerId{worker}}) == 0);
}
