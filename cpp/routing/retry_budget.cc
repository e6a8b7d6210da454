#include "routing/retry_budget.h"

#include <algorithm>

#include "base/limits.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {
constexpr int kCountBits = 32;  // of the word; the second takes the others, enough for 136 years

constexpr uint64_t kFloor = kMinRetriesPerSecond * RetryBudget::kWindowSeconds;

size_t SlotOf(int64_t second) { return static_cast<size_t>(second % RetryBudget::kWindowSeconds); }

}  // namespace

RetryBudget::Thread::Thread(RetryBudget& budget) : budget_(budget) {
  MutexLock lock(budget_.mutex_);
  budget_.threads_.push_back(this);
}

RetryBudget::Thread::~Thread() {
  MutexLock lock(budget_.mutex_);
  std::erase(budget_.threads_, this);
}

void RetryBudget::Thread::CountRequest(int64_t now_ns) {
  // If the clock goes back, its seconds count as the last one.
  last_ = std::max(last_, now_ns / kNanosPerSecond);
  std::atomic<uint64_t>& slot = seconds_[SlotOf(last_)];
  const uint64_t first = static_cast<uint64_t>(last_) << kCountBits;
  const uint64_t word = slot.load(std::memory_order_relaxed);
  const bool same_second = word >> kCountBits == first >> kCountBits;
  slot.store((same_second ? word : first) + 1, std::memory_order_relaxed);
}

uint64_t RetryBudget::Thread::RequestsSince(int64_t second) const {
  constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;
  uint64_t requests = 0;
  for (const std::atomic<uint64_t>& slot : seconds_) {
    const uint64_t word = slot.load(std::memory_order_relaxed);
    if (static_cast<int64_t>(word >> kCountBits) >= second) requests += word & kCountMask;
  }
  return requests;
}

bool RetryBudget::Take(int64_t now_ns, uint64_t underway) {
  MutexLock lock(mutex_);
  last_ = std::max(last_, now_ns / kNanosPerSecond);
  const int64_t oldest = last_ - kWindowSeconds + 1;
  uint64_t requests = underway;
  for (const Thread* thread : threads_) requests += thread->RequestsSince(oldest);
  uint64_t retries = 0;
  for (const Second& second : seconds_) {
    if (second.second >= oldest) retries += second.retries;
  }
  const double limit =
      static_cast<double>(kFloor) + share_.load(std::memory_order_relaxed) * static_cast<double>(requests);
  if (static_cast<double>(retries) >= limit) return false;
  Second& now = seconds_[SlotOf(last_)];
  if (now.second != last_) now = {.second = last_};
  ++now.retries;
  return true;
}

}  // namespace vllm_router
