#include "policy/success_share.h"

#include <algorithm>

namespace vllm_router {

void SuccessShare::Record(bool success) {
  const MutexLock lock(mutex_);
  ring_[recorded_++ % kRequests] = success;
  const size_t known = std::min(recorded_, kRequests);
  value_.store(static_cast<double>(ring_.count()) / static_cast<double>(known), std::memory_order_relaxed);
}

void SuccessShare::Clear() {
  const MutexLock lock(mutex_);
  ring_.reset();
  recorded_ = 0;
  value_.store(1, std::memory_order_relaxed);
}

}  // namespace vllm_router
