#include "policy/kv_logit.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/random.h"
#include "policy/active_blocks.h"
#include "policy/keep_least.h"
#include "policy/kv_index.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

class KvLogit final : public Policy {
 public:
  KvLogit(
      std::string_view name, const PolicyOptions& options, std::shared_ptr<KvIndex> index,
      const LogitWeights& weights)
      : name_(name),
        weights_(weights),
        temperature_(options.router_temperature),
        decode_(options.logit_decode_blocks),
        block_tokens_(options.block_size),
        index_(std::move(index)),
        random_(options.seed) {}

  std::string_view name() const override { return name_; }
  KeyParts Needs() const override {
    return index_->Needs() | KeyParts::kSharedHits | KeyParts::kCostOverride;
  }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    const KvIndex::Plan* const plan = index_->PlanOf(fleet);
    const bool matches_blocks = plan != nullptr && !key.blocks.empty();
    thread_local Scratch own_scratch;
    Scratch& scratch = own_scratch;
    BlockMatches& matches = scratch.matches;
    if (matches_blocks) {
      index_->Match(key, *plan, &matches);
      if (key.explanation != nullptr) KvIndex::Explain(fleet, *plan, matches, key.explanation.get());
    } else {
      matches.Clear();
    }
    LogitWeights weights = weights_;
    double temperature = temperature_;
    if (key.cost_override) {
      weights.overlap = key.cost_override->overlap_weight.value_or(weights.overlap);
      weights.shared_credit = key.cost_override->shared_cache_multiplier.value_or(weights.shared_credit);
      temperature = key.cost_override->router_temperature.value_or(temperature);
    }
    const std::span<const double> costs = CostsOf(key, fleet, plan, weights, &scratch);
    if (key.explanation != nullptr) {
      for (size_t row = 0; row < costs.size(); ++row) key.explanation->candidates[row].cost = costs[row];
    }
    KeepLeast(costs, fleet.eligible(), &scratch.best);
    DecisionRandom random(random_, key.dry_run);
    uint32_t position;
    if (temperature > 0) {
      position = Draw(costs, temperature, fleet.eligible(), &*random, &scratch);
    } else {
      position = LeastLoaded(fleet, scratch.best, *random);
    }
    Reason reason = Reason::kFallback;
    if (key.has_blocks) {
      const bool is_best = std::binary_search(scratch.best.begin(), scratch.best.end(), position);
      reason = is_best ? Reason::kLowestCost : Reason::kSampled;
    }
    const BlockMatch* const match = matches_blocks ? matches.Find(plan->known[position].slot) : nullptr;
    Decision decision =
        KvIndex::DecisionFor(position, reason, match == nullptr ? 0 : match->longest(), key, fleet);
    KvIndex::ConsiderBest(scratch.best_holder, scratch.most_blocks, key, &decision);
    if (key.shared_hits) {
      decision.shared_beyond =
          BlocksBeyond(*key.shared_hits, key, match == nullptr ? 0 : match->on(Tier::kGpu));
    }
    if (key.dry_run || !matches_blocks) return decision;
    const KvIndex::Plan::Known& chosen = plan->known[position];
    index_->Remember(chosen.slot, key, &decision);
    decision.active = active_.Open({chosen.slot, chosen.worker}, key.blocks);
    index_->Count(decision);
    return decision;
  }

  void ObserveFirstToken(const Decision& decision, int64_t /*now_ns*/) override { index_->EndWait(decision); }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    index_->Settle(decision, outcome);
    if (decision.active == 0) return;
    if (const std::optional<WorkerSlot> slot = index_->FindSlot(decision.worker))
      active_.Close({*slot, decision.worker}, decision.active);
  }

 private:
  // One per thread, reused.
  struct Scratch {
    BlockMatches matches;
    std::vector<uint32_t> best;
    std::vector<double> cost;     // a row for each eligible worker, in fleet order
    std::vector<double> weights;  // likewise
    uint32_t most_blocks = 0;     // that an eligible worker holds
    uint32_t best_holder = 0;     // its position
  };

  std::span<const double> CostsOf(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan* plan, const LogitWeights& weights,
      Scratch* scratch) const {
    const std::span<const uint32_t> eligible = fleet.eligible();
    if (scratch->cost.size() < eligible.size()) scratch->cost.resize(eligible.size());
    double* const cost = scratch->cost.data();
    const double tokens_per_block = index_->TokensPerBlock(key);
    scratch->most_blocks = 0;
    for (size_t row = 0; row < eligible.size(); ++row) {
      const Worker& worker = fleet.worker(eligible[row]);
      LogitTerms terms{
          .queued = static_cast<double>(worker.load.queued_prefill()),
          .prompt = static_cast<double>(key.prompt_tokens),
          .decode = plan == nullptr ? 0 : DecodeBlocks(key, plan->known[eligible[row]]),
          .block = static_cast<double>(block_tokens_),
          .weight = static_cast<double>(worker.load_weight()) / kWeightOne};
      const BlockMatch* const match =
          scratch->matches.empty() ? nullptr : scratch->matches.Find(plan->known[eligible[row]].slot);
      if (key.shared_hits) {
        terms.shared =
            tokens_per_block *
            static_cast<double>(BlocksBeyond(*key.shared_hits, key, match == nullptr ? 0 : match->longest()));
      }
      if (match != nullptr) {
        if (match->longest() > scratch->most_blocks) {
          scratch->most_blocks = match->longest();
          scratch->best_holder = eligible[row];
        }
        const auto tokens_on = [&](Tier tier) {
          return tokens_per_block *
                 static_cast<double>(std::min<uint64_t>(match->on(tier), key.usable_blocks));
        };
        terms.gpu = tokens_on(Tier::kGpu);
        terms.host = tokens_on(Tier::kHost) - terms.gpu;
        terms.disk = tokens_on(Tier::kExternal) - terms.gpu - terms.host;
      }
      cost[row] = LogitCost(terms, weights);
    }
    return {cost, eligible.size()};
  }

  double DecodeBlocks(const RoutingKey& key, const KvIndex::Plan::Known& known) const {
    const ActiveBlocks::Place place{known.slot, known.worker};
    size_t blocks = active_.Count(place);
    if (decode_ == LogitDecode::kPotential)
      blocks += key.blocks.size() - active_.CountLeading(place, key.blocks);
    return static_cast<double>(blocks);
  }

  // Of a shared pool, behind the prompt's first `held` blocks.
  static uint32_t BlocksBeyond(const SharedHits& hits, const RoutingKey& key, uint64_t held) {
    return hits.Beyond(held) - hits.Beyond(std::max<uint64_t>(held, key.blocks.size()));
  }

  static uint32_t Draw(
      std::span<const double> costs, double temperature, std::span<const uint32_t> eligible, Random* random,
      Scratch* scratch) {
    scratch->weights.resize(costs.size());
    SoftmaxOfCosts(costs, temperature, scratch->weights);
    const double all = std::accumulate(scratch->weights.begin(), scratch->weights.end(), 0.0);
    // 53 random bits: uniform in [0, all).
    double left = static_cast<double>(random->Next() >> 11) * 0x1p-53 * all;
    size_t row = 0;
    for (; row + 1 < costs.size(); ++row) {
      left -= scratch->weights[row];
      if (left < 0) break;
    }
    return eligible[row];
  }

  const std::string_view name_;
  const LogitWeights weights_;
  const double temperature_;
  const LogitDecode decode_;
  const uint32_t block_tokens_;
  const std::shared_ptr<KvIndex> index_;
  Random random_;
  ActiveBlocks active_;
};

}  // namespace

double LogitCost(const LogitTerms& terms, const LogitWeights& weights) {
  const double on_gpu = weights.prefill == LogitPrefill::kUncached ? terms.gpu : 0;
  const double cached = on_gpu + weights.host_credit * terms.host + weights.disk_credit * terms.disk +
                        weights.shared_credit * terms.shared;
  const double prefill = std::max(0.0, terms.queued + terms.prompt - cached);
  return (weights.overlap * prefill / terms.block + terms.decode) / terms.weight;
}

void SoftmaxOfCosts(std::span<const double> costs, double temperature, std::span<double> weights) {
  const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  const double smallest = *least;
  const double range = *most - smallest;
  // Scaled by the largest weight, so that none is infinite and they do not all vanish.
  for (size_t row = 0; row < costs.size(); ++row)
    weights[row] = range > 0 ? std::exp(-(costs[row] - smallest) / range / temperature) : 1;
}

PolicyEntry KvLogitEntry() {
  return {
      .name = "kv_logit",
      .aliases = {"kv"},
      .reads_index = true,
      .options =
          {"block_size", "max_blocks_per_worker", "peer_sync_stride_tokens", "kv_index_max_entries",
           "kv_index_ttl_secs", "kv_storage_offloading", "overlap_weight", "router_temperature",
           "host_cache_hit_weight", "disk_cache_hit_weight", "shared_cache_multiplier",
           "logit_prefill_tokens", "logit_decode_blocks"},
      .make = [](const PolicyOptions& options, std::shared_ptr<KvIndex> index,
                 std::unique_ptr<Policy>) -> std::unique_ptr<Policy> {
        return std::make_unique<KvLogit>(
            "kv_logit", options, std::move(index),
            LogitWeights{
                .overlap = options.overlap_weight,
                .host_credit = options.host_cache_hit_weight,
                .disk_credit = options.disk_cache_hit_weight,
                .shared_credit = options.shared_cache_multiplier,
                .prefill = options.logit_prefill_tokens});
      }};
}

PolicyEntry KvAwareEntry() {
  return {
      .name = "kv_aware",
      .reads_index = true,
      .options =
          {"block_size", "max_blocks_per_worker", "peer_sync_stride_tokens", "kv_index_max_entries",
           "kv_index_ttl_secs", "kv_storage_offloading", "router_temperature", "kv_penalty_host",
           "kv_penalty_disk"},
      .make = [](const PolicyOptions& options, std::shared_ptr<KvIndex> index,
                 std::unique_ptr<Policy>) -> std::unique_ptr<Policy> {
        return std::make_unique<KvLogit>(
            "kv_aware", options, std::move(index),
            LogitWeights{.host_credit = options.kv_penalty_host, .disk_credit = options.kv_penalty_disk});
      }};
}

}  // namespace vllm_router
