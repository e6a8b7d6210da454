// RemovedBlocks: the last blocks that one engine's cache removed, by the engine's hash. An engine may say that
// it keeps a block in host memory after it has removed it from the GPU, and then without its tokens: what the
// block stands for is found here.
//
//   Add(7, parent 5, [hash of the block])    the oldest makes room
//   Find(7)                                  parent 5, [hash of the block]
//
// A block that is several of the index has as many hashes. Of a hash that was removed twice the newer counts.
//
// Cost: two cache misses per block; some 50 bytes and its hashes for each that is kept. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "events/kv_event.h"
#include "hashing/block_hash.h"

namespace vllm_router {

// The block before another one in its prompt.
struct ParentBlock {
  EngineHash name = 0;
  BlockHash hash = kNoBlock;  // kNoBlock: there is none, and `name` means nothing
};

class RemovedBlocks {
 public:
  struct Block {
    ParentBlock parent;
    std::span<const BlockHash> hashes;  // valid until the next change
  };

  explicit RemovedBlocks(size_t max_blocks) : max_blocks_(max_blocks) {}

  // REQUIRES: `hashes` is as long as those added since the last Clear(), and not empty.
  void Add(EngineHash name, const ParentBlock& parent, std::span<const BlockHash> hashes);
  std::optional<Block> Find(EngineHash name) const;
  void Clear();

  size_t size() const { return ring_.size(); }
  size_t bytes() const;

 private:
  struct Entry {
    EngineHash name;
    ParentBlock parent;
  };

  const size_t max_blocks_;
  size_t oldest_ = 0;  // once the ring is full
  std::vector<Entry> ring_;
  std::vector<BlockHash> hashes_;  // of the entries, in their order
  absl::flat_hash_map<EngineHash, size_t> place_of_;
};

}  // namespace vllm_router
