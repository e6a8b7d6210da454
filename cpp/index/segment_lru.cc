#include "index/segment_lru.h"

#include <algorithm>

namespace vllm_router {

SegmentLru::SegmentLru() : segments_(1) {}

void SegmentLru::Touch(BlockSpan span) {
  const uint32_t end = span.first.offset() + span.count;
  uint32_t& first = first_[span.first.run()];
  // Segments that lie within [0, end) are swallowed; the first of them serves again.
  uint32_t rest = first;
  uint32_t used = 0;
  while (rest != 0 && segments_[rest].end <= end) {
    const uint32_t deeper = segments_[rest].deeper;
    Unlink(rest);
    if (used == 0) {
      used = rest;
    } else {
      free_.push_back(rest);
    }
    rest = deeper;
  }
  if (used == 0) used = Make();
  segments_[used] = {
      .head = BlockRef(span.first.run(), span.first.generation(), 0), .end = end, .deeper = rest};
  if (rest != 0) segments_[rest].shallower = used;
  LinkNewest(used);
  first = used;
}

BlockSpan SegmentLru::TakeOldest(uint64_t most) {
  const uint32_t oldest = segments_[0].newer;
  if (oldest == 0 || most == 0) return {};
  // Deeper segments of a run are older, so this is the deepest of its run.
  Segment& segment = segments_[oldest];
  const uint32_t begin = segment.shallower == 0 ? 0 : segments_[segment.shallower].end;
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(most, segment.end - begin));
  segment.end -= count;
  const BlockSpan taken{segment.head + segment.end, count};
  if (segment.end == begin) {
    Unlink(oldest);
    if (segment.shallower == 0) {
      first_.erase(segment.head.run());
    } else {
      segments_[segment.shallower].deeper = 0;
    }
    free_.push_back(oldest);
  }
  return taken;
}

uint32_t SegmentLru::Make() {
  if (!free_.empty()) {
    const uint32_t segment = free_.back();
    free_.pop_back();
    return segment;
  }
  segments_.emplace_back();
  return static_cast<uint32_t>(segments_.size() - 1);
}

void SegmentLru::Unlink(uint32_t segment) {
  const Segment& gone = segments_[segment];
  segments_[gone.newer].older = gone.older;
  segments_[gone.older].newer = gone.newer;
}

void SegmentLru::LinkNewest(uint32_t segment) {
  const uint32_t second = segments_[0].older;
  segments_[segment].newer = 0;
  segments_[segment].older = second;
  segments_[second].newer = segment;
  segments_[0].older = segment;
}

size_t SegmentLru::bytes() const {
  // A slot of the hash map is an entry and a byte of control.
  return segments_.capacity() * sizeof(Segment) + free_.capacity() * sizeof(uint32_t) +
         first_.capacity() * (sizeof(decltype(first_)::value_type) + 1);
}

}  // namespace vllm_router
