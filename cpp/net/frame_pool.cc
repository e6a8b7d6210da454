#include "net/frame_pool.h"

#include <array>
#include <new>
#include <utility>

namespace vllm_router {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPooled = false;
#else
constexpr bool kPooled = true;
#endif

struct Spare {
  Spare* next;
};

struct Shelf {
  Spare* first = nullptr;
  size_t count = 0;
};

// Has no destructor, so it is usable until the very end of the thread.
struct Shelves {
  std::array<Shelf, FramePool::kLargest / FramePool::kStep> shelves;
  bool closed = false;  // the thread is ending
};
constinit thread_local Shelves mine;

struct Closer {
  ~Closer() {
    mine.closed = true;
    for (Shelf& shelf : mine.shelves) {
      while (shelf.first != nullptr) ::operator delete(std::exchange(shelf.first, shelf.first->next));
    }
  }
};

size_t ShelfOf(size_t size) { return (size - 1) / FramePool::kStep; }

}  // namespace

void* FramePool::Acquire(size_t size) {
  if (!kPooled || size > kLargest) return ::operator new(size);
  Shelf& shelf = mine.shelves[ShelfOf(size)];
  if (shelf.first == nullptr) return ::operator new((ShelfOf(size) + 1) * kStep);
  --shelf.count;
  return std::exchange(shelf.first, shelf.first->next);
}

void FramePool::Release(void* piece, size_t size) noexcept {
  if (kPooled && size <= kLargest) {
    Shelf& shelf = mine.shelves[ShelfOf(size)];
    if (shelf.count < kMostSpare && !mine.closed) {
      thread_local Closer closer;
      (void)&closer;
      shelf.first = ::new (piece) Spare{shelf.first};
      ++shelf.count;
      return;
    }
  }
  ::operator delete(piece);
}

}  // namespace vllm_router
