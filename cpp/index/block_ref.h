// BlockRef: the place of a block in a BlockIndex. Insert hands one out per block; Remove takes them
// back, so that no caller needs a table from hashes to places.
//
//   | 4 unused | run 28 | generation 16 | offset 16 |
//
// A ref names one block for as long as the index lives: a place is not given to another block before the
// generation of its run changes, and a run whose generations are used up is not used again. While any
// owner holds the block its ref is valid; after that it may read as unknown.
#pragma once

#include <cstdint>

namespace vllm_router {

class BlockRef {
 public:
  // The parent of a prompt's first block.
  constexpr BlockRef() = default;
  constexpr explicit BlockRef(uint64_t bits) : bits_(bits) {}
  constexpr BlockRef(uint32_t run, uint16_t generation, uint32_t offset)
      : bits_(static_cast<uint64_t>(run) << 32 | static_cast<uint64_t>(generation) << 16 | offset) {}

  constexpr bool is_root() const { return bits_ == 0; }
  constexpr uint32_t run() const { return static_cast<uint32_t>(bits_ >> 32); }
  constexpr uint16_t generation() const { return static_cast<uint16_t>(bits_ >> 16); }
  constexpr uint32_t offset() const { return static_cast<uint32_t>(bits_ & 0xffff); }
  constexpr uint64_t bits() const { return bits_; }

  // The ref of a block `blocks` further on in the same run.
  constexpr BlockRef operator+(uint32_t blocks) const { return BlockRef(bits_ + blocks); }
  friend constexpr bool operator==(BlockRef, BlockRef) = default;

 private:
  uint64_t bits_ = 0;
};

// Consecutive blocks of one run.
struct BlockSpan {
  BlockRef first;
  uint32_t count = 0;
};

}  // namespace vllm_router
