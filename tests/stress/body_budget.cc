// Threads let bodies grow, wait, leave, and give back, all at once. Whatever the order: no more is held than there is, every
// wait ends exactly once, and every body that stays comes to its end, or this never ends.
#include "routing/body_budget.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 3'000;

struct One {
  std::atomic<int> granted{0};
  BodyBudget::Member member{
      [](void* context) { static_cast<One*>(context)->granted.fetch_add(1, std::memory_order_release); },
      this};
};

struct Counts {
  std::atomic<int64_t> held{0};
  std::atomic<size_t> waited{0}, left{0}, collided{0}, kept{0}, ended{0};
};

// True: granted. False: it has left.
bool Wait(BodyBudget& budget, One& one, int before, uint64_t patience, Counts& counts) {
  for (uint64_t spins = 0;; ++spins) {
    if (one.granted.load(std::memory_order_acquire) != before) return true;
    if (spins >= patience) {
      if (budget.Leave(one.member)) {
        ++counts.left;
        return false;
      }
      ++counts.collided;  // the grant was first, and is on its way
      while (one.granted.load(std::memory_order_acquire) == before) std::this_thread::yield();
      return true;
    }
    std::this_thread::yield();
  }
}

void Claimed(const BodyBudget& budget, Counts& counts, uint64_t bytes) {
  const int64_t held = counts.held.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
  STRESS_CHECK(held <= static_cast<int64_t>(budget.total()));
}

void GrowAndGo(BodyBudget& budget, uint64_t most, int thread, Counts& counts) {
  Random random(static_cast<uint64_t>(thread));
  for (int round = 0; round < kRounds; ++round) {
    One one;
    const uint64_t need = 1 + random.Below(most);
    uint64_t held = 0;
    int granted = 0;
    if (random.Below(5) == 0 && budget.TryKeep(one.member, need)) {
      ++counts.kept;
      Claimed(budget, counts, need);
      held = need;
    }
    while (held < need) {
      const uint64_t to = std::min(need, std::max<uint64_t>(1, 2 * held));
      const BodyBudget::Entry entry = budget.Grow(one.member, to, need);
      STRESS_CHECK(entry != BodyBudget::Entry::kNever);
      if (entry == BodyBudget::Entry::kWaiting) {
        ++counts.waited;
        const uint64_t patience = random.Below(8) == 0 ? random.Below(50) : UINT64_MAX;
        if (!Wait(budget, one, granted, patience, counts)) break;
        ++granted;
      }
      Claimed(budget, counts, to - held);
      held = to;
      if (random.Below(3) == 0) std::this_thread::yield();
    }
    STRESS_CHECK(one.granted.load() == granted);
    if (held == need) {
      ++counts.ended;
      budget.Complete(one.member, held);
      if (random.Below(2) == 0) std::this_thread::yield();
    }
    counts.held.fetch_sub(static_cast<int64_t>(held));
    budget.Release(one.member);
  }
}

void Stress(uint64_t total, uint64_t most) {
  BodyBudget budget(total);
  Counts counts;
  RunTogether(kThreads, [&](int thread) { GrowAndGo(budget, most, thread, counts); });
  STRESS_CHECK(budget.in_use() == 0);
  STRESS_CHECK(budget.waiting() == 0);
  std::printf(
      "%llu for bodies of up to %llu: %zu came to their end, %zu kept, %zu waits, %zu left, %zu too late\n",
      static_cast<unsigned long long>(total), static_cast<unsigned long long>(most), counts.ended.load(),
      counts.kept.load(), counts.waited.load(), counts.left.load(), counts.collided.load());
}

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::Stress(8, 8);
  vllm_router::Stress(16, 16);
  vllm_router::Stress(20, 8);
  vllm_router::Stress(100, 9);
}
