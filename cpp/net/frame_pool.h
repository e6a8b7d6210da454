// FramePool: memory of what lives for one request (coroutine frames, Exchange), taken over by the next one. A thread has
// its own; what another thread frees stays with that one. An exchange takes a dozen such pieces, and malloc, whose
// caches hold seven of a size and none above 1 KiB, would take a twentieth of its time.
//
//   struct Promise { static void* operator new(size_t size) { return FramePool::Acquire(size); } … };
//
// Cost: a few ns; at most kMostSpare pieces of each size rest, in steps of 64 bytes. Larger ones come from the heap, and
// under a sanitizer all do, so that it sees each piece end.
#pragma once

#include <cstddef>

namespace vllm_router {

class FramePool {
 public:
  static constexpr size_t kStep = 64;
  static constexpr size_t kLargest = 2048;
  static constexpr size_t kMostSpare = 128;

  static void* Acquire(size_t size);
  static void Release(void* piece, size_t size) noexcept;  // `size` as it was taken
};

}  // namespace vllm_router
