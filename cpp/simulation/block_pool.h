// BlockPool: the KV memory of a simulated engine, in blocks. A running request holds blocks, which are
// never taken from it. Released blocks can be found by name until their place is needed.
//
//   held        [a b c d]  [a b x]          a and b are shared: two references
//   given back  least recent   q r | s t u   most recent
//               taken first ---^             of one request the tail comes before the head, as in vLLM
//
// A name is a hash of a block and everything before it (hashing/block_hash.h); 0 is no name: content
// that is never looked up. A block can be hit once it is computed, which is later than it was reserved.
//
// Cost: one hash lookup per block reserved, one more per block evicted; 32 bytes per block that was
// ever used. One thread.
//
//   BlockPool pool(4096);
//   BlockPool::Reservation got;
//   if (pool.Reserve(names, &got)) ...    // got.hit leading blocks are computed already
//   pool.SetComputed(got.places[i]);
//   pool.Release(got.places, computed);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace vllm_router {

class BlockPool {
 public:
  // A block that can be hit from now on, or no longer: a KV event.
  struct Change {
    uint64_t name;
    bool stored;  // else: removed
  };

  // REQUIRES: capacity < 2^32 - 1.
  explicit BlockPool(uint64_t capacity);

  uint64_t capacity() const { return capacity_; }
  uint64_t held() const { return held_; }          // by requests
  uint64_t resident() const { return resident_; }  // computed and named, held or not
  uint64_t evicted() const { return evicted_; }    // computed blocks that were evicted, ever

  // Number of leading names that can be hit.
  size_t Match(std::span<const uint64_t> names) const;

  struct Reservation {
    std::vector<uint32_t> places;
    size_t hit = 0;  // leading blocks that are computed
  };
  // A place for each name, then for `nameless` more. False, without any change, while too few are free.
  // Beyond the capacity: as many as that. `out` is reused.
  bool Reserve(std::span<const uint64_t> names, size_t nameless, Reservation* out);

  // From now on it can be hit. REQUIRES: reserved.
  void SetComputed(uint32_t place);
  // Releases what Reserve gave. Of the nameless ones those among the first `computed` places have
  // content.
  void Release(std::span<const uint32_t> places, size_t computed);

  // Forgets the blocks that no request holds, as a reset of the prefix cache does.
  void Wipe();

  // Every change is appended to `log` from now on; null: stops.
  void LogChanges(std::vector<Change>* log) { log_ = log; }

 private:
  static constexpr uint32_t kEnds = 0;  // place 0 is no block: both ends of the queue

  struct Block {
    uint64_t name = 0;
    uint32_t references = 0;
    uint32_t next = 0;  // towards the most recent
    uint32_t previous = 0;
    bool computed = false;
  };
  uint64_t Free() const { return capacity_ - held_; }
  void Unlink(uint32_t place);
  void LinkBefore(uint32_t place, uint32_t next);
  uint32_t Take();            // the least recent place, emptied
  void Forget(Block& block);  // its name

  const uint64_t capacity_;
  uint64_t held_ = 0;
  uint64_t resident_ = 0;
  uint64_t evicted_ = 0;
  std::vector<Block> blocks_;  // grows as places are first used
  absl::flat_hash_map<uint64_t, uint32_t> places_;
  std::vector<Change>* log_ = nullptr;
};

}  // namespace vllm_router
