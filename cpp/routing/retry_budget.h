// RetryBudget: a limit on the retries of all threads together, so that an outage does not multiply
// load.
//
//   retries of the last ten seconds  <  10 per second  +  share * requests of the last ten seconds
//
// A retry of a response that has begun is measured by those that go on, too: those may have begun long ago, and the loss
// of one worker concerns its part of them.
//
// The constant part is for small fleets and quiet hours, where a share of few requests would be none. As
// in Finagle.
//
//   thread 1   requests per second   … 31 28 30 29        each written by its thread only, in its own memory
//   thread 2                         … 12 11 14 12
//   all        retries per second    …  0  1  0  4        under the mutex
//
//   RetryBudget budget(0.2);                              // one for all
//   RetryBudget::Thread mine(budget);                     // on each thread
//   mine.CountRequest(now);
//   if (mine.Take(now)) …                                 // one retry, gone from the budget
//
// Cost: a request a load and a store, relaxed; a retry a mutex that is held for ten loads per thread.
// The time is passed in. A RetryBudget::Thread belongs to one thread and must not outlive its budget;
// the budget is thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"

namespace vllm_router {

class RetryBudget {
 public:
  static constexpr int64_t kWindowSeconds = 10;

  class alignas(64) Thread {
   public:
    explicit Thread(RetryBudget& budget);
    ~Thread();
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;

    void CountRequest(int64_t now_ns);
    // Takes one retry out of the budget of all threads, if there is one left.
    // `underway`: count as requests of the last ten seconds.
    bool Take(int64_t now_ns, uint64_t underway = 0) { return budget_.Take(now_ns, underway); }

   private:
    friend class RetryBudget;
    uint64_t RequestsSince(int64_t second) const;

    RetryBudget& budget_;
    int64_t last_ = 0;  // last second counted; used by the owner alone
    // A second and its requests in one word, so that a reader never sees the count of one with the
    // number of another.
    std::array<std::atomic<uint64_t>, kWindowSeconds> seconds_{};
  };

  explicit RetryBudget(double share) : share_(share) {}

  bool Take(int64_t now_ns, uint64_t underway = 0);
  void SetShare(double share) { share_.store(share, std::memory_order_relaxed); }

 private:
  struct Second {
    int64_t second = 0;
    uint64_t retries = 0;
  };

  std::atomic<double> share_;
  Mutex mutex_;  // leaf
  std::vector<const Thread*> threads_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;  // second of the last Take()
  std::array<Second, kWindowSeconds> seconds_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace vllm_router
