// HashRing: which worker owns a key, such that a worker that comes or goes moves only its own keys.
//
//   points   0x12:w1   0x3f:w0   0x77:w2   0xb1:w1   0xe0:w0
//   key 0x50 --------------------^ owner w2; if w2 may not be used, walk on: w1, then w0
//
// Immutable once built: build the next ring aside and publish it. Owners are positions in a fleet (uint32), opaque
// here. Cost: build O(points log points); lookup a bucket table and a step or two, 4..10 ns; 12 bytes per point.
// Const is shareable. Karger et al., "Consistent Hashing and Random Trees" (STOC 1997).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hashing/hash.h"

namespace vllm_router {

class HashRing {
 public:
  struct Node {
    std::string_view name;  // points are the hashes of "<name>:<i>"
    uint32_t points;        // how many
  };

  HashRing() = default;
  // Owner k is nodes[k]. Where two points are equal the later one (in node order, then i) replaces the earlier.
  HashRing(std::span<const Node> nodes, HashFunction function);

  bool empty() const { return hashes_.empty(); }
  size_t size() const { return hashes_.size(); }

  // Index of the first point at or after `hash`, wrapping. REQUIRES: !empty().
  size_t FindPoint(uint64_t hash) const;
  uint64_t hash(size_t point) const { return hashes_[point]; }
  uint32_t owner(size_t point) const { return owners_[point]; }

  // The first owner at or after `hash`, clockwise, that `accepts(owner)`; kNone if none does. Each point is asked
  // once, so a rejected owner may be asked again; O(points) in the worst case.
  static constexpr uint32_t kNone = UINT32_MAX;
  template <typename Accepts>
  uint32_t FindOwner(uint64_t hash, Accepts&& accepts) const {
    if (empty()) return kNone;
    size_t point = FindPoint(hash);
    for (size_t steps = 0; steps < size(); ++steps) {
      if (accepts(owners_[point])) return owners_[point];
      if (++point == size()) point = 0;
    }
    return kNone;
  }

 private:
  std::vector<uint64_t> hashes_;  // ascending, distinct
  std::vector<uint32_t> owners_;  // of the point with the same index
  std::vector<uint32_t> bucket_;  // bucket_[h >> shift_] = first point whose hash is in that bucket or later
  int shift_ = 0;
};

}  // namespace vllm_router
