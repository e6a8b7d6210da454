// Block hashes: a prompt as a chain of 64-bit names, each of which stands for everything up to and
// including its block. Equal hashes at block 2 imply equal blocks 0 and 1; the block index relies on
// this.
//
//   tokens   t0..t15     t16..t31    t32..t47   t48 t49      block_size = 16; an incomplete block is ignored
//   local      L0          L1          L2                     independent of each other
//               |           |           |
//   root ----> H0 -------> H1 -------> H2
//
//   Li = XXH3_64(token ids of block i as little-endian u32, then the extra bytes of block i; seed)
//   Hi = XXH3_64(H(i-1) as little-endian u64, Li as little-endian u64; seed), and a result of 0 becomes 1
//
// The root holds what makes equal tokens unequal: the LoRA adapter and the cache salt. What belongs to
// one block (identifiers of images and their offsets) goes into the extra bytes of that block. Model and
// block size are not hashed: prompts of different models or block sizes belong into different indexes.
// Tables use 0 for "empty".
//
// A prompt without token ids is hashed as text, in blocks of 4 * block_size bytes, under a root of its own.
//
// Cost: 6 ns per block of 16 tokens, of which only the 16-byte step depends on its predecessor. A const
// hasher may be shared.
//
//   BlockHasher hasher(16);
//   std::vector<BlockHash> chain(hasher.CountBlocks(tokens));
//   hasher.Hash(hasher.Root({}), tokens, chain);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace vllm_router {

using BlockHash = uint64_t;
inline constexpr BlockHash kNoBlock = 0;  // names no block, whatever is hashed

// What all blocks of a prompt share besides their tokens. An empty name is an absent one.
struct PromptScope {
  std::string_view lora_name;
  std::string_view cache_salt;
  bool is_text = false;  // blocks of bytes, which never equal blocks of token ids
};

// Bytes that belong to one block besides its tokens.
struct BlockExtra {
  size_t block;
  std::string_view bytes;
};

class BlockHasher {
 public:
  // REQUIRES: 0 < block_size <= kMaxBlockSize. Chains with different seeds have nothing in common.
  explicit BlockHasher(uint32_t block_size, uint64_t seed = 0);

  uint32_t block_size() const { return block_size_; }
  uint64_t seed() const { return seed_; }
  size_t block_bytes() const { return size_t{4} * block_size_; }
  size_t CountBlocks(std::span<const uint32_t> tokens) const { return tokens.size() / block_size_; }
  size_t CountBlocks(std::string_view text) const { return text.size() / block_bytes(); }

  // The parent of block 0: the seed itself without any of the fields, else XXH3_64 of those that are
  // present, each as a letter ('L' adapter, 'S' salt, 'T' text), its length as little-endian u32, and
  // its bytes. 0 only for seed 0.
  BlockHash Root(const PromptScope& scope) const;

  // Fills `out` with the hashes of the complete blocks behind `parent` (a root, or the last hash of the
  // blocks before). REQUIRES: out.size() == CountBlocks(...). `extras` ascend by block, at most one per
  // block.
  void Hash(BlockHash parent, std::span<const uint32_t> tokens, std::span<BlockHash> out) const;
  void Hash(BlockHash parent, std::string_view text, std::span<BlockHash> out) const;
  void Hash(
      BlockHash parent, std::span<const uint32_t> tokens, std::span<const BlockExtra> extras,
      std::span<BlockHash> out) const;
  void Hash(
      BlockHash parent, std::string_view text, std::span<const BlockExtra> extras,
      std::span<BlockHash> out) const;

  // Hash i is XXH3_64(i as little-endian u64, then the bytes of block i), without seed or root. It does
  // not depend on earlier blocks, so equal blocks at equal places of unequal prompts have equal hashes.
  // For comparison with other routers; the index cannot use it (docs/explanation/block_index.md).
  void HashPositions(std::span<const uint32_t> tokens, std::span<BlockHash> out) const;
  void HashPositions(std::string_view text, std::span<BlockHash> out) const;

 private:
  const uint32_t block_size_;
  const uint64_t seed_;
};

}  // namespace vllm_router
