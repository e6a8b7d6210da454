#include "index/segment_lru.h"

#include <algorithm>

namespace vllm_router {
namespace {

constexpr uint16_t kFewClaims = 4;

}  // namespace

SegmentLru::SegmentLru() : segments_(1), claims_(1) {}

void SegmentLru::Touch(BlockSpan span) {
  RunUse& use = TouchRun(span);
  const uint32_t end = span.first.offset() + span.count;
  if (use.lasting < end) use.lasting = static_cast<uint16_t>(end);
}

bool SegmentLru::Touch(BlockSpan span, uint64_t claim, const ClaimStates& claims) {
  RunUse& use = TouchRun(span);
  const uint32_t end = span.first.offset() + span.count;
  // Nearly always the one claim of the turn before. Many are checked each time that their number has
  // doubled.
  if (use.count > 0 && (use.count <= kFewClaims || use.count >= use.fold_at)) Fold(&use, claims);
  if (use.lasting >= end) return false;
  if (use.count == UINT16_MAX) {
    use.lasting = static_cast<uint16_t>(end);
    return false;
  }
  uint32_t added = free_claim_;
  if (added != 0) {
    free_claim_ = claims_[added].next;
  } else {
    added = static_cast<uint32_t>(claims_.size());
    claims_.emplace_back();
  }
  claims_[added] = {.id = claim, .end = end, .next = use.claims};
  use.claims = added;
  ++use.count;
  return true;
}

BlockSpan SegmentLru::Withdraw(uint32_t run, uint64_t claim, const ClaimStates& claims) {
  const auto found = first_.find(run);
  if (found == first_.end()) return {};
  RunUse& use = found->second;
  const uint16_t before = use.count;
  DropClaims(&use, [&](const Claim& each) { return each.id == claim; });
  if (use.count == before) return {};
  Fold(&use, claims);
  uint32_t kept = use.lasting;
  for (uint32_t each = use.claims; each != 0; each = claims_[each].next) {
    kept = std::max(kept, claims_[each].end);
  }
  // The segment that contains `kept` is shortened, and those behind it are removed.
  const BlockRef head = segments_[use.first].head;
  uint32_t shortened = 0;
  uint32_t furthest = 0;
  uint32_t gone = use.first;
  while (gone != 0 && furthest < kept) {
    shortened = gone;
    furthest = segments_[gone].end;
    gone = segments_[gone].deeper;
  }
  while (gone != 0) {
    const uint32_t deeper = segments_[gone].deeper;
    furthest = segments_[gone].end;
    Unlink(gone);
    Free(gone);
    gone = deeper;
  }
  if (furthest <= kept) return {};
  if (shortened == 0) {
    DropClaims(&use, [](const Claim&) { return true; });
    first_.erase(found);
  } else {
    segments_[shortened].deeper = 0;
    segments_[shortened].end = std::min(segments_[shortened].end, kept);
  }
  return {head + kept, furthest - kept};
}

uint32_t SegmentLru::AddUnnamed(uint32_t count, uint64_t claim) {
  const uint32_t added = Make();
  segments_[added] = {.head = BlockRef(), .end = count, .claim = claim};
  LinkNewest(added);
  unnamed_blocks_ += count;
  return added;
}

// The segment may have been evicted since and be in use for other blocks.
void SegmentLru::WithdrawUnnamed(uint32_t segment, uint64_t claim) {
  if (claim == 0 || segment >= segments_.size() || segments_[segment].claim != claim) return;
  unnamed_blocks_ -= segments_[segment].end;
  Unlink(segment);
  Free(segment);
}

template <typename Which>
void SegmentLru::DropClaims(RunUse* use, Which which) {
  uint32_t* link = &use->claims;
  while (*link != 0) {
    const uint32_t each = *link;
    if (!which(claims_[each])) {
      link = &claims_[each].next;
      continue;
    }
    *link = claims_[each].next;
    claims_[each].next = free_claim_;
    free_claim_ = each;
    --use->count;
  }
}

void SegmentLru::Fold(RunUse* use, const ClaimStates& claims) {
  for (uint32_t each = use->claims; each != 0; each = claims_[each].next) {
    const Claim& claim = claims_[each];
    if (claim.end > use->lasting && !claims.IsOpen(claim.id)) use->lasting = static_cast<uint16_t>(claim.end);
  }
  DropClaims(use, [&](const Claim& claim) { return claim.end <= use->lasting; });
  use->fold_at = static_cast<uint16_t>(std::min<uint32_t>(2 * use->count, UINT16_MAX));
}

SegmentLru::RunUse& SegmentLru::TouchRun(BlockSpan span) {
  const uint32_t end = span.first.offset() + span.count;
  RunUse& use = first_[span.first.run()];
  uint32_t& first = use.first;
  // Segments within [0, end) are replaced; the first of them is reused.
  uint32_t rest = first;
  uint32_t used = 0;
  uint32_t held = 0;  // up to here, unless there is more behind `rest`
  while (rest != 0 && segments_[rest].end <= end) {
    const uint32_t deeper = segments_[rest].deeper;
    held = segments_[rest].end;
    Unlink(rest);
    if (used == 0) {
      used = rest;
    } else {
      Free(rest);
    }
    rest = deeper;
  }
  if (used == 0) used = Make();
  segments_[used] = {
      .head = BlockRef(span.first.run(), span.first.generation(), 0), .end = end, .deeper = rest};
  if (rest != 0) segments_[rest].shallower = used;
  LinkNewest(used);
  first = used;
  if (rest == 0 && held < end && (held < use.lasting || use.claims != 0)) {
    // Blocks that were evicted behind `held` in the meantime are new again.
    use.lasting = static_cast<uint16_t>(std::min<uint32_t>(use.lasting, held));
    for (uint32_t each = use.claims; each != 0; each = claims_[each].next) {
      claims_[each].end = std::min(claims_[each].end, held);
    }
  }
  return use;
}

BlockSpan SegmentLru::TakeOldest(uint64_t most) {
  const uint32_t oldest = segments_[0].newer;
  if (oldest == 0 || most == 0) return {};
  // Deeper segments of a run are older, so this is the deepest of its run.
  Segment& segment = segments_[oldest];
  const uint32_t begin = segment.shallower == 0 ? 0 : segments_[segment.shallower].end;
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(most, segment.end - begin));
  segment.end -= count;
  const bool unnamed = segment.head.is_root();
  if (unnamed) unnamed_blocks_ -= count;
  const BlockSpan taken{unnamed ? BlockRef() : segment.head + segment.end, count};
  if (segment.end != begin) return taken;
  Unlink(oldest);
  if (segment.shallower != 0) {
    segments_[segment.shallower].deeper = 0;
  } else if (!unnamed) {
    const auto found = first_.find(segment.head.run());
    DropClaims(&found->second, [](const Claim&) { return true; });
    first_.erase(found);
  }
  Free(oldest);
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

void SegmentLru::Free(uint32_t segment) {
  segments_[segment].claim = 0;
  free_.push_back(segment);
}

size_t SegmentLru::bytes() const {
  // A slot of the hash map is an entry and a byte of control.
  return segments_.capacity() * sizeof(Segment) + free_.capacity() * sizeof(uint32_t) +
         first_.capacity() * (sizeof(decltype(first_)::value_type) + 1) + claims_.capacity() * sizeof(Claim);
}

}  // namespace vllm_router
