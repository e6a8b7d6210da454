#include "index/memory_pool.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace vllm_router {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPooled = false;
#else
constexpr bool kPooled = true;
#endif

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

MemoryPool::Size& MemoryPool::SizeOf(size_t rounded) {
  if (rounded <= kSmallest) return sizes_[0];
  // `rounded` lies in (2^octave, 2^(octave+1)], of which each size is a quarter.
  const int octave = std::bit_width(rounded - 1) - 1;
  const size_t quarter = ((rounded - 1) >> (octave - 2)) & 3;
  return sizes_[4 * static_cast<size_t>(octave - 6) + quarter + 1];
}

size_t MemoryPool::RoundUp(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const size_t quarter = size_t{1} << (std::bit_width(bytes - 1) - 3);
  return (bytes + quarter - 1) & ~(quarter - 1);
}

MemoryPool::~MemoryPool() {
  for (void* chunk : chunks_) std::free(chunk);
}

void* MemoryPool::Allocate(size_t bytes) {
  const size_t size = RoundUp(bytes);
  live_bytes_ += size;
  if (size > kLargest) return OrThrow(std::malloc(size));
  if (!kPooled) return OrThrow(std::aligned_alloc(kSmallest, (size + kSmallest - 1) & ~(kSmallest - 1)));
  Size& pieces = SizeOf(size);
  if (pieces.free != nullptr) {
    FreePiece* const piece = pieces.free;
    pieces.free = piece->next;
    return piece;
  }
  if (pieces.left < size) {
    chunks_.reserve(chunks_.size() + 1);
    pieces.next = static_cast<char*>(OrThrow(std::aligned_alloc(kSmallest, kChunk)));
    pieces.left = kChunk;
    chunks_.push_back(pieces.next);
  }
  void* const piece = pieces.next;
  pieces.next += size;
  pieces.left -= size;
  return piece;
}

void* MemoryPool::AllocateZeroed(size_t bytes) {
  const size_t size = RoundUp(bytes);
  if (size > kLargest) {
    // Fresh pages from the system are zero already, and come when they are first touched.
    live_bytes_ += size;
    return OrThrow(std::calloc(1, size));
  }
  return std::memset(Allocate(bytes), 0, size);
}

void MemoryPool::Free(void* memory, size_t bytes) {
  const size_t size = RoundUp(bytes);
  live_bytes_ -= size;
  if (size > kLargest || !kPooled) return std::free(memory);
  Size& pieces = SizeOf(size);
  pieces.free = ::new (memory) FreePiece{pieces.free};
}

}  // namespace vllm_router
