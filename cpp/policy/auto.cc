#include "policy/auto.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "policy/keep_least.h"
#include "policy/load_order.h"
#include "policy/moving_mean.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

// Whole tokens of a prompt that a worker computes if it holds some of its blocks. Signed, since the
// processor converts those in one step.
class Uncached {
 public:
  Uncached(const RoutingKey& key, const KvIndex& index)
      : tokens_(key.prompt_tokens),
        usable_blocks_(key.usable_blocks),
        tokens_per_block_(index.TokensPerBlock(key)) {}

  double Of(uint32_t held) const {
    const auto blocks = static_cast<int64_t>(std::min<uint64_t>(held, usable_blocks_));
    const auto cached = static_cast<int64_t>(static_cast<double>(blocks) * tokens_per_block_);
    return static_cast<double>(std::max<int64_t>(tokens_ - cached, 1));
  }

 private:
  int64_t tokens_;
  uint64_t usable_blocks_;
  double tokens_per_block_;
};

class Auto final : public Policy {
 public:
  Auto(const PolicyOptions& options, std::shared_ptr<KvIndex> index)
      : weights_(options.auto_objective == AutoObjective::kTtft ? kAutoTtft : kAutoBalanced),
        lora_load_tokens_(options.lora_load_tokens),
        index_(std::move(index)),
        random_(options.seed) {}

  std::string_view name() const override { return "auto"; }
  KeyParts Needs() const override { return index_->Needs(); }
  bool weighs_residents() const override { return true; }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    const KvIndex::Plan* plan = index_->PlanOf(fleet);
    const bool matches_blocks = plan != nullptr && !key.blocks.empty();
    // Looked up once: each access to a thread-local variable is a call.
    thread_local Scratch own_scratch;
    Scratch& scratch = own_scratch;
    BlockMatches& matches = scratch.matches;
    if (matches_blocks) {
      index_->Match(key, *plan, &matches);
      if (key.explanation != nullptr) KvIndex::Explain(fleet, *plan, matches, key.explanation.get());
    } else {
      matches.Clear();
    }
    const std::span<const double> costs = CostsOf(key, fleet, plan, &scratch);
    if (key.explanation != nullptr) {
      for (size_t row = 0; row < costs.size(); ++row) key.explanation->candidates[row].cost = costs[row];
    }
    KeepLeast(costs, fleet.eligible(), &scratch.best);
    if (fleet.residents() != nullptr) KeepResidents(*fleet.residents(), &scratch.best);
    const uint32_t position = LeastLoaded(fleet, scratch.best, *DecisionRandom(random_, key.dry_run));
    const BlockMatch* const match = matches_blocks ? matches.Find(plan->known[position].slot) : nullptr;
    const uint32_t held = match == nullptr ? 0 : match->longest();
    const Reason reason = key.has_blocks ? Reason::kLowestCost : Reason::kFallback;
    Decision decision = KvIndex::DecisionFor(position, reason, held, key, fleet);
    if (key.dry_run) return decision;
    mean_uncached_.Learn(Uncached(key, *index_).Of(held));
    if (matches_blocks) {
      index_->Remember(plan->known[position].slot, key, &decision);
      index_->Count(decision);
    }
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    index_->Settle(decision, outcome);
  }
  void ObserveFirstToken(const Decision& decision, int64_t /*now_ns*/) override {
    index_->EndWait(decision);
  }

 private:
  // One per thread, reused. Columns have a row for each eligible worker, in fleet order.
  struct Scratch {
    void Resize(size_t members) {
      if (queued.size() >= members) return;
      for (std::vector<double>* column : {&queued, &waiting, &uncached, &requests, &context, &weight, &cost})
        column->resize(members);
    }

    BlockMatches matches;
    std::vector<uint32_t> best;
    std::vector<double> queued;
    std::vector<double> waiting;
    std::vector<double> uncached;
    std::vector<double> requests;
    std::vector<double> context;
    std::vector<double> weight;
    std::vector<double> cost;
  };

  // The terms are read into columns first, each worker's load once: that is one cache line each, and the
  // computation that follows is vector code.
  std::span<const double> CostsOf(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan* plan, Scratch* scratch) const {
    scratch->Resize(fleet.members().size());
    const std::span<const uint32_t> eligible = fleet.eligible();
    FindUncached(key, fleet, plan, scratch);
    const double* weight = WeightsOf(fleet, plan, scratch);
    double* const queued = scratch->queued.data();
    double* const waiting = scratch->waiting.data();
    double* const requests = scratch->requests.data();
    double* const context = scratch->context.data();
    // Not in LoadSums itself: the compiler would keep it in memory.
    int64_t all_context = 0;
    int64_t all_requests = 0;
    int64_t all_polled = 0;
    for (size_t row = 0; row < eligible.size(); ++row) {
      const WorkerLoad::Reading load = fleet.load(eligible[row]).ReadForDecision();
      all_context += load.context;
      all_requests += load.requests;
      all_polled += load.polled;
      queued[row] = static_cast<double>(load.queued);
      waiting[row] = static_cast<double>(load.waiting);
      requests[row] = static_cast<double>(load.requests);
      context[row] = static_cast<double>(load.context);
    }
    const LoadSums sums{
        .context = all_context, .polled = all_polled, .requests = all_requests, .workers = eligible.size()};
    const FleetMeans means = sums.Means(key.prompt_tokens);
    const double mean_uncached = mean_uncached_.value();
    // Rarely any: a second pass over the loads, so that the first stays short.
    for (size_t row = 0; all_polled != 0 && row < eligible.size(); ++row) {
      const WorkerLoad::Reading load = fleet.load(eligible[row]).ReadForDecision();
      queued[row] += static_cast<double>(load.polled_waiting) * mean_uncached;
      context[row] += static_cast<double>(load.polled) * means.prompt;
    }
    const double* const uncached = scratch->uncached.data();
    const AutoWeights weights = weights_;
    double* const cost = scratch->cost.data();
    for (size_t row = 0; row < eligible.size(); ++row) {
      cost[row] = AutoCost(
          {.queued = queued[row],
           .waiting = waiting[row],
           .uncached = uncached[row],
           .requests = requests[row],
           .context = context[row],
           .mean_uncached = mean_uncached,
           .mean_prompt = means.prompt,
           .mean_requests = means.requests,
           .weight = weight[row]},
          weights);
    }
    if (const FleetView::Residents* const residents = fleet.residents()) {
      for (size_t row = 0; row < eligible.size(); ++row)
        cost[row] += (*residents)[eligible[row]] != 0 ? 0 : lora_load_tokens_;
    }
    return {cost, eligible.size()};
  }

  // If there are any among the best.
  static void KeepResidents(const FleetView::Residents& residents, std::vector<uint32_t>* best) {
    const auto has_it = [&residents](uint32_t position) { return residents[position] != 0; };
    if (std::ranges::any_of(*best, has_it)) std::erase_if(*best, std::not_fn(has_it));
  }

  // For all members first, since matches come in no order; then those of the eligible move up.
  void FindUncached(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan* plan, Scratch* scratch) const {
    const Uncached tokens(key, *index_);
    double* const uncached = scratch->uncached.data();
    // Most workers hold the same: a shared system prompt.
    uint32_t last = 0;
    double last_uncached = tokens.Of(0);
    std::fill_n(uncached, fleet.members().size(), last_uncached);
    for (const BlockMatch& match : std::as_const(scratch->matches).entries()) {
      const uint32_t position = plan->PositionOf(match.owner);
      if (position == KvIndex::kNowhere) continue;
      if (const uint32_t held = match.longest(); held != last) {
        last = held;
        last_uncached = tokens.Of(held);
      }
      uncached[position] = last_uncached;
    }
    const std::span<const uint32_t> eligible = fleet.eligible();
    if (eligible.size() == fleet.members().size()) return;
    for (size_t row = 0; row < eligible.size(); ++row) uncached[row] = uncached[eligible[row]];
  }

  static const double* WeightsOf(const FleetView& fleet, const KvIndex::Plan* plan, Scratch* scratch) {
    const std::span<const uint32_t> eligible = fleet.eligible();
    if (plan != nullptr && eligible.size() == plan->weights.size()) return plan->weights.data();
    double* const weight = scratch->weight.data();
    for (size_t row = 0; row < eligible.size(); ++row) {
      weight[row] = plan != nullptr ? plan->weights[eligible[row]]
                                    : static_cast<double>(fleet.worker(eligible[row]).weight) / kWeightOne;
    }
    return weight;
  }

  const AutoWeights weights_;
  const double lora_load_tokens_;
  const std::shared_ptr<KvIndex> index_;
  MovingMean mean_uncached_;
  Random random_;
};

}  // namespace

FleetMeans LoadSums::Means(uint32_t prompt_tokens) const {
  const int64_t told = requests - polled;
  return {
      .prompt = told > 0 ? static_cast<double>(context) / static_cast<double>(told) : prompt_tokens,
      .requests = static_cast<double>(requests) / static_cast<double>(std::max<size_t>(1, workers))};
}

FleetMeans MeansOf(const FleetView& fleet, uint32_t prompt_tokens) {
  LoadSums sums;
  for (const uint32_t position : fleet.eligible()) sums.Add(fleet.load(position).ReadForDecision());
  return sums.Means(prompt_tokens);
}

PolicyEntry AutoEntry() {
  return {
      .name = "auto",
      .reads_index = true,
      .options =
          {"block_size", "max_blocks_per_worker", "auto_objective", "lora_load_tokens",
           "peer_sync_stride_tokens", "kv_index_max_entries", "kv_index_ttl_secs", "kv_storage_offloading"},
      .make = Make<Auto>};
}

}  // namespace vllm_router
