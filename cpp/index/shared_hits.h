// SharedHits: which blocks of a prompt a pool holds that every worker can load from.
//
//   blocks     0  1  2  3  4  5  6  7  8
//   the pool   x  x           x  x  x  x        {[0, 2), [5, 9)}: total 6
//                 `--- Beyond(1) = 5 ---´        what a worker that holds the first block would load
//
// Cost of Beyond: O(log ranges). Immutable, so thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vllm_router {

// Blocks of a prompt, without the last.
struct BlockRange {
  uint32_t begin;
  uint32_t end;
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

class SharedHits {
 public:
  SharedHits() = default;
  // In any order; they may overlap, and may be empty.
  explicit SharedHits(std::vector<BlockRange> ranges) : ranges_(std::move(ranges)) {
    std::erase_if(ranges_, [](const BlockRange& range) { return range.begin >= range.end; });
    std::ranges::sort(ranges_, {}, &BlockRange::begin);
    size_t kept = 0;
    for (size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].begin <= ranges_[kept].end) {
        ranges_[kept].end = std::max(ranges_[kept].end, ranges_[i].end);
      } else {
        ranges_[++kept] = ranges_[i];
      }
    }
    if (!ranges_.empty()) ranges_.resize(kept + 1);
    later_.resize(ranges_.size());
    for (size_t i = ranges_.size(); i-- > 1;) later_[i - 1] = later_[i] + (ranges_[i].end - ranges_[i].begin);
  }

  // Sorted; between two of them is a block that the pool does not hold.
  std::span<const BlockRange> ranges() const { return ranges_; }
  uint32_t total() const { return Beyond(0); }
  // Of the blocks without the first so many.
  uint32_t Beyond(uint64_t blocks) const {
    const auto range = std::ranges::upper_bound(ranges_, blocks, {}, &BlockRange::end);
    if (range == ranges_.end()) return 0;
    const auto first = static_cast<uint32_t>(std::max<uint64_t>(blocks, range->begin));
    return range->end - first + later_[static_cast<size_t>(range - ranges_.begin())];
  }

 private:
  std::vector<BlockRange> ranges_;
  std::vector<uint32_t> later_;  // for each range, blocks of those behind it
};

}  // namespace vllm_router
