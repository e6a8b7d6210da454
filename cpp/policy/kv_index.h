// KvIndex: what the workers' KV caches hold, block by block, as far as this router knows. A pool owns
// one; policies that match blocks read it, and everything that learns of a cache writes it here: a
// decision, a response, a poll of capacities, an emptied cache.
//
//   fleet      0: w7   1: w9   2: w4          a plan, made with each view of the fleet: PlanOf() gives the right one
//   tracker    slot 3       0       1
//
// A worker that joins enters with nothing; one that leaves is forgotten. Behind each prompt follow
// unnamed blocks, as many as a mean response fills: an engine's cache holds those too, so without them
// the model of the cache would fit too many prompts.
//
// With worker_block_sizes each match is rounded down to complete blocks of the worker's own size, which
// SetCacheSize() sets. Blocks of 16 tokens here, a prompt of 120 of which 5 blocks are known:
//
//   worker's block     8, 16, unknown     24     32     64     128
//   match              5                  4      4      4      0         complete blocks of 80 tokens, in blocks of 16
//
// A size that divides 16 leaves up to 15 tokens of the worker's unseen: a lower bound, as all of these
// are.
//
// What workers tell by KV events goes to reported(). It replaces what was learned about a worker or adds
// to it, by the worker's trust, for prompts whose blocks are of token ids: an engine names no others. What
// workers tell of whole prefixes goes to prefixes() and adds to what is known of those whose events do not
// tell everything; so does what other routers know of them (RoutingKey::shared_holders).
//
// With `coarse` other routers tell this one what they decided, and it tells them. Their decisions, and its own a
// second time, are in an index of strides (index/coarse_index.h), which sets the range within which a match is
// refined by what this router sent. Its own decisions wait in outgoing() to be told. While peers cannot be heard
// (SetAlone), each prompt's first strides name a worker that is assumed to hold most of it: routers that cannot
// talk send equal prompts to one worker all the same, as rendezvous hashing does.
//
// Thread-safe, but for MakePlan: one thread at a time. No lock but the tracker's is held for longer than
// a look-up.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "index/block_cache_tracker.h"
#include "index/block_matches.h"
#include "index/coarse_index.h"
#include "index/predicted_blocks.h"
#include "index/prefix_table.h"
#include "index/reported_blocks.h"
#include "policy/cache_prediction.h"
#include "policy/decision.h"
#include "policy/decision_buffer.h"
#include "policy/moving_mean.h"
#include "policy/routing_key.h"
#include "policy/stats_writer.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct KvIndexOptions {
  BlockCacheTrackerOptions tracker;
  bool worker_block_sizes = false;  // matches count in complete blocks of each worker's own size
  std::optional<PrefixTableOptions> prefixes = {};  // nullopt: no table of prefixes
  uint32_t coarse_stride_blocks = 0;                // 0: routers tell each other nothing
};

class KvIndex {
 public:
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // For one membership: positions and slots as each other's index.
  struct Plan final : FleetPlan {
    Plan(const void* owner, std::shared_ptr<const FleetPlan> inner, uint64_t membership)
        : FleetPlan(owner, std::move(inner)), membership(membership) {}

    using Known = ReportedBlocks::Known;  // a worker and its slot
    uint32_t PositionOf(WorkerSlot slot) const { return position_of[static_cast<size_t>(slot)]; }

    uint64_t membership;
    std::vector<Known> known;           // by position
    std::vector<double> weights;        // Worker::weight in whole ones, by position
    std::vector<uint32_t> position_of;  // by slot; kNowhere: none of this membership
    std::vector<uint64_t> url_hashes;   // by position, where routers tell each other something
    bool equal_weights = true;          // of `weights`
  };

  explicit KvIndex(const KvIndexOptions& options);

  BlockCacheTracker& tracker() { return *tracker_; }
  const BlockHasher& hasher() const { return tracker_->hasher(); }
  size_t block_bytes() const { return tracker_->hasher().block_bytes(); }  // of text, or four per token id
  // Of the prompt, whose blocks may be of bytes.
  double TokensPerBlock(const RoutingKey& key) const {
    return static_cast<double>(block_bytes()) / key.bytes_per_token;
  }

  // What KV events tell; written by whatever hears them.
  ReportedBlocks& reported() { return reported_; }
  const ReportedBlocks& reported() const { return reported_; }
  // Prompts that events could not be matched with, since their blocks are of bytes.
  uint64_t prompts_without_ids() const { return prompts_without_ids_.load(std::memory_order_relaxed); }
  // What workers tell of prefixes, by digest; null unless the options ask for it.
  PrefixTable* prefixes() const { return prefixes_.get(); }
  // Predictions are dropped after one to two of these, those of requests that wait for their first token once
  // they are `repeated_ns` old; see PredictedBlocks.
  void RotatePredictions(int64_t now_ns, int64_t repeated_ns) {
    rotates_itself_.store(false, std::memory_order_relaxed);
    predicted_.Rotate(now_ns, repeated_ns);
  }
  // The same by the clock, for a router without a server: no effect once RotatePredictions() was called.
  void RotateDuePredictions();
  // It holds nothing of what was predicted.
  void ForgetPredictions(WorkerId worker);

  // The plan for `next` before it is published; `inner`: the policy's.
  std::shared_ptr<const FleetPlan> MakePlan(std::shared_ptr<const FleetPlan> inner, const FleetView& next);
  // Null for a view without a plan.
  const Plan* PlanOf(const FleetView& fleet) const;

  // What Match() reads of a request.
  KeyParts Needs() const {
    const KeyParts parts = KeyParts::kBlocks | KeyParts::kPromptTokens;
    return prefixes_ != nullptr ? parts | KeyParts::kPrefixDigest : parts;
  }
  // Which workers hold the prompt, and how much of it. One match in kMatchesPerTiming is timed; of dry
  // runs none.
  void Match(const RoutingKey& key, const Plan& plan, BlockMatches* matches);
  // The same for a second reader of the request: counts nothing, and assumes nothing that is not known.
  void Peek(const RoutingKey& key, const Plan& plan, BlockMatches* matches);
  // The worker in `slot` gets the prompt: it holds its blocks and a response's from now on. Completes the
  // decision.
  void Remember(WorkerSlot slot, const RoutingKey& key, Decision* decision);
  // A decision that remembered its prompt was made, its first token came, and its request ended.
  void Count(const Decision& decision);
  void EndWait(const Decision& decision) { predicted_.EndWait(decision.prediction); }
  void Settle(const Decision& decision, const Outcome& outcome);

  // Nullopt once it has left.
  std::optional<WorkerSlot> FindSlot(WorkerId worker) const;

  // What became known of a worker otherwise; no effect once it has left.
  void RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks);  // it holds them
  void Forget(WorkerId worker);                                           // its cache is empty
  void SetCacheSize(WorkerId worker, const CacheSize& size);
  void Clear();  // every worker's

  // What other routers decided, and what this one did and has not told them. Null, or no effect, unless the
  // options say that routers tell each other.
  const CoarseIndex* coarse() const { return coarse_.get(); }
  DecisionBuffer* outgoing() { return coarse_ != nullptr ? &outgoing_ : nullptr; }
  // A peer sent the worker a prompt that has these strides.
  void RecordPeerDecision(WorkerId worker, uint32_t prompt_tokens, std::span<const BlockHash> strides);
  // All that is known in strides, for a router that starts (peer_sync/snapshot.h): the workers by name, then the
  // index. False: the routers tell each other nothing, or the fleet has changed.
  bool SaveStrides(const FleetView& fleet, ImageWriter* image);
  // The worker holds what the saved index has of it. No effect once it has left. REQUIRES: no other thread uses
  // `saved`.
  void AdoptStrides(WorkerId worker, const BlockCacheTracker& saved, WorkerSlot theirs);
  // From now on peers are not heard, or are heard again.
  void SetAlone(bool alone) { alone_.store(alone, std::memory_order_relaxed); }
  bool alone() const { return alone_.load(std::memory_order_relaxed); }

  // A decision for a worker that holds `matched` blocks of the prompt. The engine always computes the
  // last token, so the last block of a prompt that fills its blocks does not count.
  static Decision DecisionFor(
      uint32_t position, Reason reason, uint32_t matched, const RoutingKey& key, const FleetView& fleet);
  // The eligible worker at `position` holds `blocks` of it, more than those before.
  static void ConsiderBest(uint32_t position, uint32_t blocks, const RoutingKey& key, Decision* decision) {
    vllm_router::ConsiderBest(position, std::min<uint64_t>(blocks, key.usable_blocks), decision);
  }
  // How much of the prompt each eligible worker holds.
  static void Explain(
      const FleetView& fleet, const Plan& plan, const BlockMatches& matches, Explanation* explanation);

  // What the workers of `fleet` hold and how well matches go, as group "block_index".
  void Report(const FleetView& fleet, StatsWriter* writer) const;

 private:
  static constexpr uint64_t kMatchesPerTiming = 16;  // one in so many is timed
  // Upper bounds of the histogram of match times, in nanoseconds; the last bucket has none.
  static constexpr std::array<int64_t, 10> kMatchBounds = {100,   250,    500,    1'000,   2'500,
                                                           5'000, 10'000, 25'000, 100'000, 1'000'000};

  void FindMatches(const RoutingKey& key, const Plan& plan, BlockMatches* matches);
  struct Looks {
    bool counts = true;   // false: no counter is changed, and no order of what is forgotten
    bool assumes = true;  // what a router that hears no peers takes a worker to hold
  };
  void MatchAll(const RoutingKey& key, const Plan& plan, Looks looks, BlockMatches* matches);
  void AssumeHolder(const RoutingKey& key, const Plan& plan, BlockMatches* matches) const;
  void MatchPrefix(const RoutingKey& key, bool counts, BlockMatches* matches);
  // To complete blocks of each worker, limited to the part of the prompt that a cache can save.
  void RoundDown(uint64_t usable_blocks, BlockMatches* matches) const;

  WorkerSlot Enter();
  uint64_t BlockTokensOf(WorkerSlot slot) const;

  void Share(WorkerSlot slot, const RoutingKey& key, Decision* decision);
  // Unnamed strides behind the `strides` of a prompt of so many blocks: what a mean response fills.
  size_t ResponseStrides(size_t prompt_blocks, double bytes_per_token, size_t strides) const;
  // Blocks of a mean response; 0 before the first one has ended.
  size_t ResponseBlocks(double bytes_per_token) const;

  const std::unique_ptr<BlockCacheTracker> tracker_;
  ReportedBlocks reported_;
  const std::unique_ptr<PrefixTable> prefixes_;
  PredictedBlocks predicted_;
  const std::unique_ptr<CoarseIndex> coarse_;  // null: routers tell each other nothing
  DecisionBuffer outgoing_;
  std::atomic<bool> alone_{false};
  MovingMean output_tokens_;
  mutable Mutex mutex_;                                                        // leaf
  absl::flat_hash_map<uint32_t, WorkerSlot> slot_of_ ABSL_GUARDED_BY(mutex_);  // by WorkerId
  // Tokens of a block of the worker, by slot; 0: unknown. Null: matches are not rounded.
  const std::unique_ptr<std::atomic<uint32_t>[]> block_tokens_;

  std::atomic<bool> rotates_itself_{true};
  std::atomic<int64_t> rotated_ns_{0};

  CachePredictionSums predictions_;
  std::atomic<uint64_t> prompt_blocks_{0};
  std::atomic<uint64_t> matched_blocks_{0};
  std::atomic<uint64_t> prompts_without_ids_{0};
  std::atomic<uint64_t> prompts_of_other_models_{0};
  std::array<std::atomic<uint64_t>, kMatchBounds.size() + 1> match_times_{};
  std::atomic<uint64_t> match_nanos_{0};
};

}  // namespace vllm_router
