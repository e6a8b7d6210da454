// Two threads write at a tight limit, two look up, one sweeps, clears and takes workers away. Whoever is found
// is in the fleet or was a moment ago, and holds what was told of it; in the end the counts are those of
// nothing.
#include "index/prefix_table.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMaxEntries = 500;
constexpr int kWrites = 40'000;
constexpr uint32_t kWorkers = 6;

Digest256 MakeDigest(Random* random) {
  Digest256 digest{};
  digest[0] = static_cast<uint8_t>(random->Below(4));
  digest[31] = static_cast<uint8_t>(random->Below(250));
  return digest;
}

uint32_t TokensOf(WorkerId worker) { return 100 + static_cast<uint32_t>(worker); }

void ThreadsShareATable() {
  PrefixTable table({.max_entries = kMaxEntries, .ttl_ns = 1'000});
  std::vector<WorkerId> all;
  for (uint32_t i = 0; i < kWorkers; ++i) all.push_back(WorkerId{i});
  table.SetWorkers(all);
  std::atomic<int64_t> now{0};
  std::atomic<int> writing{2};
  RunTogether(5, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    std::vector<PrefixTable::Held> held;
    if (thread < 2) {
      for (int i = 0; i < kWrites; ++i) {
        const WorkerId worker{static_cast<uint32_t>(random.Below(kWorkers))};
        table.Put(MakeDigest(&random), worker, TokensOf(worker), random.Below(2) == 0, ++now);
        if (random.Below(4) == 0) table.Remove(MakeDigest(&random), worker);
        if (random.Below(1'000) == 0) table.RemoveAllOf(worker);
        STRESS_CHECK(table.stats().entries <= kMaxEntries + 2);
      }
      --writing;
      return;
    }
    while (writing > 0) {
      if (thread == 4) {
        table.Sweep(now, 10);
        if (random.Below(50) == 0) {
          PrefixTable::Cleared cleared;
          while (table.ClearNext(&cleared)) {
          }
        }
        table.SetWorkers(std::span(all).subspan(random.Below(2)));
        continue;
      }
      random.Below(2) == 0 ? table.Find(MakeDigest(&random), now, &held)
                           : table.Peek(MakeDigest(&random), now, &held);
      for (const PrefixTable::Held& one : held) STRESS_CHECK(one.tokens == TokensOf(one.worker));
    }
  });
  table.SetWorkers({});
  STRESS_CHECK(table.stats().entries == 0 && table.stats().prefixes == 0);
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::ThreadsShareATable(); }
