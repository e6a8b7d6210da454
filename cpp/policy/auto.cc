#include "policy/auto.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/dice.h"
#include "policy/block_owners.h"
#include "policy/load_order.h"

namespace vllm_router {
namespace {

constexpr double kPerRequest = 0.1;   // of an uncached token, for each request that runs beside it
constexpr double kPerContext = 0.05;  // of a token of context, against one of prefill

class Auto final : public Policy {
 public:
  Auto(const BlockCacheTrackerOptions& tracker, uint64_t seed) : owners_(tracker), dice_(seed) {}

  std::string_view name() const override { return "auto"; }
  KeyParts Needs() const override { return KeyParts::kBlocks | KeyParts::kPromptTokens; }

  std::optional<BlockRouting> block_routing(const FleetView& fleet) const override {
    return owners_.Routing(this, fleet);
  }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    const BlockOwners::Plan* plan = key.blocks.empty() ? nullptr : BlockOwners::Find(this, fleet);
    thread_local BlockMatches matches;
    thread_local std::vector<uint32_t> best;
    if (plan != nullptr) {
      owners_.Match(key.blocks, &matches, key.dry_run);
      if (key.explanation != nullptr) BlockOwners::Explain(fleet, *plan, matches, key.explanation.get());
    }
    const auto held_by = [&](uint32_t position) {
      if (plan == nullptr) return uint32_t{0};
      const BlockMatch* const match = matches.Find(plan->known[position].owner);
      return match == nullptr ? uint32_t{0} : match->longest();
    };

    const double mean_prompt = MeanPrompt(fleet, key.prompt_tokens);
    double least = std::numeric_limits<double>::infinity();
    size_t row = 0;  // of the explanation
    for (const uint32_t position : fleet.eligible()) {
      AutoTerms terms = LoadTerms(fleet.worker(position));
      terms.uncached = static_cast<double>(Uncached(held_by(position), key));
      terms.mean_prompt = mean_prompt;
      const double cost = AutoCost(terms);
      if (key.explanation != nullptr) key.explanation->candidates[row++].cost = cost;
      if (cost > least) continue;
      if (cost < least) best.clear();
      least = cost;
      best.push_back(position);
    }
    const uint32_t position = LeastLoaded(fleet, best, *DecisionDice(dice_, key.dry_run));
    const Reason reason = key.has_blocks ? Reason::kLowestCost : Reason::kFallback;
    Decision decision = BlockOwners::DecisionFor(position, reason, held_by(position), key, fleet);
    if (plan != nullptr && !key.dry_run) {
      decision.claim = owners_.tracker().RecordOpen(plan->known[position].owner, key.blocks);
      owners_.Count(decision);
    }
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    owners_.Settle(decision, outcome);
    if (outcome.end != Outcome::End::kFinished || outcome.blocks.empty()) return;
    owners_.RecordFor(decision.worker, outcome.blocks);
  }

  bool remembers_prompts() const override { return true; }
  void SetCacheSize(WorkerId worker, uint64_t bytes) override { owners_.SetCacheSize(worker, bytes); }
  void ForgetCache(WorkerId worker) override { owners_.Forget(worker); }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    return owners_.MakePlan(this, nullptr, next);
  }

 private:
  uint64_t Uncached(uint32_t held, const RoutingKey& key) const {
    const double blocks = static_cast<double>(std::min<uint64_t>(held, key.usable_blocks));
    const double tokens_per_block = static_cast<double>(owners_.block_bytes()) / key.bytes_per_token;
    const auto cached = static_cast<uint64_t>(blocks * tokens_per_block);
    return key.prompt_tokens > cached + 1 ? key.prompt_tokens - cached : 1;
  }

  BlockOwners owners_;
  Dice dice_;
};

}  // namespace

double AutoCost(const AutoTerms& terms) {
  const double work = terms.queued + terms.uncached * (1 + kPerRequest * terms.requests);
  return work / terms.weight + kPerContext * (terms.context + terms.requests * terms.mean_prompt);
}

AutoTerms LoadTerms(const Worker& worker) {
  return {
      .queued = static_cast<double>(worker.load.queued_prefill()),
      .requests = static_cast<double>(worker.load.requests()),
      .context = static_cast<double>(worker.load.context()),
      .weight = static_cast<double>(worker.weight) / kWeightOne};
}

double MeanPrompt(const FleetView& fleet, uint32_t prompt_tokens) {
  int64_t context = 0;
  int64_t requests = 0;
  for (const uint32_t position : fleet.eligible()) {
    context += fleet.worker(position).load.context();
    requests += fleet.worker(position).load.open_requests();
  }
  return requests > 0 ? static_cast<double>(context) / static_cast<double>(requests) : prompt_tokens;
}

std::unique_ptr<Policy> MakeAuto(const BlockCacheTrackerOptions& tracker, uint64_t seed) {
  return std::make_unique<Auto>(tracker, seed);
}

}  // namespace vllm_router
