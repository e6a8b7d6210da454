#include "index/coverage.h"

#include <algorithm>

#include <absl/container/inlined_vector.h>

namespace vllm_router {
namespace {

constexpr uint8_t Bit(Tier tier) { return static_cast<uint8_t>(1u << static_cast<int>(tier)); }

}  // namespace

Coverage Coverage::Leading(uint32_t blocks) {
  Coverage coverage;
  if (blocks > 0) coverage.Add(Tier::kGpu, 0, blocks);
  return coverage;
}

Coverage::Change Coverage::Apply(Tier tier, uint32_t begin, uint32_t end, bool add) {
  Change change;
  absl::InlinedVector<Segment, 8> made;
  const auto make = [&made](uint32_t from, uint32_t to, uint8_t tiers) {
    if (from >= to || tiers == 0) return;
    if (!made.empty() && made.back().end == from && made.back().tiers == tiers) {
      made.back().end = static_cast<uint16_t>(to);
    } else {
      made.push_back({static_cast<uint16_t>(from), static_cast<uint16_t>(to), tiers});
    }
  };

  // From the first segment that reaches or touches [begin, end) to the last: neighbours may have to be joined.
  auto first = std::lower_bound(
      segments_.begin(), segments_.end(), begin,
      [](const Segment& segment, uint32_t block) { return segment.end < block; });
  auto last = first;
  uint32_t position = begin;  // blocks below are settled
  for (; last != segments_.end() && last->begin <= end; ++last) {
    const uint32_t from = std::clamp<uint32_t>(last->begin, begin, end);
    const uint32_t to = std::clamp<uint32_t>(last->end, begin, end);
    make(last->begin, std::min<uint32_t>(last->end, begin), last->tiers);
    if (add && position < from) {
      make(position, from, Bit(tier));
      change.on_tier += from - position;
      change.held += from - position;
    }
    if (from < to) {
      const auto tiers =
          static_cast<uint8_t>(add ? last->tiers | Bit(tier) : last->tiers & ~static_cast<int>(Bit(tier)));
      make(from, to, tiers);
      if (tiers != last->tiers) change.on_tier += to - from;
      if (tiers == 0) change.held += to - from;
    }
    position = std::max(position, to);
    if (last->end > end) {
      make(std::max<uint32_t>(last->begin, end), last->end, last->tiers);
      position = end;
    }
  }
  if (add && position < end) {
    make(position, end, Bit(tier));
    change.on_tier += end - position;
    change.held += end - position;
  }

  const auto replaced = std::min(made.size(), static_cast<size_t>(last - first));
  first = std::copy_n(made.begin(), replaced, first);
  if (replaced < made.size()) {
    segments_.insert(first, made.begin() + static_cast<std::ptrdiff_t>(replaced), made.end());
  } else {
    segments_.erase(first, last);
  }
  return change;
}

bool Coverage::IsLeading() const {
  if (segments_.empty()) return true;
  return segments_.size() == 1 && segments_[0].begin == 0 && segments_[0].tiers == Bit(Tier::kGpu);
}

Cuts Coverage::cuts() const {
  Cuts cuts{};
  // Tiers that still reach from block 0 to here; a slower one reaches at least as far as a faster one.
  uint32_t position = 0;
  int reaching = 0;  // the fastest of them
  for (const Segment& segment : segments_) {
    if (segment.begin != position) break;
    while (reaching < kTierCount && (segment.tiers & ((2u << reaching) - 1)) == 0) ++reaching;
    if (reaching == kTierCount) break;
    position = segment.end;
    for (int tier = reaching; tier < kTierCount; ++tier) cuts[static_cast<size_t>(tier)] = segment.end;
  }
  return cuts;
}

uint32_t Coverage::Count() const {
  uint32_t count = 0;
  for (const Segment& segment : segments_) count += segment.end - segment.begin;
  return count;
}

uint32_t Coverage::Count(Tier tier) const {
  uint32_t count = 0;
  for (const Segment& segment : segments_)
    count += (segment.tiers & Bit(tier)) != 0 ? segment.end - segment.begin : 0;
  return count;
}

}  // namespace vllm_router
