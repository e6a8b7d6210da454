#include "policy/auto.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/random.h"
#include "policy/block_owners.h"
#include "policy/load_order.h"
#include "policy/moving_mean.h"

namespace vllm_router {
namespace {

class Auto final : public Policy {
 public:
  explicit Auto(const AutoOptions& options, uint64_t seed)
      : weights_(options.objective == AutoObjective::kTtft ? kAutoTtft : kAutoBalanced),
        owners_(options.tracker, seed, options.worker_block_sizes),
        random_(seed) {}

  std::string_view name() const override { return "auto"; }
  KeyParts Needs() const override { return KeyParts::kBlocks | KeyParts::kPromptTokens; }

  std::optional<BlockRouting> block_routing(const FleetView& fleet) const override {
    return owners_.Routing(this, fleet);
  }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    const BlockOwners::Plan* plan = key.blocks.empty() ? nullptr : BlockOwners::Find(this, fleet);
    // Found once: each use of a thread's own variable is a call.
    thread_local Scratch scratch;
    BlockMatches& matches = scratch.matches;
    std::vector<uint32_t>& best = scratch.best;
    if (plan != nullptr) {
      owners_.Match(key, &matches);
      if (key.explanation != nullptr) BlockOwners::Explain(fleet, *plan, matches, key.explanation.get());
    }
    const auto held_by = [&](uint32_t position) {
      if (plan == nullptr) return uint32_t{0};
      const BlockMatch* const match = matches.Find(plan->known[position].owner);
      return match == nullptr ? uint32_t{0} : match->longest();
    };

    const FleetMeans means = MeansOf(fleet, key.prompt_tokens);
    const double mean_uncached = mean_uncached_.value();
    const auto whole = static_cast<double>(Uncached(0, key));
    double least = std::numeric_limits<double>::infinity();
    size_t row = 0;  // of the explanation
    for (const uint32_t position : fleet.eligible()) {
      const Worker& worker = fleet.worker(position);
      AutoTerms terms =
          LoadTerms(worker.load, plan != nullptr ? plan->known[position].weight : worker.weight, means);
      const uint32_t held = held_by(position);
      terms.uncached = held == 0 ? whole : static_cast<double>(Uncached(held, key));
      terms.mean_uncached = mean_uncached;
      const double cost = AutoCost(terms, weights_);
      if (key.explanation != nullptr) key.explanation->candidates[row++].cost = cost;
      if (cost > least) continue;
      if (cost < least) best.clear();
      least = cost;
      best.push_back(position);
    }
    const uint32_t position = LeastLoaded(fleet, best, *DecisionRandom(random_, key.dry_run));
    const Reason reason = key.has_blocks ? Reason::kLowestCost : Reason::kFallback;
    const uint32_t held = held_by(position);
    Decision decision = BlockOwners::DecisionFor(position, reason, held, key, fleet);
    if (key.dry_run) return decision;
    mean_uncached_.Learn(static_cast<double>(Uncached(held, key)));
    if (plan != nullptr) {
      decision.claim = owners_.Remember(plan->known[position].owner, key);
      owners_.Count(decision);
    }
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    owners_.Settle(decision, outcome);
  }

  bool remembers_prompts() const override { return true; }
  void SetCacheSize(WorkerId worker, const CacheSize& size) override { owners_.SetCacheSize(worker, size); }
  void RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks) override {
    owners_.RecordFor(worker, blocks);
  }
  void ForgetCache(WorkerId worker) override { owners_.Forget(worker); }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    return owners_.MakePlan(this, nullptr, next);
  }

 private:
  struct Scratch {
    BlockMatches matches;
    std::vector<uint32_t> best;
  };

  uint64_t Uncached(uint32_t held, const RoutingKey& key) const {
    const double blocks = static_cast<double>(std::min<uint64_t>(held, key.usable_blocks));
    const double tokens_per_block = static_cast<double>(owners_.block_bytes()) / key.bytes_per_token;
    const auto cached = static_cast<uint64_t>(blocks * tokens_per_block);
    return key.prompt_tokens > cached + 1 ? key.prompt_tokens - cached : 1;
  }

  const AutoWeights weights_;
  BlockOwners owners_;
  MovingMean mean_uncached_;
  Random random_;
};

}  // namespace

FleetMeans MeansOf(const FleetView& fleet, uint32_t prompt_tokens) {
  int64_t context = 0;
  int64_t own = 0;
  int64_t all = 0;
  for (const uint32_t position : fleet.eligible()) {
    const WorkerLoad& load = fleet.worker(position).load;
    context += load.context();
    own += load.open_requests();
    all += load.requests();
  }
  return {
      .prompt = own > 0 ? static_cast<double>(context) / static_cast<double>(own) : prompt_tokens,
      .requests =
          static_cast<double>(all) / static_cast<double>(std::max<size_t>(1, fleet.eligible().size()))};
}

std::unique_ptr<Policy> MakeAuto(const AutoOptions& options, uint64_t seed) {
  return std::make_unique<Auto>(options, seed);
}

}  // namespace vllm_router
