#include "worker/outlier_detector.h"

#include <algorithm>

#include "base/limits.h"
#include "worker/fleet_view.h"

namespace vllm_router {

std::string_view ErrorBlameName(ErrorBlame blame) {
  constexpr std::array<std::string_view, kErrorBlameCount> kNames = {"worker", "request", "unclear"};
  return kNames[static_cast<size_t>(blame)];
}

void ResponseCounts::CountError(int64_t window_ns, int64_t now_ns) {
  if (now_ns >= bucket_end_ns_.load(std::memory_order_relaxed)) BeginBucket(window_ns, now_ns);
  errors_.fetch_add(1, std::memory_order_relaxed);
}

// The success may be in an earlier bucket. So a bucket may hold a negative number of successes, which
// the sum corrects as long as both buckets are in the window.
void ResponseCounts::TurnIntoError(int64_t window_ns, int64_t now_ns) {
  CountError(window_ns, now_ns);
  successes_.fetch_sub(1, std::memory_order_relaxed);
}

ErrorShare ResponseCounts::Within(int64_t window_ns, int64_t now_ns) {
  if (now_ns >= bucket_end_ns_.load(std::memory_order_relaxed)) BeginBucket(window_ns, now_ns);
  MutexLock lock(mutex_);
  int64_t successes = successes_.load(std::memory_order_relaxed);
  int64_t errors = errors_.load(std::memory_order_relaxed);
  for (const Bucket& bucket : past_) {
    if (bucket.number <= bucket_ - kBuckets) continue;
    successes += bucket.successes;
    errors += bucket.errors;
  }
  return {.errors = errors, .responses = errors + std::max<int64_t>(0, successes)};
}

void ResponseCounts::BeginBucket(int64_t window_ns, int64_t now_ns) {
  const int64_t bucket_ns = std::max<int64_t>(1, window_ns / kBuckets);
  MutexLock lock(mutex_);
  if (now_ns < bucket_end_ns_.load(std::memory_order_relaxed)) return;  // another thread has started it
  past_[static_cast<size_t>(bucket_ % kBuckets)] = {
      .number = bucket_,
      .successes = successes_.exchange(0, std::memory_order_relaxed),
      .errors = errors_.exchange(0, std::memory_order_relaxed)};
  bucket_ = now_ns / bucket_ns;
  bucket_end_ns_.store((bucket_ + 1) * bucket_ns, std::memory_order_relaxed);
}

bool IsOutlier(const ErrorShare& own, const ErrorShare& others) {
  if (own.errors * 100 <= own.responses * kOutlierSharePercent) return false;
  if (others.responses == 0) return true;
  return own.errors * others.responses > kOutlierFactor * others.errors * own.responses;
}

ErrorShare SharesOfOthers(const FleetView& fleet, const Worker& worker, int64_t window_ns, int64_t now_ns) {
  ErrorShare others;
  for (const FleetView::Member& member : fleet.members()) {
    if (member.worker.get() != &worker) others += member.worker->responses.Within(window_ns, now_ns);
  }
  return others;
}

bool MayEject(const FleetView& fleet) {
  const uint64_t most = std::max<uint64_t>(1, uint64_t{fleet.in_rotation()} * kMaxEjectedPercent / 100);
  return fleet.ejected() < most;
}

}  // namespace vllm_router
