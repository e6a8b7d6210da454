// Two threads insert at a tight limit, two match, one takes workers away, trims and adds new ones. One worker was given
// a text in the beginning that others pass all the time; whoever is found is found with no more than a prompt has.
#include "index/prefix_tree.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMaxSize = 256 * 1024;
constexpr int kInserts = 15'000;

// Prompts that part from a trunk at many places; one in a hundred takes several turns at the mutex.
std::vector<uint32_t> MakePrompt(Random* random) {
  std::vector<uint32_t> prompt(random->Below(100) == 0 ? 20'000 : random->Below(400));
  const uint64_t branch = random->Below(64) * 8;
  const auto leaf = static_cast<uint32_t>(random->Below(50));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = i < branch ? 7 : 1000 + leaf;
  return prompt;
}

void ThreadsShareATree(EvictionOrder eviction) {
  TokenTree tree({.max_size = kMaxSize, .eviction = eviction, .page_size = 8});
  std::vector<WorkerSlot> workers;
  for (int i = 0; i < 6; ++i) workers.push_back(tree.AddWorker().value());
  std::atomic<uint16_t> coming_and_going{static_cast<uint16_t>(tree.AddWorker().value())};
  std::atomic<int> inserting{2};
  std::atomic<uint64_t> matched{0};
  RunTogether(5, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    PrefixMatches matches;
    if (thread < 2) {
      for (int i = 0; i < kInserts; ++i) {
        const std::vector<uint32_t> prompt = MakePrompt(&random);
        const WorkerSlot worker = random.Below(8) == 0 ? WorkerSlot{coming_and_going.load()}
                                                       : workers[random.Below(workers.size())];
        const PrefixInsert how{
            .is_start = random.Below(2) == 0, .priority = static_cast<int32_t>(random.Below(3))};
        if (random.Below(2) == 0) {
          tree.Insert(prompt, worker, how);
        } else {
          tree.Match(prompt, &matches);
          tree.Insert(prompt, worker, how, &matches);
        }
        STRESS_CHECK(tree.size() <= kMaxSize);
        if (random.Below(500) == 0) tree.EvictWorker(worker, random.Below(10'000));
      }
      --inserting;
      return;
    }
    if (thread == 2) {
      while (inserting > 0) {
        tree.RemoveWorker(WorkerSlot{coming_and_going.load()});
        coming_and_going = static_cast<uint16_t>(tree.AddWorker().value());
        tree.Trim(1 + random.Below(50), kMaxSize - random.Below(kMaxSize / 4));
      }
      return;
    }
    while (inserting > 0) {
      const std::vector<uint32_t> prompt = MakePrompt(&random);
      tree.Match(prompt, &matches);
      STRESS_CHECK(matches.total() == prompt.size());
      uint64_t before = prompt.size();
      for (const PrefixMatches::Entry& entry : matches.entries()) {
        STRESS_CHECK(entry.matched <= before && entry.matched % 8 == 0 && entry.matched > 0);
        before = entry.matched;
      }
      for (const uint64_t end : matches.ends()) STRESS_CHECK(end <= prompt.size());
      STRESS_CHECK(matches.StartsAt(matches.best()) <= matches.starts());
      ++matched;
    }
  });
  STRESS_CHECK(matched > 100);
  for (const WorkerSlot worker : workers) tree.RemoveWorker(worker);
  tree.RemoveWorker(WorkerSlot{coming_and_going.load()});
  while (tree.Trim(1000, kMaxSize)) {
  }
  const PrefixTreeStats stats = tree.stats();
  STRESS_CHECK(stats.nodes == 0 && stats.owners == 0 && stats.size == 0 && stats.workers == 0);
}

}  // namespace
}  // namespace vllm_router

int main() {
  for (const auto eviction :
       {vllm_router::EvictionOrder::kLru, vllm_router::EvictionOrder::kMru,
        vllm_router::EvictionOrder::kLfu}) {
    vllm_router::ThreadsShareATree(eviction);
  }
}
