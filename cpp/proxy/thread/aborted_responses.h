// AbortedResponses: which of the responses that a worker aborted counts as a failure of the worker.
//
//   aborted    x xxx xx                x        x x
//   counts     x                       x                    one in a spacing
//              |---- spacing ----|     |---- spacing ----|
//
// An engine that ends aborts all of its responses at once, which is one event. And an engine also aborts what its
// client or its operator wants aborted, without saying why. So the spacing is wide enough that the failures counted
// here never open a closed circuit breaker without others: failure_threshold of them do not fit in its window.
//
// Holds one time for each worker that has aborted a response within its spacing. Cost: a mutex and a look-up per
// aborted response, nothing for others. Thread-safe; the time is passed in.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/mutex.h"
#include "base/time_units.h"
#include "worker/circuit_breaker.h"
#include "worker/worker.h"

namespace vllm_router {

class AbortedResponses {
 public:
  // True: the response that the worker has aborted now counts.
  bool Count(WorkerId worker, const BreakerOptions& options, int64_t now_ns) {
    if (options.failure_threshold <= 1) return false;
    const int64_t spacing_ns = options.window_ms * kNanosPerMs / (options.failure_threshold - 1) + 1;
    MutexLock lock(mutex_);
    const auto found = next_ns_.find(static_cast<uint32_t>(worker));
    if (found != next_ns_.end() && now_ns < found->second) return false;
    std::erase_if(next_ns_, [now_ns](const auto& entry) { return entry.second <= now_ns; });
    next_ns_.insert_or_assign(static_cast<uint32_t>(worker), now_ns + spacing_ns);
    return true;
  }

 private:
  Mutex mutex_;  // leaf
  std::unordered_map<uint32_t, int64_t> next_ns_
      ABSL_GUARDED_BY(mutex_);  // the first time that counts, by worker
};

}  // namespace vllm_router
