// MemoryPool: memory in pieces of few sizes; each size has its own chunks and a list of free pieces.
//
//   sizes   64 | 80 96 112 128 | 160 192 224 256 | 320 ...      four per doubling, so at most a fifth is slack
//
// Why not malloc: pieces go back in batches, long after they were made, which is when a general
// allocator searches longest; and the pool knows to the byte what is in use. Pieces above kLargest come
// from the system, as they do in builds with a sanitizer, which could not see mistakes inside a pool.
// Cost: a few ns. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace vllm_router {

class MemoryPool {
 public:
  static constexpr size_t kLargest = size_t{256} * 1024;

  MemoryPool() = default;
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // The actual size of a piece for `bytes`; the same for every number up to it.
  static size_t RoundUp(size_t bytes);

  // Aligned to 64 bytes if the size is a multiple of that and at most kLargest, else to 16.
  void* Allocate(size_t bytes);
  void* AllocateZeroed(size_t bytes);
  void Free(void* memory, size_t bytes);

  size_t live_bytes() const { return live_bytes_; }  // rounded up

 private:
  static constexpr size_t kSmallest = 64;
  static constexpr size_t kChunk = size_t{1024} * 1024;  // pages that are not touched cost nothing
  static constexpr int kSizes = 4 * 12 + 1;              // 64 B doubles twelve times until 256 KiB

  struct FreePiece {
    FreePiece* next;
  };
  struct Size {
    FreePiece* free = nullptr;
    char* next = nullptr;  // rest of the newest chunk
    size_t left = 0;
  };

  Size& SizeOf(size_t rounded);

  std::array<Size, kSizes> sizes_{};
  std::vector<void*> chunks_;
  size_t live_bytes_ = 0;
};

}  // namespace vllm_router
