// PrefixCache: which prompt prefixes a simulated engine still has in its KV cache. It keeps no tokens, only
// the hashes of full blocks, each chained to the one before it, so that a hash names its whole prefix:
//
//   tokens   | a a a a | b b b b | c c        block_tokens = 4; the last two tokens fill no block
//   chain      h0 ----->  h1                  h1 = XXH3(h0, XXH3(b b b b))
//
//   most recent  h0 h1 | g0 g1 g2  least recent
//                `-----------------------> evicted from here
//
// A use makes the blocks of a request most recent, its first block before its last. So the last block of a
// request goes first, as in vLLM, and no block outlives the one before it: what is left of a chain is always
// a prefix. Blocks of running requests are not pinned; a fleet so full that this matters has lost its cache
// anyway.
//
// Cost: Match and Use one hash lookup per block; 48 bytes per resident block. One thread.
//
//   PrefixCache cache(4096);
//   std::vector<uint64_t> chain = BlockChain(tokens, 16);
//   size_t cached_blocks = cache.Match(chain);
//   cache.Use(chain);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace vllm_router {

// Appends the hashes of the full blocks of `tokens` to `chain`, whose last hash is the block before the first
// of them. REQUIRES: block_tokens > 0.
void AppendBlockChain(std::span<const uint32_t> tokens, size_t block_tokens, std::vector<uint64_t>* chain);
std::vector<uint64_t> BlockChain(std::span<const uint32_t> tokens, size_t block_tokens);

class PrefixCache {
 public:
  // Zero blocks: nothing is ever cached.
  explicit PrefixCache(size_t capacity_blocks);

  // Number of leading blocks of the chain that are resident. Changes nothing.
  size_t Match(std::span<const uint64_t> chain) const;

  // Makes the chain resident and most recent, and evicts what no longer fits. Of a chain longer than the
  // cache only the beginning stays.
  void Use(std::span<const uint64_t> chain);

  void Clear();

  size_t size() const { return places_.size(); }
  size_t capacity() const { return capacity_; }
  uint64_t evicted() const { return evicted_; }  // blocks, since the beginning

 private:
  // Blocks form a ring through the sentinel nodes_[0]: its `next` is the most recent block.
  struct Node {
    uint64_t hash = 0;
    uint32_t next = 0;
    uint32_t previous = 0;
  };
  void Unlink(uint32_t place);
  void LinkAfter(uint32_t place, uint32_t before);

  size_t capacity_;
  uint64_t evicted_ = 0;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> places_;
};

}  // namespace vllm_router
