// HashRing: which worker owns a key. A worker that joins or leaves moves only its own keys.
//
//   points   0x12:w1   0x3f:w0   0x77:w2   0xb1:w1   0xe0:w0
//   key 0x50 --------------------^ owner w2; if w2 may not be used, walk on: w1, then w0
//
// A table of buckets, one or two per point, gives for the top bits of a key where the search starts:
//
//   bucket   [0x00  [0x20  [0x40  [0x60  [0x80  [0xa0  [0xc0  [0xe0       key 0x50 -> bucket 2 -> point 2, 0x77
//   first      0      1      2      2      3      3      4      4
//
// Immutable: build the next ring aside and publish it. `Changed` makes it of the last one, so that only
// the points of new nodes are hashed and sorted. Owners are positions in a fleet (uint32), opaque here.
//
//   HashRing ring({{"http://w0:8000", 160}, {"http://w1:8000", 160}}, HashFunction::kXxh3);
//   uint32_t owner = ring.FindOwner(RingHash(HashFunction::kXxh3, key));                       // 0 or 1
//   HashRing next = ring.Changed({{"http://w1:8000", 160}});                                  // w0 has left
//
// Cost: build O(points log points); change O(points), 10 to 20 times cheaper; lookup a bucket and on
// average one step, 4..10 ns; 16 to 20 bytes per point. A const ring may be shared. Karger et al.,
// "Consistent Hashing and Random Trees" (STOC 1997); with a bound on loads: Mirrokni, Thorup,
// Zadimoghaddam, "Consistent Hashing with Bounded Loads" (SODA 2018).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "hashing/hash.h"

namespace vllm_router {

// Points of one ring, all nodes together: as many as furc has places, 130..170 MB.
inline constexpr uint64_t kMaxRingPoints = uint64_t{1} << 23;
inline constexpr uint32_t kMaxVirtualNodes = 65'536;

class HashRing {
 public:
  struct Node {
    std::string_view name;  // points are the hashes of "<name>:<i>"
    uint32_t points;        // how many
  };

  // Points of a node of this weight (in thousandths): in proportion, at least 1.
  static uint64_t PointsOf(uint32_t virtual_nodes, uint32_t weight) {
    const uint64_t points = (uint64_t{virtual_nodes} * weight + kWeightOne / 2) / kWeightOne;
    return points == 0 ? 1 : points;
  }

  HashRing() = default;
  // Owner k is nodes[k]. Where two points are equal the later one (in node order, then i) replaces the
  // earlier.
  HashRing(std::span<const Node> nodes, HashFunction function);

  // The ring that HashRing(nodes, function) would be, made of this one: nodes that are here already,
  // whatever their position, keep their points. A point that was replaced comes back when its
  // replacement leaves.
  HashRing Changed(std::span<const Node> nodes) const;

  bool empty() const { return hashes_.empty(); }
  size_t size() const { return hashes_.size(); }
  HashFunction function() const { return function_; }

  // Index of the first point at or after `hash`, wrapping. REQUIRES: !empty().
  size_t FindPoint(uint64_t hash) const {
    size_t point = bucket_[hash >> shift_];
    while (point < hashes_.size() && hashes_[point] < hash) ++point;
    return point == hashes_.size() ? 0 : point;
  }
  uint64_t hash(size_t point) const { return hashes_[point]; }
  uint32_t owner(size_t point) const { return owners_[point]; }

  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t FindOwner(uint64_t hash) const { return empty() ? kNone : owners_[FindPoint(hash)]; }

  // The first owner at or after `hash`, clockwise, that `accepts(owner)`; kNone if none does. Bounded
  // loads are this with "is below its cap". A further point of the owner just rejected is skipped;
  // otherwise a rejected owner may be tested again: O(points) in the worst case.
  template <typename Accepts>
  uint32_t FindOwner(uint64_t hash, Accepts&& accepts) const {
    if (empty()) return kNone;
    size_t point = FindPoint(hash);
    uint32_t rejected = kNone;
    for (size_t steps = 0; steps < size(); ++steps) {
      const uint32_t owner = owners_[point];
      if (owner != rejected) {
        if (accepts(owner)) return owner;
        rejected = owner;
      }
      if (++point == size()) point = 0;
    }
    return kNone;
  }

 private:
  struct Point {
    uint64_t hash;
    uint32_t owner;
  };
  struct Named {
    std::string name;
    uint32_t points;
  };

  static void AppendPoints(
      const Node& node, uint32_t owner, HashFunction function, std::vector<Point>* points);
  static void Sort(std::vector<Point>* points);
  void Push(Point point);
  void FillBuckets();

  HashFunction function_ = HashFunction::kXxh3;
  std::vector<Named> nodes_;      // by owner
  std::vector<uint64_t> hashes_;  // ascending, distinct
  std::vector<uint32_t> owners_;  // of the point with the same index
  std::vector<Point> replaced_;   // points that another one has replaced, by hash
  std::vector<uint32_t> bucket_;  // bucket_[h >> shift_] = first point whose hash is in that bucket or later
  int shift_ = 0;
};

}  // namespace vllm_router
