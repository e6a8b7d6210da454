// SuccessShare: of the last 100 requests of a worker, the share that ended well; 1 before the first.
//
//   record   + + - + +        share 0.8
//
// Cost: Record takes a mutex of its own, value() is a load. Thread-safe.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>

#include "base/mutex.h"

namespace vllm_router {

class SuccessShare {
 public:
  static constexpr size_t kRequests = 100;

  void Record(bool success);
  void Clear();
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  Mutex mutex_;  // leaf
  std::bitset<kRequests> ring_ ABSL_GUARDED_BY(mutex_);
  size_t recorded_ ABSL_GUARDED_BY(mutex_) = 0;  // ever
  std::atomic<double> value_{1};
};

}  // namespace vllm_router
