// Outlier detection: whether the worker or the request caused a failure. A refused connection means
// that the worker is gone; the cause of a 5xx may be the request. If every 5xx counted against its
// worker, twenty requests that make engines fail would open every circuit breaker of the fleet, at the
// expense of all other clients. So:
//
//   attempts of one request       to blame      because
//   A 500, then B 200             A             another worker could serve the request
//   A 500, then B 500             the request   no worker can
//   A 500, no second opinion      A, if it does worse than the fleet (IsOutlier), else nothing is known
//   A 500, then the client left   unknown
//
// A second opinion is the response of another worker. 501 and 505 never count against a worker.
// (proxy/exchange/server_errors.h follows the attempts of a request.)
//
// ResponseCounts: one worker's responses in the breaker's window, and how many of them were 5xx. The
// window is eight buckets by the clock; the oldest drops out as a whole:
//
//   bucket   ... | 41 | 42 | 43 | 44 | 45 | 46 | 47 | 48 |     now in 48: 41 to 48 count
//
// Cost: a success is a relaxed load and a relaxed increment on memory of its worker; a mutex is taken
// once per bucket and when counts are read. Thread-safe. The time is passed in. As Envoy's outlier
// detection by success rate, with its maximum ejection share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/mutex.h"

namespace vllm_router {

class FleetView;
struct Worker;

// The cause of a 5xx; a label of server_errors_total.
enum class ErrorBlame : uint8_t {
  kWorker,   // counts against its circuit breaker
  kRequest,  // other workers gave a 5xx too
  kUnclear,  // no second opinion, and the worker does no worse than the fleet
};
inline constexpr int kErrorBlameCount = 3;
std::string_view ErrorBlameName(ErrorBlame blame);  // worker, request, unclear

struct ErrorShare {
  int64_t errors = 0;
  int64_t responses = 0;  // errors included

  ErrorShare& operator+=(const ErrorShare& other) {
    errors += other.errors;
    responses += other.responses;
    return *this;
  }
};

class alignas(64) ResponseCounts {
 public:
  void CountSuccess(int64_t window_ns, int64_t now_ns) {
    if (now_ns >= bucket_end_ns_.load(std::memory_order_relaxed)) BeginBucket(window_ns, now_ns);
    successes_.fetch_add(1, std::memory_order_relaxed);
  }
  void CountError(int64_t window_ns, int64_t now_ns);
  // A response that was counted as a success at its head turned out to be an error.
  void TurnIntoError(int64_t window_ns, int64_t now_ns);

  ErrorShare Within(int64_t window_ns, int64_t now_ns);

 private:
  static constexpr int64_t kBuckets = 8;
  struct Bucket {
    int64_t number = -kBuckets;
    int64_t successes = 0;
    int64_t errors = 0;
  };

  void BeginBucket(int64_t window_ns, int64_t now_ns);

  std::atomic<int64_t> bucket_end_ns_{0};
  std::atomic<int64_t> successes_{0};  // of the current bucket
  std::atomic<int64_t> errors_{0};

  Mutex mutex_;  // leaf
  int64_t bucket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<Bucket, kBuckets> past_ ABSL_GUARDED_BY(mutex_);
};

// True if a worker does so much worse than the others together that it, and not the requests, must be
// the cause: more than half of its responses were errors, and its share of errors is more than twice the
// others' share. Others without errors have a share of 0.
bool IsOutlier(const ErrorShare& own, const ErrorShare& others);

// The responses of all members but `worker`. O(members).
ErrorShare SharesOfOthers(const FleetView& fleet, const Worker& worker, int64_t window_ns, int64_t now_ns);

// True if one more circuit breaker may open for what requests met at a worker (5xx, losses, timeouts).
// Afterwards at most half of the workers that are healthy and not draining, or a single one, may have a
// breaker that is not closed. Failures to reach a worker at all do not depend on this.
bool MayEject(const FleetView& fleet);

}  // namespace vllm_router
