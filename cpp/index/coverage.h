// Coverage: which blocks of a run one owner holds, and on which tiers, when they are not simply the
// first ones on the GPU. Few owners of few runs have one: those with a gap, or with blocks in host or
// external memory.
//
//   block      0 1 2 3 4 5 6 7 8
//   GPU        # # # # . # # . .        segments   [0,2) GPU   [2,4) GPU+host   [5,7) GPU   [8,9) external
//   host       . . # # . . . . .        cuts       4 4 4
//   external   . . . . . . . . #        end        9
//
// Cost: 6 bytes per segment; a change is a binary search and moving the segments behind it: at most
// kMaxRunBlocks of them. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "index/run.h"

namespace vllm_router {

class Coverage {
 public:
  // The effect of a change, in blocks.
  struct Change {
    uint32_t on_tier = 0;  // added to the tier, or removed
    uint32_t held = 0;     // added to the owner, or removed: on no tier before, or after
  };

  Coverage() = default;
  // The first `blocks`, on the GPU.
  static Coverage Leading(uint32_t blocks);

  // Blocks [begin, end). REQUIRES: begin < end <= kMaxRunBlocks.
  Change Add(Tier tier, uint32_t begin, uint32_t end) { return Apply(tier, begin, end, true); }
  Change Remove(Tier tier, uint32_t begin, uint32_t end) { return Apply(tier, begin, end, false); }

  bool empty() const { return segments_.empty(); }
  bool IsLeading() const;  // could be made by Leading()
  Cuts cuts() const;
  uint32_t end() const { return segments_.empty() ? 0 : segments_.back().end; }  // behind the last block held
  uint32_t Count() const;                                                        // blocks held
  uint32_t Count(Tier tier) const;
  size_t bytes() const { return segments_.capacity() * sizeof(Segment); }

 private:
  struct Segment {
    uint16_t begin;
    uint16_t end;
    uint8_t tiers;  // bit t: on tier t; never 0
  };

  Change Apply(Tier tier, uint32_t begin, uint32_t end, bool add);

  std::vector<Segment> segments_;  // ascending; neighbours that touch differ in tiers
};

}  // namespace vllm_router
