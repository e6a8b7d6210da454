// SegmentLru: the eviction order of one owner's blocks, without a time stamp per block.
//
//   run 7, used wholly at time 1, its first three blocks again at time 5:
//       |-- B, time 5 --|------ A, time 1 ------|        recency:  B  ...other runs...  A
//       0               3                       8        taken from the back: A shrinks 8 -> 7 -> ... -> 3 and is gone
//
// Each run has a few segments, the later used before the earlier; all of an owner's are in one list by
// time of use. A request uses its runs from the last to the first, so a block is always older than its
// parent and is evicted before it. This is least recently used block by block, the later block of a
// prompt first, as engines do it.
//
// A touch may be a claim (claim_table.h): the request has not ended yet. For each run the LRU knows how
// many leading blocks are permanent, because a request that ended well used them, and how far open
// claims reach. Blocks behind both have no user, and Withdraw takes them:
//
//   run 7   permanent 3   claim 5 reaches 8   claim 6 reaches 6
//           Withdraw(5): blocks 6 and 7     Withdraw(6): blocks 3 to 5
//
// Blocks that nothing will ever match, such as those of a response, need neither names nor a run: a segment
// of unnamed blocks is a number with a place in the order.
//
// Cost: Touch one hash lookup, and the segments it replaces; AddUnnamed and TakeOldest constant. About 80
// bytes per segment; in chat traffic one stands for 80 blocks. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "index/block_ref.h"
#include "index/claim_table.h"

namespace vllm_router {

class SegmentLru {
 public:
  SegmentLru();

  // The blocks from the start of the run of `span` to the end of `span` have been used now, and are
  // permanent.
  void Touch(BlockSpan span);
  // The same by a request that has not ended. False: all of them are permanent already.
  bool Touch(BlockSpan span, uint64_t claim, const ClaimStates& claims);
  // Drops the claim; returns the end of the run that nothing else keeps, if any.
  BlockSpan Withdraw(uint32_t run, uint64_t claim, const ClaimStates& claims);

  // `count` unnamed blocks have been used now. Returns their segment, for WithdrawUnnamed(); claim 0: they are
  // permanent. REQUIRES: count > 0.
  uint32_t AddUnnamed(uint32_t count, uint64_t claim);
  // Drops what is left of the claim's unnamed blocks, which AddUnnamed() put in `segment`.
  void WithdrawUnnamed(uint32_t segment, uint64_t claim);

  // Takes up to `most` blocks off the oldest segment, its last ones; unnamed ones have the root as their
  // first. Count 0: there are none.
  BlockSpan TakeOldest(uint64_t most);

  // visit(head, end) for each segment, the oldest first: in the run with first block `head` the segment
  // ends at `end`. The root as head: `end` unnamed blocks.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint32_t each = segments_[0].newer; each != 0; each = segments_[each].newer) {
      visit(segments_[each].head, segments_[each].end);
    }
  }

  bool empty() const { return segments() == 0; }
  uint64_t unnamed_blocks() const { return unnamed_blocks_; }
  size_t segments() const { return segments_.size() - 1 - free_.size(); }
  size_t bytes() const;

 private:
  struct Segment {
    BlockRef head;     // the run's first block; the root: unnamed blocks
    uint32_t end = 0;  // the segment ends here, and starts where the shallower one ends
    uint32_t newer = 0;
    uint32_t older = 0;
    uint32_t deeper = 0;
    uint32_t shallower = 0;
    uint64_t claim = 0;  // that may withdraw the unnamed blocks; of others 0
  };

  struct Claim {
    uint64_t id = 0;
    uint32_t end = 0;  // it used the blocks up to here
    uint32_t next = 0;
  };
  struct RunUse {
    uint32_t first = 0;    // the segment that begins at block 0
    uint32_t claims = 0;   // the newest; 0: none
    uint16_t lasting = 0;  // leading blocks
    uint16_t count = 0;    // of claims
    uint16_t fold_at = 0;  // number of claims at which they are checked again
  };

  RunUse& TouchRun(BlockSpan span);
  uint32_t Make();
  void Unlink(uint32_t segment);
  void LinkNewest(uint32_t segment);
  // Of a segment that is unlinked.
  void Free(uint32_t segment);
  // Confirmed claims make their blocks permanent; claims that keep nothing more are dropped.
  void Fold(RunUse* use, const ClaimStates& claims);
  template <typename Which>
  void DropClaims(RunUse* use, Which which);

  // Ring by time of use through segments_[0], which is a sentinel: its `older` is the newest, its
  // `newer` the oldest.
  std::vector<Segment> segments_;
  std::vector<uint32_t> free_;
  absl::flat_hash_map<uint32_t, RunUse> first_;  // by run
  std::vector<Claim> claims_;                    // [0] is unused
  uint32_t free_claim_ = 0;
  uint64_t unnamed_blocks_ = 0;
};

}  // namespace vllm_router
