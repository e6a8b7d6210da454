// Buffer holds bytes between a socket and their reader. BufferPool keeps memory for later buffers.
//
//   data()            free
//   |#### size() ####|------ room() ------|pad|       every block has kPadding readable bytes behind its
//   ^ Consume(n) moves this                            capacity: simdjson may read past the end of a body
//
// Block sizes are powers of two from 4 KiB. Blocks up to 1 MiB go back to the pool, which keeps at most
// 8 MiB. Without the pool, page faults would dominate the cost of requests with large bodies. A released
// Buffer holds no memory. One thread per pool.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace vllm_router {

class BufferPool {
 public:
  static constexpr size_t kSmallest = 4 * 1024;
  static constexpr size_t kLargestKept = 1024 * 1024;
  static constexpr size_t kKeptBytes = 8 * 1024 * 1024;
  static constexpr size_t kPadding = 64;

  BufferPool() = default;
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  struct Block {
    char* data = nullptr;
    size_t capacity = 0;
  };
  Block Acquire(size_t least);
  void Release(Block block);
  size_t bytes_in_use() const { return in_use_; }

 private:
  static constexpr size_t kClasses = 9;  // 4 KiB .. 1 MiB
  std::array<std::vector<char*>, kClasses> kept_;
  size_t kept_bytes_ = 0;
  size_t in_use_ = 0;
};

class Buffer {
 public:
  explicit Buffer(BufferPool& pool) : pool_(&pool) {}
  Buffer(Buffer&& other) noexcept
      : pool_(other.pool_),
        block_(std::exchange(other.block_, {})),
        begin_(std::exchange(other.begin_, 0)),
        end_(std::exchange(other.end_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_, other.block_);
    std::swap(begin_, other.begin_);
    std::swap(end_, other.end_);
    return *this;
  }
  ~Buffer() { Release(); }

  char* data() { return block_.data + begin_; }
  std::string_view view() const { return {block_.data + begin_, end_ - begin_}; }
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  size_t capacity() const { return block_.capacity; }

  // Where the next bytes may be written, and the report of how many were.
  std::span<char> room() { return {block_.data + end_, block_.capacity - end_}; }
  void Commit(size_t bytes) { end_ += bytes; }
  void Append(std::string_view bytes);

  void Consume(size_t bytes) {
    begin_ += bytes;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void Clear() { begin_ = end_ = 0; }

  // room() has at least `bytes` afterwards. The content may move.
  void Reserve(size_t bytes);
  // Returns the block with its content to the pool.
  void Release();

 private:
  BufferPool* pool_;
  BufferPool::Block block_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace vllm_router
