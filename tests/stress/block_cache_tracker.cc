// Two threads record and evict, two ask, one takes workers away and adds new ones. One worker was given a prompt in the
// beginning and nothing since: whatever happens around it, it is found with exactly what it holds of every prompt.
#include "index/block_cache_tracker.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr uint32_t kLength = 64;
constexpr uint32_t kChains = 16;
constexpr uint64_t kCapacity = 200;
constexpr int kRecords = 40'000;

// Chain c shares its first 4 * c blocks with the trunk.
std::vector<std::vector<BlockHash>> MakeChains() {
  Random random(5);
  std::vector<BlockHash> trunk(kLength);
  for (BlockHash& block : trunk) block = random.Next();
  std::vector<std::vector<BlockHash>> chains(kChains, trunk);
  for (uint32_t c = 0; c < kChains; ++c) {
    for (uint32_t i = 4 * c; i < kLength; ++i) chains[c][i] = random.Next();
  }
  chains.push_back(trunk);
  return chains;
}

void WhoIsLeftAloneIsFoundInFull() {
  const std::vector<std::vector<BlockHash>> chains = MakeChains();
  BlockCacheTracker tracker({.max_blocks_per_worker = kCapacity});
  const WorkerSlot left_alone = tracker.AddWorker().value();
  tracker.Record(left_alone, chains.back());
  std::atomic<uint16_t> coming_and_going{static_cast<uint16_t>(tracker.AddWorker().value())};
  std::vector<WorkerSlot> workers;
  for (int i = 0; i < 5; ++i) workers.push_back(tracker.AddWorker().value());

  std::atomic<int> recording{2};
  std::atomic<uint64_t> asked{0};
  RunTogether(5, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    if (thread < 2) {
      for (int i = 0; i < kRecords; ++i) {
        const std::vector<BlockHash>& chain = chains[random.Below(chains.size())];
        const WorkerSlot worker = random.Below(8) == 0 ? WorkerSlot{coming_and_going.load()}
                                                       : workers[random.Below(workers.size())];
        if (worker == left_alone) continue;
        tracker.Record(worker, {chain.data(), 1 + random.Below(kLength)}, random.Below(20));
        if (random.Below(50) == 0) tracker.Evict(worker, random.Below(100));
      }
      --recording;
      return;
    }
    if (thread == 2) {
      while (recording > 0) {
        tracker.RemoveWorker(WorkerSlot{coming_and_going.load()});
        StatusOr<WorkerSlot> next = tracker.AddWorker();
        // On a busy machine a match that stands still may yet see all who left.
        for (; !next.ok(); next = tracker.AddWorker()) tracker.Sweep(50);
        coming_and_going = static_cast<uint16_t>(*next);
        tracker.Sweep(random.Below(50));
        STRESS_CHECK(tracker.stats().index.pairs <= 8 * (kCapacity + kLength));
      }
      return;
    }
    BlockMatches matches;
    while (recording > 0) {
      const uint32_t c = static_cast<uint32_t>(random.Below(chains.size()));
      tracker.Match(chains[c], &matches);
      const BlockMatch* const match = std::as_const(matches).Find(left_alone);
      const uint32_t holds = c == kChains ? kLength : 4 * c;
      STRESS_CHECK((match == nullptr ? 0 : match->longest()) == holds);
      for (const BlockMatch& each : matches.entries()) STRESS_CHECK(each.longest() <= kLength);
      ++asked;
    }
  });
  STRESS_CHECK(asked > 100);
  STRESS_CHECK(tracker.index().CheckInvariants().empty());
  for (const WorkerSlot worker : workers) STRESS_CHECK(tracker.BlockCount(worker) <= kCapacity);
  tracker.Clear();
  while (tracker.Sweep(100)) {
  }
  STRESS_CHECK(tracker.stats().index.blocks == 0 && tracker.stats().segments == 0);
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::WhoIsLeftAloneIsFoundInFull(); }
