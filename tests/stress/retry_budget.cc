// Threads count requests and take retries at once: together they get what the budget allows, and not one more.
#include "routing/retry_budget.h"

#include <atomic>
#include <barrier>
#include <cstdint>

#include "base/limits.h"
#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr int kRequests = 5'000;  // of each thread
  constexpr int64_t kNow = 1'000'000'000'000;
  RetryBudget budget(0.5);
  std::atomic<uint64_t> taken{0};
  std::barrier all_counted(kThreads);
  std::barrier all_taken(kThreads);

  RunTogether(kThreads, [&](int) {
    RetryBudget::Thread mine(budget);
    for (int request = 0; request < kRequests; ++request) {
      mine.CountRequest(kNow);
      if (mine.Take(kNow)) taken.fetch_add(1);
    }
    // A thread that ends takes its requests along, so all stay until nothing is left.
    all_counted.arrive_and_wait();
    while (mine.Take(kNow)) taken.fetch_add(1);
    all_taken.arrive_and_wait();
  });

  constexpr uint64_t kFloor = kMinRetriesPerSecond * RetryBudget::kWindowSeconds;
  STRESS_CHECK(taken == kFloor + kThreads * kRequests / 2);
}
