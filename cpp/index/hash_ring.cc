#include "index/hash_ring.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "base/check.h"

namespace vllm_router {

HashRing::HashRing(std::span<const Node> nodes, HashFunction function) {
  struct Point {
    uint64_t hash;
    uint32_t owner;
  };
  size_t total = 0;
  for (const Node& node : nodes) total += node.points;
  ROUTER_CHECK(total < UINT32_MAX, "a ring numbers its points in 32 bits");

  std::vector<Point> points;
  points.reserve(total);
  std::string name;
  for (uint32_t owner = 0; owner < nodes.size(); ++owner) {
    name.assign(nodes[owner].name);
    name.push_back(':');
    const size_t stem = name.size();
    for (uint32_t i = 0; i < nodes[owner].points; ++i) {
      char digits[10];
      const auto end = std::to_chars(digits, digits + sizeof(digits), i).ptr;
      name.resize(stem);
      name.append(digits, end);
      points.push_back({RingHash(function, name), owner});
    }
  }

  // Of equal points the later in node order stays; two of one node are the same point anyway.
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.owner < b.owner;
  });
  hashes_.reserve(points.size());
  owners_.reserve(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    if (i + 1 < points.size() && points[i + 1].hash == points[i].hash) continue;
    hashes_.push_back(points[i].hash);
    owners_.push_back(points[i].owner);
  }
  if (empty()) return;

  // About one point per bucket. Two buckets at least: a shift by 64 is not defined.
  const int bits = std::max<int>(1, std::bit_width(size() - 1));
  shift_ = 64 - bits;
  bucket_.resize(size_t{1} << bits);
  uint32_t point = 0;
  for (size_t bucket = 0; bucket < bucket_.size(); ++bucket) {
    const uint64_t begin = static_cast<uint64_t>(bucket) << shift_;
    while (point < size() && hashes_[point] < begin) ++point;
    bucket_[bucket] = point;
  }
}

size_t HashRing::FindPoint(uint64_t hash) const {
  size_t point = bucket_[hash >> shift_];
  while (point < hashes_.size() && hashes_[point] < hash) ++point;
  return point == hashes_.size() ? 0 : point;
}

}  // namespace vllm_router
