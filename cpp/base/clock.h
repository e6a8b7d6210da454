// Clock: the time is passed in, so that everything that waits or expires can be tested without waiting.
// Monotonic nanoseconds from an arbitrary origin. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace vllm_router {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNanos() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t NowNanos() const override;
};

// Of the calendar, since 1970; not monotonic.
double UnixSeconds();
int64_t UnixMicros();

// Stands still until it is advanced.
class ManualClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_.load(std::memory_order_relaxed); }
  void Advance(int64_t nanos) { now_.fetch_add(nanos, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_{0};
};

}  // namespace vllm_router
