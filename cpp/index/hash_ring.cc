#include "index/hash_ring.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <numeric>

#include <absl/container/flat_hash_map.h>

#include "base/check.h"

namespace vllm_router {
namespace {

size_t CountPoints(std::span<const HashRing::Node> nodes) {
  size_t total = 0;
  for (const HashRing::Node& node : nodes) total += node.points;
  ROUTER_CHECK(total < UINT32_MAX, "a ring numbers its points in 32 bits");
  return total;
}

}  // namespace

HashRing::HashRing(std::span<const Node> nodes, HashFunction function) {
  HashRing none;
  none.function_ = function;
  *this = none.Changed(nodes);
}

void HashRing::AppendPoints(
    const Node& node, uint32_t owner, HashFunction function, std::vector<Point>* points) {
  std::string name(node.name);
  name.push_back(':');
  const size_t stem = name.size();
  for (uint32_t i = 0; i < node.points; ++i) {
    char digits[10];
    const auto end = std::to_chars(digits, digits + sizeof(digits), i).ptr;
    name.resize(stem);
    name.append(digits, end);
    points->push_back({RingHash(function, name), owner});
  }
}

// Hashes are spread evenly, so their top bits put each within a few places of where it belongs.
void HashRing::Sort(std::vector<Point>* points) {
  const auto is_before = [](const Point& a, const Point& b) { return a.hash < b.hash; };
  constexpr size_t kFew = 4096;
  if (points->size() <= kFew) return std::sort(points->begin(), points->end(), is_before);
  const int shift = 64 - std::bit_width(points->size() / 8);
  std::vector<uint32_t> ends((size_t{1} << (64 - shift)) + 1, 0);  // first counts, then where each part ends
  for (const Point& point : *points) ++ends[(point.hash >> shift) + 1];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::vector<Point> sorted(points->size());
  for (const Point& point : *points) sorted[ends[point.hash >> shift]++] = point;
  uint32_t begin = 0;
  for (size_t part = 0; part + 1 < ends.size(); begin = ends[part++])
    std::sort(sorted.begin() + begin, sorted.begin() + ends[part], is_before);
  points->swap(sorted);
}

HashRing HashRing::Changed(std::span<const Node> nodes) const {
  const size_t total = CountPoints(nodes);
  HashRing next;
  next.function_ = function_;
  next.nodes_.reserve(nodes.size());
  for (const Node& node : nodes) next.nodes_.push_back({std::string(node.name), node.points});

  // The remaining nodes, by the owner's old number, and the points of the new ones. A second node of one
  // name counts as new: that is slower, and gives the same ring.
  absl::flat_hash_map<std::string_view, uint32_t> known;
  for (uint32_t owner = 0; owner < nodes_.size(); ++owner) known.emplace(nodes_[owner].name, owner);
  std::vector<uint32_t> renamed(nodes_.size(), kNone);
  std::vector<Point> fresh;
  for (uint32_t owner = 0; owner < nodes.size(); ++owner) {
    const auto found = known.find(nodes[owner].name);
    if (found != known.end() && nodes_[found->second].points == nodes[owner].points &&
        renamed[found->second] == kNone) {
      renamed[found->second] = owner;
    } else {
      AppendPoints(nodes[owner], owner, function_, &fresh);
    }
  }
  Sort(&fresh);

  // One merge of three ascending sequences: the ring's own points, those that were replaced, new ones.
  next.hashes_.reserve(total);
  next.owners_.reserve(total);
  auto replaced = replaced_.begin();
  auto newest = fresh.begin();
  const auto push_before = [&](uint64_t hash) {  // the points before `hash`, or equal to it
    while (newest != fresh.end() || replaced != replaced_.end()) {
      const bool is_fresh =
          replaced == replaced_.end() || (newest != fresh.end() && newest->hash <= replaced->hash);
      if ((is_fresh ? newest->hash : replaced->hash) > hash) return;
      if (is_fresh) {
        next.Push(*newest++);
        continue;
      }
      const uint32_t owner = renamed[replaced->owner];
      if (owner != kNone) next.Push({replaced->hash, owner});
      ++replaced;
    }
  };
  for (size_t i = 0; i < size(); ++i) {
    push_before(hashes_[i]);
    const uint32_t owner = renamed[owners_[i]];
    if (owner != kNone) next.Push({hashes_[i], owner});
  }
  push_before(UINT64_MAX);
  next.FillBuckets();
  return next;
}

// Of equal points the later in node order stays. Points come in the order of their hashes.
void HashRing::Push(Point point) {
  if (!empty() && hashes_.back() == point.hash) {
    if (point.owner > owners_.back()) std::swap(point.owner, owners_.back());
    // Two equal points of one node are one.
    if (point.owner != owners_.back()) replaced_.push_back(point);
    return;
  }
  hashes_.push_back(point.hash);
  owners_.push_back(point.owner);
}

// About one point per bucket. At least two buckets: a shift by 64 is not defined.
void HashRing::FillBuckets() {
  if (empty()) return;
  const int bits = std::max<int>(1, std::bit_width(size() - 1));
  shift_ = 64 - bits;
  bucket_.resize(size_t{1} << bits);
  size_t bucket = 0;
  for (uint32_t point = 0; point < size(); ++point) {
    for (const size_t own = hashes_[point] >> shift_; bucket <= own; ++bucket) bucket_[bucket] = point;
  }
  std::fill(bucket_.begin() + static_cast<ptrdiff_t>(bucket), bucket_.end(), static_cast<uint32_t>(size()));
}

}  // namespace vllm_router
