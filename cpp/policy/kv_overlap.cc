#include "policy/kv_overlap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "policy/kv_index.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"
#include "policy/prefix_aware.h"
#include "policy/success_share.h"

namespace vllm_router {
namespace {

class KvOverlap final : public Policy {
 public:
  KvOverlap(const PolicyOptions& options, std::shared_ptr<KvIndex> index, std::unique_ptr<Policy> fallback)
      : options_(options),
        weights_{
            .overlap = options.kv_overlap_weight,
            .load = options.kv_load_weight,
            .health = options.kv_health_weight},
        index_(std::move(index)),
        ring_(PrefixAwareEntry().make(options, nullptr, std::move(fallback))),
        random_(options.seed),
        health_(std::make_unique<Health[]>(kMaxWorkers)) {}

  std::string_view name() const override { return "kv_overlap"; }
  KeyParts Needs() const override { return index_->Needs() | ring_->Needs(); }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    const KvIndex::Plan* const plan = index_->PlanOf(fleet);
    if (plan == nullptr || key.blocks.empty()) {
      const std::optional<Decision> by_ring = ring_->Choose(key, fleet);
      if (!key.dry_run) CountDecision(by_ring->reason);
      return by_ring;
    }
    thread_local Scratch own_scratch;
    Scratch& scratch = own_scratch;
    index_->Match(key, *plan, &scratch.matches);
    if (key.explanation != nullptr) KvIndex::Explain(fleet, *plan, scratch.matches, key.explanation.get());
    std::optional<uint32_t> position = FindBest(key, fleet, *plan, &scratch);
    Reason reason = Reason::kKvAware;
    if (!position) {
      const std::optional<Decision> by_ring = ring_->Choose(key, fleet);
      position = by_ring->position;
      reason = by_ring->reason;
    }
    const WorkerSlot slot = plan->known[*position].slot;
    const BlockMatch* const match = scratch.matches.Find(slot);
    Decision decision =
        KvIndex::DecisionFor(*position, reason, match == nullptr ? 0 : match->longest(), key, fleet);
    KvIndex::ConsiderBest(scratch.best_holder, scratch.most_blocks, key, &decision);
    if (key.dry_run) return decision;
    CountDecision(reason);
    index_->Remember(slot, key, &decision);
    index_->Count(decision);
    return decision;
  }

  void ObserveFirstToken(const Decision& decision, int64_t /*now_ns*/) override { index_->EndWait(decision); }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    ring_->Observe(decision, outcome);
    index_->Settle(decision, outcome);
    // What was not sent, and what its client aborted, tells nothing of the worker.
    const bool finished = outcome.end == Outcome::End::kFinished;
    if (!finished && outcome.end != Outcome::End::kWorkerFailed) return;
    const std::optional<WorkerSlot> slot = index_->FindSlot(decision.worker);
    if (!slot) return;
    Health& health = health_[static_cast<size_t>(*slot)];
    if (health.worker.exchange(decision.worker, std::memory_order_relaxed) != decision.worker)
      health.share.Clear();
    health.share.Record(finished && outcome.status < 500);
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override { return ring_->Plan(next); }

  void Report(const FleetView& fleet, StatsWriter* writer) const override {
    ring_->Report(fleet, writer);
    std::vector<StatsWriter::Named> decisions;
    for (size_t i = 0; i < kCounted.size(); ++i)
      decisions.push_back({ReasonName(kCounted[i]), decisions_[i].value.load(std::memory_order_relaxed)});
    writer->Group("kv_overlap");
    writer->NamedCounters(
        {{},
         "kv_index_routing_decisions_total",
         "Decisions of kv_overlap: kv_aware (the score), or prefix_hash, overflow and fallback of the ring "
         "of prefixes.",
         {},
         "decision"},
        decisions);
  }

 private:
  // Of the worker that had the slot at the last record.
  struct Health {
    std::atomic<WorkerId> worker{WorkerId{UINT32_MAX}};
    SuccessShare share;
  };

  static constexpr std::array kCounted = {
      Reason::kKvAware, Reason::kPrefixHash, Reason::kOverflow, Reason::kFallback};
  // Every decision of every thread counts, so counters do not share a cache line.
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
  };

  void CountDecision(Reason reason) {
    const auto found = std::find(kCounted.begin(), kCounted.end(), reason);
    if (found == kCounted.end()) return;
    decisions_[static_cast<size_t>(found - kCounted.begin())].value.fetch_add(1, std::memory_order_relaxed);
  }

  // One per thread, reused. Columns have a row for each eligible worker, in fleet order.
  struct Scratch {
    BlockMatches matches;
    std::vector<double> credit;
    std::vector<double> load;
    std::vector<uint32_t> best;
    uint32_t most_blocks = 0;  // that an eligible worker holds
    uint32_t best_holder = 0;  // its position
  };

  double HealthOf(const Worker& worker, WorkerSlot slot) const {
    const Health& health = health_[static_cast<size_t>(slot)];
    return health.worker.load(std::memory_order_relaxed) == worker.id ? health.share.value() : 1;
  }

  // Nullopt: no worker holds enough.
  std::optional<uint32_t> FindBest(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan& plan, Scratch* scratch) {
    const std::span<const uint32_t> eligible = fleet.eligible();
    scratch->credit.assign(eligible.size(), 0);
    scratch->load.assign(eligible.size(), 0);
    const double tokens_per_block = index_->TokensPerBlock(key);
    double most_tokens = 0;
    double most_credit = 0;
    double most_load = 0;
    scratch->most_blocks = 0;
    for (size_t row = 0; row < eligible.size(); ++row) {
      const Worker& worker = fleet.worker(eligible[row]);
      const double load = static_cast<double>(worker.load.requests()) / worker.load_weight();
      scratch->load[row] = load;
      most_load = std::max(most_load, load);
      const BlockMatch* const match = scratch->matches.Find(plan.known[eligible[row]].slot);
      if (match == nullptr) continue;
      const auto tokens = [&](uint32_t blocks) {
        return tokens_per_block * static_cast<double>(std::min<uint64_t>(blocks, key.usable_blocks));
      };
      if (match->longest() > scratch->most_blocks) {
        scratch->most_blocks = match->longest();
        scratch->best_holder = eligible[row];
      }
      const double on_gpu = tokens(match->on(Tier::kGpu));
      const double held = tokens(match->longest());
      const double credit =
          options_.kv_gpu_tier_weight * on_gpu + options_.kv_storage_tier_weight * (held - on_gpu);
      scratch->credit[row] = credit;
      most_tokens = std::max(most_tokens, held);
      most_credit = std::max(most_credit, credit);
    }
    const double whole = options_.kv_overlap_basis == OverlapBasis::kPrompt ? key.prompt_tokens : most_tokens;
    if (most_credit <= 0 || most_credit < options_.kv_min_overlap_threshold * whole) return std::nullopt;

    std::optional<LoadCap> room;
    if (options_.kv_load_factor != 0) {
      room.emplace(fleet, options_.kv_load_factor);
      if (key.explanation != nullptr)
        key.explanation->SetLimits(fleet, [&](const Worker& worker) { return room->Cap(worker); });
    }
    double highest = -1;
    scratch->best.clear();
    for (size_t row = 0; row < eligible.size(); ++row) {
      const uint32_t position = eligible[row];
      const Worker& worker = fleet.worker(position);
      const double score = OverlapScore(
          {.credit = scratch->credit[row],
           .most_tokens = most_tokens,
           .load = scratch->load[row],
           .most_load = most_load,
           .health = HealthOf(worker, plan.known[position].slot)},
          weights_);
      if (key.explanation != nullptr) key.explanation->candidates[row].score = score;
      if (score < highest || (room && !room->Has(worker))) continue;
      if (score > highest) scratch->best.clear();
      highest = score;
      scratch->best.push_back(position);
    }
    DecisionRandom random(random_, key.dry_run);
    // No worker has room only if loads grew meanwhile.
    if (scratch->best.empty()) return LeastLoaded(fleet, *random);
    return LeastLoaded(fleet, scratch->best, *random);
  }

  const PolicyOptions options_;
  const OverlapWeights weights_;
  const std::shared_ptr<KvIndex> index_;
  const std::unique_ptr<Policy> ring_;
  Random random_;
  const std::unique_ptr<Health[]> health_;  // by slot
  std::array<Counter, kCounted.size()> decisions_;
};

// As exact as decimal fractions can be written.
constexpr double kSumTolerance = 1e-6;

Status CheckWeights(const PolicyOptions& options) {
  const double sum = options.kv_overlap_weight + options.kv_load_weight + options.kv_health_weight;
  if (std::abs(sum - 1) <= kSumTolerance) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      "kv_overlap_weight, kv_load_weight and kv_health_weight are ", options.kv_overlap_weight, ", ",
      options.kv_load_weight, " and ", options.kv_health_weight, "; they must sum to 1, and sum to ",
      std::round(sum / kSumTolerance) * kSumTolerance));
}

}  // namespace

double OverlapScore(const OverlapTerms& terms, const OverlapWeights& weights) {
  const double overlap = terms.most_tokens > 0 ? terms.credit / terms.most_tokens : 0;
  const double free = terms.most_load > 0 ? 1 - terms.load / terms.most_load : 1;
  return weights.overlap * overlap + weights.load * free + weights.health * terms.health;
}

PolicyEntry KvOverlapEntry() {
  return {
      .name = "kv_overlap",
      .reads_index = true,
      .options =
          {"fallback_policy", "virtual_nodes", "load_factor_epsilon", "prefix_load_floor", "block_size",
           "max_blocks_per_worker", "peer_sync_stride_tokens", "kv_index_max_entries", "kv_index_ttl_secs",
           "kv_storage_offloading", "kv_overlap_weight", "kv_load_weight", "kv_health_weight",
           "kv_gpu_tier_weight", "kv_storage_tier_weight", "kv_min_overlap_threshold", "kv_overlap_basis",
           "kv_load_factor"},
      .make = Make<KvOverlap>,
      .check = CheckWeights};
}

}  // namespace vllm_router
