#include "net/buffer.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

namespace vllm_router {
namespace {

size_t ClassOf(size_t capacity) { return std::bit_width(capacity / BufferPool::kSmallest) - 1; }

}  // namespace

BufferPool::~BufferPool() {
  for (std::vector<char*>& blocks : kept_) {
    for (char* block : blocks) std::free(block);
  }
}

BufferPool::Block BufferPool::Acquire(size_t least) {
  const size_t capacity = std::bit_ceil(least < kSmallest ? kSmallest : least);
  in_use_ += capacity;
  if (capacity <= kLargestKept) {
    std::vector<char*>& blocks = kept_[ClassOf(capacity)];
    if (!blocks.empty()) {
      char* data = blocks.back();
      blocks.pop_back();
      kept_bytes_ -= capacity;
      return {data, capacity};
    }
  }
  char* data = static_cast<char*>(std::malloc(capacity + kPadding));
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data + capacity, 0, kPadding);
  return {data, capacity};
}

void BufferPool::Release(Block block) {
  if (block.data == nullptr) return;
  in_use_ -= block.capacity;
  if (block.capacity <= kLargestKept && kept_bytes_ + block.capacity <= kKeptBytes) {
    kept_[ClassOf(block.capacity)].push_back(block.data);
    kept_bytes_ += block.capacity;
  } else {
    std::free(block.data);
  }
}

void Buffer::Append(std::string_view bytes) {
  if (bytes.empty()) return;
  Reserve(bytes.size());
  std::memcpy(block_.data + end_, bytes.data(), bytes.size());
  end_ += bytes.size();
}

void Buffer::Reserve(size_t bytes) {
  if (block_.capacity - end_ >= bytes && block_.data != nullptr) return;
  const size_t held = size();
  if (block_.data != nullptr && block_.capacity >= held + bytes) {
    std::memmove(block_.data, data(), held);
  } else {
    BufferPool::Block larger = pool_->Acquire(held + bytes);
    if (held != 0) std::memcpy(larger.data, data(), held);
    pool_->Release(std::exchange(block_, larger));
  }
  begin_ = 0;
  end_ = held;
}

void Buffer::Release() {
  pool_->Release(std::exchange(block_, {}));
  begin_ = end_ = 0;
}

}  // namespace vllm_router
