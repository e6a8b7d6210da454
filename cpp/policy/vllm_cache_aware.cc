#include "policy/vllm_cache_aware.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "index/block_matches.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

// Room, the average and the floor in one: true if the holder may take another request.
class Bound {
 public:
  Bound(const FleetView& fleet, const PolicyOptions& options)
      : room_(fleet, options.load_factor),
        average_(options.load_bound == HolderBound::kAverage),
        floor_(options.prefix_load_floor) {
    if (!average_) return;
    uint64_t requests = 0;
    for (const uint32_t position : fleet.eligible()) {
      requests += static_cast<uint64_t>(fleet.load(position).requests());
    }
    share_ = requests * options.load_factor;
    weight_ = fleet.eligible_weight() * kWeightOne;
  }

  bool Has(const Worker& worker) const {
    const int64_t open = worker.load.requests();
    if (open < floor_) return true;
    if (!average_) return open < room_.Cap(worker);
    return static_cast<uint64_t>(open) * weight_ < share_ * worker.load_weight();
  }

 private:
  const LoadCap room_;
  const bool average_;
  const int64_t floor_;
  uint64_t share_ = 0;
  uint64_t weight_ = 0;
};

class VllmCacheAware final : public Policy {
 public:
  VllmCacheAware(
      const PolicyOptions& options, std::shared_ptr<KvIndex> index, std::unique_ptr<Policy> fallback)
      : options_(options), index_(std::move(index)), random_(options.seed), fallback_(std::move(fallback)) {}

  std::string_view name() const override { return "vllm_cache_aware"; }
  KeyParts Needs() const override { return index_->Needs() | fallback_->Needs(); }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    if (!key.has_blocks) {
      std::optional<Decision> decision = fallback_->Choose(key, fleet);
      if (decision) decision->reason = Reason::kFallback;
      return decision;
    }
    const KvIndex::Plan* plan = index_->PlanOf(fleet);
    DecisionRandom random(random_, key.dry_run);
    if (plan == nullptr || key.blocks.empty()) {
      // Too short a prompt, or a view without a plan: nothing is known, nothing is learned.
      return KvIndex::DecisionFor(*LeastLoaded(fleet, *random), Reason::kPrefixMiss, 0, key, fleet);
    }
    thread_local Scratch scratch;
    BlockMatches& matches = scratch.matches;
    std::vector<uint32_t>& best = scratch.best;
    index_->Match(key, *plan, &matches);
    if (key.explanation != nullptr) KvIndex::Explain(fleet, *plan, matches, key.explanation.get());
    const Found found = FindHolders(key, fleet, *plan, matches, &best);

    uint32_t position;
    Reason reason;
    if (!best.empty()) {
      position = LeastLoaded(fleet, best, *random);
      reason = found.longest_with_room == found.longest ? Reason::kPrefixHit : Reason::kOverflow;
    } else {
      position = *LeastLoaded(fleet, *random);
      reason = found.longest != 0 ? Reason::kOverflow : Reason::kPrefixMiss;
    }
    const WorkerSlot slot = plan->known[position].slot;
    const BlockMatch* const held = matches.Find(slot);
    const uint32_t matched = held != nullptr ? held->longest() : 0;
    Decision decision = KvIndex::DecisionFor(position, reason, matched, key, fleet);
    KvIndex::ConsiderBest(found.best_holder, found.most_blocks, key, &decision);
    if (key.dry_run) return decision;
    index_->Remember(slot, key, &decision);
    index_->Count(decision);
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    if (decision.reason == Reason::kFallback) return fallback_->Observe(decision, outcome);
    index_->Settle(decision, outcome);
  }
  void ObserveFirstToken(const Decision& decision, int64_t /*now_ns*/) override { index_->EndWait(decision); }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override { return fallback_->Plan(next); }

 private:
  struct Scratch {
    BlockMatches matches;
    std::vector<uint32_t> best;
  };

  struct Found {
    uint32_t longest = 0;  // blocks that some candidate holds; 0: there is no candidate
    uint32_t longest_with_room = 0;
    uint32_t most_blocks = 0;  // that some eligible worker holds, candidate or not
    uint32_t best_holder = 0;  // its position
  };

  // The candidates: eligible workers that hold more than the threshold. `best` gets the positions of
  // those with room that hold most, ascending.
  Found FindHolders(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan& plan, const BlockMatches& matches,
      std::vector<uint32_t>* best) const {
    best->clear();
    Found found;
    const double least = options_.cache_threshold * static_cast<double>(key.blocks.size());
    std::optional<Bound> bound;
    for (const BlockMatch& match : matches.entries()) {
      const uint32_t held = match.longest();
      const bool is_candidate = static_cast<double>(held) > least && held >= found.longest_with_room;
      if (!is_candidate && held <= found.most_blocks) continue;
      const uint32_t position = plan.PositionOf(match.owner);
      if (position == KvIndex::kNowhere || !fleet.IsEligible(position)) continue;
      if (held > found.most_blocks) {
        found.most_blocks = held;
        found.best_holder = position;
      }
      if (!is_candidate) continue;
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

  const PolicyOptions options_;
  const std::shared_ptr<KvIndex> index_;
  Random random_;
  const std::unique_ptr<Policy> fallback_;
};

}  // namespace

PolicyEntry VllmCacheAwareEntry() {
  return {
      .name = "vllm_cache_aware",
      .reads_index = true,
      .options =
          {"fallback_policy", "block_size", "max_blocks_per_worker", "peer_sync_stride_tokens",
           "kv_index_max_entries", "kv_index_ttl_secs", "kv_storage_offloading", "cache_threshold",
           "load_factor", "load_bound", "prefix_load_floor"},
      .make = Make<VllmCacheAware>};
}

}  // namespace vllm_router
