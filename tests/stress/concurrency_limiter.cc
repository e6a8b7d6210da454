// Threads take permits, wait for them, leave the line, step back and give back, all at once. Whatever the order: there are
// never more permits out than there are, every waiter hears exactly once how its wait ended, and at the end all are back.
#include "routing/concurrency_limiter.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 4'000;

struct One {
  std::atomic<int> granted{0};
  ConcurrencyLimiter::Waiter waiter{
      [](void* context) { static_cast<One*>(context)->granted.fetch_add(1, std::memory_order_release); },
      this};
};

struct Counts {
  uint64_t most_permits = 0;    // at any time
  std::atomic<int64_t> out{0};  // permits, as we count them
  std::atomic<size_t> waited{0}, refused{0}, left{0}, collided{0}, back{0};
};

void Took(Counts& counts, uint64_t amount) {
  const int64_t out = counts.out.fetch_add(static_cast<int64_t>(amount)) + static_cast<int64_t>(amount);
  STRESS_CHECK(out <= static_cast<int64_t>(counts.most_permits));
}

void GiveBack(ConcurrencyLimiter& admission, Counts& counts, uint64_t amount) {
  counts.out.fetch_sub(static_cast<int64_t>(amount));
  admission.Release(amount);
}

// True: granted. False: it has left. Somebody who waits for long nudges, as one does that steps back.
bool Wait(ConcurrencyLimiter& admission, One& one, Random& random, Counts& counts, int granted_before) {
  const uint64_t patience = random.Below(4) == 0 ? random.Below(50) : UINT64_MAX;
  for (uint64_t spins = 0;; ++spins) {
    if (one.granted.load(std::memory_order_acquire) != granted_before) return true;
    if (spins >= patience) {
      if (admission.Leave(one.waiter)) {
        ++counts.left;
        return false;
      }
      ++counts.collided;  // the grant was first, and is on its way
      while (one.granted.load(std::memory_order_acquire) == granted_before) std::this_thread::yield();
      return true;
    }
    if (spins % 64 == 63) admission.WakeNext();
    std::this_thread::yield();
  }
}

void ComeAndGo(ConcurrencyLimiter& admission, uint64_t most, int thread, Counts& counts) {
  Random random(static_cast<uint64_t>(thread));
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t amount = 1 + random.Below(most);
    One one;
    int granted = 0;
    const ConcurrencyLimiter::Entry entry = admission.Enter(one.waiter, amount);
    STRESS_CHECK(entry != ConcurrencyLimiter::Entry::kNever);
    if (entry == ConcurrencyLimiter::Entry::kFull) {
      ++counts.refused;
      continue;
    }
    if (entry == ConcurrencyLimiter::Entry::kWaiting) {
      ++counts.waited;
      if (!Wait(admission, one, random, counts, granted)) continue;
      ++granted;
    }
    Took(counts, amount);
    bool held = true;
    while (held && random.Below(4) == 0) {  // no use to us yet
      counts.out.fetch_sub(static_cast<int64_t>(amount));
      if (admission.Requeue(one.waiter, amount) == ConcurrencyLimiter::Entry::kFull) {
        held = false;
        break;
      }
      ++counts.back;
      held = Wait(admission, one, random, counts, granted);
      if (!held) break;
      ++granted;
      Took(counts, amount);
    }
    STRESS_CHECK(one.granted.load() == granted);
    if (held) GiveBack(admission, counts, amount);
  }
}

void ChangeLimits(ConcurrencyLimiter& admission, uint64_t permits, uint32_t line, uint64_t more) {
  Random random(99);
  for (int round = 0; round < kRounds; ++round) {
    admission.SetLimits(permits + random.Below(more + 1), line + static_cast<uint32_t>(random.Below(3)));
    std::this_thread::yield();
  }
}

// `more`: permits that come and go, above those that are always there.
void Stress(uint64_t permits, uint32_t line, uint64_t most, uint64_t more = 0) {
  ConcurrencyLimiter admission(permits, line);
  Counts counts;
  counts.most_permits = permits + more;
  RunTogether(kThreads + (more > 0), [&](int thread) {
    if (thread == kThreads) return ChangeLimits(admission, permits, line, more);
    ComeAndGo(admission, most, thread, counts);
  });
  STRESS_CHECK(admission.in_use() == 0);
  STRESS_CHECK(admission.waiting() == 0);
  STRESS_CHECK(counts.out.load() == 0);
  std::printf(
      "%llu permits, a line of %u: %zu waited, %zu stepped back, %zu refused, %zu left, %zu of them too "
      "late\n",
      static_cast<unsigned long long>(permits), line, counts.waited.load(), counts.back.load(),
      counts.refused.load(), counts.left.load(), counts.collided.load());
}

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::Stress(1, 100, 1);
  vllm_router::Stress(2, 2, 1);
  vllm_router::Stress(3, 100, 3);
  vllm_router::Stress(7, 4, 5);
  vllm_router::Stress(3, 3, 3, 5);
}
