// Units of time. Moments and durations are whole nanoseconds, as Clock has them (base/clock.h); options
// are milliseconds, and the log's wall time is microseconds.
//
//   const int64_t deadline_ns = clock.NowNanos() + timeout_ms * kNanosPerMs;
#pragma once

#include <cstdint>

namespace vllm_router {

inline constexpr int64_t kNanosPerMs = 1'000'000;
inline constexpr int64_t kNanosPerSecond = 1'000'000'000;
inline constexpr int64_t kMicrosPerSecond = 1'000'000;

}  // namespace vllm_router
