#include "policy/vllm_cache_aware.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/dice.h"
#include "index/block_matches.h"
#include "policy/load_order.h"

namespace vllm_router {
namespace {

constexpr uint32_t kNowhere = UINT32_MAX;
constexpr size_t kSweepRuns = 64;  // a slice of some 20 us

// Who owns what, for one membership: positions and owners as each other's index.
struct OwnersPlan final : FleetPlan {
  OwnersPlan(const void* owner, std::shared_ptr<const FleetPlan> inner, uint64_t membership)
      : FleetPlan(owner, std::move(inner)), membership(membership) {}

  struct Known {
    WorkerId worker;
    OwnerId owner;
  };

  uint64_t membership;
  std::vector<Known> known;           // by position
  std::vector<uint32_t> position_of;  // by owner; kNowhere: none of this membership
};

// Room and the average in one: whether the holder may take another request.
class Bound {
 public:
  Bound(const FleetView& fleet, const VllmCacheAwareOptions& options)
      : room_(fleet, options.load_factor), average_(options.load_bound == HolderBound::kAverage) {
    if (!average_) return;
    uint64_t requests = 0;
    for (const uint32_t position : fleet.eligible()) {
      requests += static_cast<uint64_t>(fleet.worker(position).load.open_requests());
    }
    share_ = requests * options.load_factor;
    weight_ = fleet.eligible_weight() * kWeightOne;
  }

  bool Has(const Worker& worker) const {
    if (!average_) return room_.Has(worker);
    return static_cast<uint64_t>(worker.load.open_requests()) * weight_ < share_ * worker.weight;
  }

 private:
  const Room room_;
  const bool average_;
  uint64_t share_ = 0;
  uint64_t weight_ = 0;
};

class VllmCacheAware final : public Policy {
 public:
  VllmCacheAware(const VllmCacheAwareOptions& options, uint64_t seed, std::unique_ptr<Policy> fallback)
      : options_(options),
        tracker_(std::make_unique<BlockCacheTracker>(options.tracker)),
        dice_(seed),
        fallback_(std::move(fallback)) {}

  std::string_view name() const override { return "vllm_cache_aware"; }
  KeyParts Needs() const override { return KeyParts::kBlocks | KeyParts::kPromptTokens | fallback_->Needs(); }

  std::optional<BlockRouting> block_routing(const FleetView& fleet) const override {
    BlockRouting routing{.tracker = tracker_.get()};
    const OwnersPlan* plan = FindPlan<OwnersPlan>(fleet, this);
    if (plan != nullptr && plan->membership == fleet.membership()) {
      for (const OwnersPlan::Known& known : plan->known) {
        routing.worker_blocks.push_back(tracker_->BlockCount(known.owner));
      }
    }
    routing.prompt_blocks = prompt_blocks_.load(std::memory_order_relaxed);
    routing.matched_blocks = matched_blocks_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < match_times_.size(); ++i) {
      routing.match_times[i] = match_times_[i].load(std::memory_order_relaxed);
    }
    routing.match_nanos = match_nanos_.load(std::memory_order_relaxed);
    return routing;
  }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    if (!key.has_blocks) {
      std::optional<Decision> decision = fallback_->Choose(key, fleet);
      if (decision) decision->reason = Reason::kFallback;
      return decision;
    }
    const OwnersPlan* plan = FindPlan<OwnersPlan>(fleet, this);
    if (plan == nullptr || plan->membership != fleet.membership() || key.blocks.empty()) {
      // Too short a prompt, or a view that nobody planned for: nothing is known, nothing is learned.
      return DecisionFor(*LeastLoaded(fleet, dice_), Reason::kPrefixMiss, 0, key, fleet);
    }
    thread_local BlockMatches matches;
    thread_local std::vector<uint32_t> best;
    Match(key.blocks, &matches);
    const Found found = FindHolders(key, fleet, *plan, matches, &best);

    uint32_t position;
    Reason reason;
    if (!best.empty()) {
      position = LeastLoaded(fleet, best, dice_);
      reason = found.longest_with_room == found.longest ? Reason::kPrefixHit : Reason::kOverflow;
    } else {
      position = *LeastLoaded(fleet, dice_);
      reason = found.longest != 0 ? Reason::kOverflow : Reason::kPrefixMiss;
    }
    const OwnerId owner = plan->known[position].owner;
    const BlockMatch* const held = matches.Find(owner);
    const uint32_t matched = held != nullptr ? held->longest() : 0;
    tracker_->Record(owner, key.blocks);
    const Decision decision = DecisionFor(position, reason, matched, key, fleet);
    prompt_blocks_.fetch_add(decision.total, std::memory_order_relaxed);
    matched_blocks_.fetch_add(decision.matched, std::memory_order_relaxed);
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    if (decision.reason == Reason::kFallback) fallback_->Observe(decision, outcome);
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    const OwnersPlan* last = FindPlan<OwnersPlan>(next, this);
    auto plan = std::make_shared<OwnersPlan>(this, fallback_->Plan(next), next.membership());
    if (last != nullptr && last->membership == next.membership()) {
      plan->known = last->known;
      plan->position_of = last->position_of;
      return plan;
    }
    plan->position_of.assign(kMaxWorkers, kNowhere);
    std::vector<OwnersPlan::Known> gone = last != nullptr ? last->known : std::vector<OwnersPlan::Known>();
    for (const FleetView::Member& member : next.members()) {
      const WorkerId worker = member.worker->id;
      const auto found =
          std::find_if(gone.begin(), gone.end(), [&](const auto& known) { return known.worker == worker; });
      OwnersPlan::Known known{worker, {}};
      if (found != gone.end()) {
        known = *found;
        gone.erase(found);
      } else {
        known.owner = Enter();
      }
      plan->position_of[static_cast<size_t>(known.owner)] = static_cast<uint32_t>(plan->known.size());
      plan->known.push_back(known);
    }
    for (const OwnersPlan::Known& known : gone) tracker_->RemoveWorker(known.owner);
    while (tracker_->Sweep(kSweepRuns)) {
    }
    return plan;
  }

 private:
  struct Found {
    uint32_t longest = 0;  // blocks that some candidate holds; 0: there is no candidate
    uint32_t longest_with_room = 0;
  };

  void Match(std::span<const BlockHash> blocks, BlockMatches* matches) {
    thread_local uint64_t asked = 0;
    if (asked++ % BlockRouting::kMatchesPerTiming != 0) return tracker_->Match(blocks, matches);
    const auto begun = std::chrono::steady_clock::now();
    tracker_->Match(blocks, matches);
    const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begun;
    const auto nanos = static_cast<uint64_t>(taken.count());
    const auto& bounds = BlockRouting::kMatchBounds;
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), nanos) - bounds.begin();
    match_times_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    match_nanos_.fetch_add(nanos, std::memory_order_relaxed);
  }

  // The candidates: who may be chosen and holds more than the threshold. `best` gets the positions of those with room
  // that hold most, ascending.
  Found FindHolders(
      const RoutingKey& key, const FleetView& fleet, const OwnersPlan& plan, const BlockMatches& matches,
      std::vector<uint32_t>* best) const {
    best->clear();
    Found found;
    const double least = options_.cache_threshold * static_cast<double>(key.blocks.size());
    std::optional<Bound> bound;
    for (const BlockMatch& match : matches.entries()) {
      const uint32_t held = match.longest();
      if (static_cast<double>(held) <= least || held < found.longest_with_room) continue;
      const uint32_t position = plan.position_of[static_cast<size_t>(match.owner)];
      if (position == kNowhere || !fleet.IsEligible(position)) continue;
      found.longest = std::max(found.longest, held);
      if (!bound) bound.emplace(fleet, options_);
      if (!bound->Has(fleet.worker(position))) continue;
      if (held > found.longest_with_room) best->clear();
      found.longest_with_room = held;
      best->push_back(position);
    }
    std::sort(best->begin(), best->end());
    return found;
  }

  OwnerId Enter() {
    for (;;) {
      const StatusOr<OwnerId> owner = tracker_->AddWorker();
      if (owner.ok()) return *owner;
      // A fleet has at most kMaxWorkers, so what stands in the way are workers that left, and a match under way that
      // may yet see them.
      std::this_thread::yield();
    }
  }

  // The engine computes at least the last token anew, so of a prompt without a rest the last block counts for nothing.
  static Decision DecisionFor(
      uint32_t position, Reason reason, uint32_t matched, const RoutingKey& key, const FleetView& fleet) {
    return {
        .position = position,
        .worker = fleet.worker(position).id,
        .reason = reason,
        .unit = MatchUnit::kBlocks,
        .matched = std::min<uint64_t>(matched, key.usable_blocks),
        .total = key.blocks.size()};
  }

  const VllmCacheAwareOptions options_;
  const std::unique_ptr<BlockCacheTracker> tracker_;
  Dice dice_;
  const std::unique_ptr<Policy> fallback_;

  std::atomic<uint64_t> prompt_blocks_{0};
  std::atomic<uint64_t> matched_blocks_{0};
  std::array<std::atomic<uint64_t>, BlockRouting::kMatchBuckets> match_times_{};
  std::atomic<uint64_t> match_nanos_{0};
};

}  // namespace

std::unique_ptr<Policy> MakeVllmCacheAware(
    const VllmCacheAwareOptions& options, uint64_t seed, std::unique_ptr<Policy> fallback) {
  return std::make_unique<VllmCacheAware>(options, seed, std::move(fallback));
}

}  // namespace vllm_router
