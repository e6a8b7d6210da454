// SpanBuffer: the encoded spans of one thread until the exporter takes them. Bounded: spans that have no room are dropped and
// counted, so that a collector that is slow or absent costs memory up to the limit, and requests nothing.
//
//   I/O thread       buffer.Add(bytes, 3)      appends 3 spans (SpanWriter's fields), or drops them
//   control thread   buffer.Take()             all of them, in the order in which they were added
//
// The lock is held for a copy of some hundred bytes, or for the swap of two strings. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"

namespace vllm_router {

class SpanBuffer {
 public:
  static constexpr size_t kMaxSpans = 4096;
  static constexpr size_t kMaxBytes = size_t{2} << 20;

  struct Taken {
    std::string bytes;
    size_t spans = 0;
  };

  // How many it holds then; 0: there was no room. REQUIRES: spans > 0.
  size_t Add(std::string_view bytes, size_t spans) {
    MutexLock lock(mutex_);
    if (spans_ + spans > kMaxSpans || bytes_.size() + bytes.size() > kMaxBytes) return 0;
    bytes_ += bytes;
    return spans_ += spans;
  }

  Taken Take() {
    MutexLock lock(mutex_);
    return {.bytes = std::exchange(bytes_, {}), .spans = std::exchange(spans_, 0)};
  }

  size_t spans() const {
    MutexLock lock(mutex_);
    return spans_;
  }

 private:
  mutable Mutex mutex_;  // leaf
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
  size_t spans_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
