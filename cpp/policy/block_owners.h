// BlockOwners: the common part of policies that match blocks: a tracker of what was sent where, the
// mapping of its owners to workers of the fleet, and the quality of its matches.
//
//   fleet      0: w7   1: w9   2: w4          a plan, made with each view of the fleet: Find() gives the right one
//   tracker    owner 3      0      1
//
// A worker that joins enters with nothing; one that leaves is forgotten. Behind each prompt follow
// anonymous blocks, as many as a mean response fills: an engine's cache holds those too, so without them
// the model of the cache would fit too many prompts.
//
// With worker_block_sizes each match is rounded down to complete blocks of the worker's own size, which
// SetCacheSize() sets. Blocks of 16 tokens here, a prompt of 120 of which 5 blocks are known:
//
//   worker's block     8, 16, unknown     24     32     64     128
//   match              5                  4      4      4      0         complete blocks of 80 tokens, in blocks of 16
//
// A size that divides 16 leaves up to 15 tokens of the worker's unseen: a lower bound, as all of these
// are. Thread-safe as Policy's methods of the same names are; no lock but the tracker's is held for
// longer than a look-up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/random.h"
#include "index/block_cache_tracker.h"
#include "index/block_matches.h"
#include "policy/block_routing.h"
#include "policy/decision.h"
#include "policy/moving_mean.h"
#include "policy/routing_key.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class BlockOwners {
 public:
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // For one membership: positions and owners as each other's index.
  struct Plan final : FleetPlan {
    Plan(const void* owner, std::shared_ptr<const FleetPlan> inner, uint64_t membership)
        : FleetPlan(owner, std::move(inner)), membership(membership) {}

    struct Known {
      WorkerId worker;
      WorkerSlot owner;
    };
    uint32_t PositionOf(WorkerSlot owner) const { return position_of[static_cast<size_t>(owner)]; }

    uint64_t membership;
    std::vector<Known> known;           // by position
    std::vector<double> weights;        // Worker::weight in whole ones, by position
    std::vector<uint32_t> position_of;  // by owner; kNowhere: none of this membership
  };

  BlockOwners(const BlockCacheTrackerOptions& options, uint64_t seed, bool worker_block_sizes = false);

  BlockCacheTracker& tracker() { return *tracker_; }
  size_t block_bytes() const { return tracker_->hasher().block_bytes(); }  // of text, or four per token id

  // For Policy::Plan of `policy`, and the plan made for this view; null for a view without one.
  std::shared_ptr<const FleetPlan> MakePlan(
      const void* policy, std::shared_ptr<const FleetPlan> inner, const FleetView& next);
  static const Plan* Find(const void* policy, const FleetView& fleet);

  // Which workers hold the prompt, and how much of it. One match in kMatchesPerTiming is timed; of dry
  // runs none.
  void Match(const RoutingKey& key, BlockMatches* matches);
  // The decision's worker, `owner`, gets the prompt: it holds its blocks and a response's from now on.
  // For Decision::claim.
  uint64_t Remember(WorkerSlot owner, const RoutingKey& key);
  // The request of a decision that remembered its prompt has ended.
  void Settle(const Decision& decision, const Outcome& outcome);
  // The worker's present owner; no effect once it has left.
  void RecordFor(WorkerId worker, std::span<const BlockHash> blocks);
  // Drops everything that the worker was believed to hold.
  void Forget(WorkerId worker);
  void SetCacheSize(WorkerId worker, const CacheSize& size);

  // A decision for a worker that holds `matched` blocks of the prompt. The engine always computes the
  // last token, so the last block of a prompt that fills its blocks does not count.
  static Decision DecisionFor(
      uint32_t position, Reason reason, uint32_t matched, const RoutingKey& key, const FleetView& fleet);
  // How much of the prompt each eligible worker holds.
  static void Explain(
      const FleetView& fleet, const Plan& plan, const BlockMatches& matches, Explanation* explanation);
  void Count(const Decision& decision);
  BlockRouting Routing(const void* policy, const FleetView& fleet) const;

 private:
  void FindMatches(const RoutingKey& key, BlockMatches* matches);
  // To complete blocks of each worker, limited to the part of the prompt that a cache can save.
  void RoundDown(uint64_t usable_blocks, BlockMatches* matches) const;

  WorkerSlot Enter();
  std::optional<WorkerSlot> FindOwner(WorkerId worker) const;

  // Blocks of a mean response; 0 before the first one has ended.
  size_t ResponseBlocks(double bytes_per_token) const;

  const std::unique_ptr<BlockCacheTracker> tracker_;
  Random nameless_;
  MovingMean output_tokens_;
  mutable std::mutex mutex_;                            // leaf; guards owner_of_
  absl::flat_hash_map<uint32_t, WorkerSlot> owner_of_;  // by WorkerId
  // Tokens of a block of the worker, by owner; 0: unknown. Null: matches are not rounded.
  const std::unique_ptr<std::atomic<uint32_t>[]> block_tokens_;

  std::atomic<uint64_t> prompt_blocks_{0};
  std::atomic<uint64_t> matched_blocks_{0};
  std::array<std::atomic<uint64_t>, BlockRouting::kMatchBuckets> match_times_{};
  std::atomic<uint64_t> match_nanos_{0};
};

}  // namespace vllm_router
