#include "policy/auto.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "policy/auto_columns.h"
#include "policy/auto_cost.h"
#include "policy/keep_least.h"
#include "policy/kv_index.h"
#include "policy/load_order.h"
#include "policy/lost_blocks.h"
#include "policy/moving_mean.h"
#include "policy/policy.h"
#include "policy/policy_registry.h"
#include "policy/worker_history.h"

namespace vllm_router {
namespace {

// One value moves a mean by no more than four times what it is, or by this much: a client's huge prompt, an hour
// without requests.
constexpr double kMostTimes = 4;
constexpr double kMostTokens = 4096;
constexpr double kMostOutput = 256;
constexpr double kMostGapSeconds = 1;

constexpr double kLeastUncached = 16;    // tokens that an engine computes of a prompt that it has
constexpr uint64_t kLeastOutput = 4;     // tokens; from fewer no pace is learnt
constexpr double kLeastDecoding = 0.05;  // likewise, the part of a request's time

double Limited(double value, double mean, double most) { return std::min(value, kMostTimes * mean + most); }

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

// Means of the requests of a pool: workers that serve other models have other traffic.
struct PoolMeans {
  MovingMean uncached;
  MovingMean output;
  MovingMean hidden;       // cached tokens beyond those that were claimed at the only holder
  MovingMean gap_s;        // between two requests
  MovingMean first_token;  // logarithm of (time / forecast)
  MovingMean token;        // likewise
  std::atomic<int64_t> last_ns{0};
  std::atomic<uint32_t> sent{0};  // requests since the last WorkerHistory::Fade()
};

class Auto final : public Policy {
 public:
  Auto(const PolicyOptions& options, std::shared_ptr<KvIndex> index, const AutoWeights& weights = {})
      : objective_(options.auto_objective),
        weights_(weights),
        lora_load_tokens_(options.lora_load_tokens),
        index_(std::move(index)),
        sharers_(std::make_unique<std::atomic<int32_t>[]>(kPrefixes)),
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
    PoolMeans& pool = pools_[fleet.pool() % kPools];
    const std::span<const double> costs = CostsOf(key, fleet, plan, pool, &scratch);
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
    KvIndex::ConsiderBest(scratch.best_holder, scratch.most_blocks, key, &decision);
    if (key.dry_run) return decision;
    const int64_t now_ns = key.now_ns != 0 ? key.now_ns : SteadyClock().NowNanos();
    LearnGap(now_ns, &pool);
    if (matches_blocks) lost_.Learn(key.blocks, scratch.longest);
    if (plan != nullptr) Expect(key, fleet, *plan, scratch, now_ns, &pool, &decision);
    if (matches_blocks) {
      index_->Remember(plan->known[position].slot, key, &decision);
      index_->Count(decision);
    }
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    index_->Settle(decision, outcome);
    const Forecast& forecast = decision.forecast;
    if (forecast.shared != 0) sharers_[forecast.shared - 1].fetch_sub(1, std::memory_order_relaxed);
    if (outcome.end != Outcome::End::kFinished || outcome.status >= 400) return;
    PoolMeans& pool = pools_[forecast.pool];
    if (forecast.claimed_tokens != 0 && outcome.cached_tokens) {
      const double claimed = forecast.claimed_tokens;
      const double most = 2 * pool.output.value() + 64;
      pool.hidden.Learn(std::clamp(static_cast<double>(*outcome.cached_tokens) - claimed, -64.0, most));
    }
    if (!outcome.output_tokens) return;
    const auto output = static_cast<double>(*outcome.output_tokens);
    pool.output.Learn(Limited(output, pool.output.value(), kMostOutput));
    if (forecast.decided_ns == 0 || *outcome.output_tokens < kLeastOutput) return;
    const int64_t now_ns = outcome.now_ns != 0 ? outcome.now_ns : SteadyClock().NowNanos();
    const double all_s = static_cast<double>(now_ns - forecast.decided_ns) * 1e-9;
    double first_s = forecast.first_token_s;
    if (outcome.first_token_ns != 0) {
      first_s = static_cast<double>(outcome.first_token_ns - forecast.decided_ns) * 1e-9;
      if (first_s <= forecast.first_token_s)
        LearnPace(decision, first_s / forecast.first_token_s, &pool.first_token);
    }
    if (all_s - first_s <= kLeastDecoding * all_s) return;
    LearnPace(decision, (all_s - first_s) / (output - 1) / forecast.token_s, &pool.token);
  }
  // A late first token tells at once. One in time tells when the response was one: errors are fast.
  void ObserveFirstToken(const Decision& decision, int64_t now_ns) override {
    index_->EndWait(decision);
    const Forecast& forecast = decision.forecast;
    if (forecast.decided_ns == 0) return;
    const double first_s = static_cast<double>(now_ns - forecast.decided_ns) * 1e-9;
    if (first_s <= forecast.first_token_s) return;
    LearnPace(decision, first_s / forecast.first_token_s, &pools_[forecast.pool].first_token);
  }

 private:
  static constexpr size_t kPools = 64;       // pools of more models share means
  static constexpr size_t kPrefixes = 4096;  // that open requests are counted by

  // One per thread, reused.
  struct Scratch {
    BlockMatches matches;
    AutoColumns columns;
    uint32_t longest = 0;      // blocks that some worker holds
    uint32_t most_blocks = 0;  // that an eligible worker holds
    uint32_t best_holder = 0;  // its position
    uint32_t shared = 0;       // Forecast::shared
    double least = 0;          // U' by blocks alone
    uint32_t holder = 0;       // a worker with that
    double next = 0;    // the least of all others: the same, if two have it; infinite, if there are none
    double hidden = 0;  // what the only holder is taken to have beyond its blocks; below 0: there is none
    double busy = 0;    // p
    std::vector<uint32_t> best;
  };

  static void LearnGap(int64_t now_ns, PoolMeans* pool) {
    const int64_t last_ns = pool->last_ns.exchange(now_ns, std::memory_order_relaxed);
    if (last_ns == 0) return;
    const double gap_s = static_cast<double>(std::max<int64_t>(0, now_ns - last_ns)) * 1e-9;
    pool->gap_s.Learn(Limited(gap_s, pool->gap_s.value(), kMostGapSeconds));
  }
  // Requests per worker and second.
  static double RateOf(const PoolMeans& pool, size_t workers) {
    const double gap_s = pool.gap_s.value();
    return gap_s > 0 ? 1 / gap_s / static_cast<double>(workers) : 0;
  }

  void LearnPace(const Decision& decision, double ratio, MovingMean* usual) {
    if (!(ratio > 0)) return;
    const double logarithm = std::clamp(std::log(ratio), -10.0, 10.0);
    usual->Learn(logarithm);
    const WorkerHistory::Place place{decision.worker, WorkerSlot{decision.forecast.slot}};
    history_.LearnPace(place, logarithm - usual->value());
  }

  // What the decision changes, and what its outcome is compared with.
  void Expect(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan& plan, const Scratch& scratch,
      int64_t now_ns, PoolMeans* pool, Decision* decision) {
    const WorkerHistory::Place& place = plan.known[decision->position];
    const double claimed = Uncached(key, *index_).Of(static_cast<uint32_t>(decision->matched));
    const bool is_holder = scratch.hidden >= 0 && claimed == scratch.least;
    const double uncached =
        is_holder ? std::min(claimed, std::max(kLeastUncached, claimed - scratch.hidden)) : claimed;
    const double known = Limited(uncached, pool->uncached.value(), kMostTokens);
    pool->uncached.Learn(known);
    const WorkerLoad::Reading load = fleet.load(decision->position).ReadForDecision();
    const double step = kAutoEngine.step + kAutoEngine.request * static_cast<double>(load.requests + 1) +
                        kAutoEngine.context * (static_cast<double>(load.context) + key.prompt_tokens);
    const double first = static_cast<double>(load.queued) + uncached + 1.5 * step;
    const double prompt = std::max<double>(key.prompt_tokens, 1);
    decision->forecast = {
        .decided_ns = now_ns,
        .first_token_s = static_cast<float>(kAutoEngine.token_s * first),
        .token_s = static_cast<float>(kAutoEngine.token_s * step / (1 - std::min(0.9, scratch.busy))),
        .shared = scratch.shared,
        .claimed_tokens = is_holder ? static_cast<uint32_t>(std::max(1.0, prompt - claimed)) : 0,
        .slot = static_cast<uint16_t>(place.slot),
        .pool = static_cast<uint8_t>(fleet.pool() % kPools)};
    if (scratch.shared != 0) sharers_[scratch.shared - 1].fetch_add(1, std::memory_order_relaxed);
    const double more = kAutoEngine.request + kAutoEngine.context * prompt;
    const double slow = scratch.columns.slow(RowOf(fleet, decision->position));
    history_.Add(place, (pool->output.value() * more + known) * slow / plan.weights[decision->position]);
    const auto workers = static_cast<uint32_t>(fleet.eligible().size());
    if (pool->sent.fetch_add(1, std::memory_order_relaxed) + 1 < workers) return;
    pool->sent.store(0, std::memory_order_relaxed);
    history_.Fade(plan.known, fleet.eligible());
  }

  // The terms are read into columns first: the computation that follows is vector code.
  std::span<const double> CostsOf(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan* plan, const PoolMeans& pool,
      Scratch* scratch) const {
    const std::span<const uint32_t> eligible = fleet.eligible();
    AutoColumns& columns = scratch->columns;
    columns.Resize(fleet.members().size());
    FindUncached(key, fleet, plan, scratch);
    const AutoLoads all = columns.Read(fleet, plan, history_);
    const auto workers = static_cast<double>(eligible.size());
    const double mean_uncached = pool.uncached.value();
    const double mean_prompt = all.MeanPrompt(key.prompt_tokens);
    if (all.polled != 0) columns.AddPolled(fleet, mean_uncached, mean_prompt);
    const double least = FindHolder(key, fleet, pool, scratch);
    const double rate = RateOf(pool, eligible.size());
    scratch->busy = std::min(kAutoMostBusy, rate * kAutoEngine.token_s * mean_uncached);
    const AutoPrices prices(
        {.prompt = static_cast<double>(key.prompt_tokens),
         .least_uncached = least,
         .sharers = scratch->shared == 0
                        ? 0.0
                        : std::max(0, sharers_[scratch->shared - 1].load(std::memory_order_relaxed)),
         .mean_uncached = mean_uncached,
         .mean_output = pool.output.value(),
         .mean_prompt = mean_prompt,
         .mean_requests = static_cast<double>(all.requests) / workers,
         .mean_context =
             (static_cast<double>(all.context) + static_cast<double>(all.polled) * mean_prompt) / workers,
         .rate = rate,
         .lost = lost_.share()},
        objective_, weights_);
    if (scratch->hidden >= 0) {
      const size_t row = RowOf(fleet, scratch->holder);
      const double alone = std::min<double>(key.prompt_tokens, scratch->next) - scratch->least;
      columns.TakeSent(row, prices.own * alone / columns.weight(row));
    }
    if (weights_.speeds) columns.CompareSpeeds();
    const std::span<double> costs = columns.Costs(prices);
    if (const FleetView::Residents* const residents = fleet.residents()) {
      for (size_t row = 0; row < costs.size(); ++row)
        costs[row] += (*residents)[eligible[row]] != 0 ? 0 : lora_load_tokens_;
    }
    return costs;
  }

  // Of an eligible worker.
  static size_t RowOf(const FleetView& fleet, uint32_t position) {
    const std::span<const uint32_t> eligible = fleet.eligible();
    if (eligible.size() == fleet.members().size()) return position;
    return static_cast<size_t>(std::ranges::lower_bound(eligible, position) - eligible.begin());
  }

  // Who shares the known part of the prompt, and U'. The only holder of a prompt that nobody else has open has
  // also what it generated last, which no prompt had yet: as much as there was on average.
  double FindHolder(
      const RoutingKey& key, const FleetView& fleet, const PoolMeans& pool, Scratch* scratch) const {
    const uint32_t longest = std::min(scratch->longest, static_cast<uint32_t>(key.blocks.size()));
    scratch->shared =
        longest == 0 ? 0
                     : 1 + static_cast<uint32_t>(static_cast<uint64_t>(key.blocks[longest - 1]) % kPrefixes);
    scratch->hidden = -1;
    const double least = scratch->least;
    if (longest == 0 || sharers_[scratch->shared - 1].load(std::memory_order_relaxed) > 0) return least;
    if (scratch->next == least) return least;
    scratch->hidden = std::max(0.0, pool.hidden.value());
    const double told = std::min(least, std::max(kLeastUncached, least - scratch->hidden));
    scratch->columns.uncached()[RowOf(fleet, scratch->holder)] = told;
    return told;
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
    double* const uncached = scratch->columns.uncached();
    // Most workers hold the same: a shared system prompt.
    uint32_t last = 0;
    uint32_t longest = 0;
    uint32_t most = 0;
    const double whole = tokens.Of(0);
    double last_uncached = whole;
    std::fill_n(uncached, fleet.members().size(), whole);
    const std::span<const uint32_t> eligible = fleet.eligible();
    const bool are_all_eligible = eligible.size() == fleet.members().size();
    size_t holders = 0;
    double least = std::numeric_limits<double>::infinity();
    double next = least;
    for (const BlockMatch& match : std::as_const(scratch->matches).entries()) {
      const uint32_t held = match.longest();
      longest = std::max(longest, held);
      const uint32_t position = plan->PositionOf(match.owner);
      if (position == KvIndex::kNowhere) continue;
      if (held != last) {
        last = held;
        last_uncached = tokens.Of(held);
      }
      uncached[position] = last_uncached;
      if (!are_all_eligible && !fleet.IsEligible(position)) continue;
      ++holders;
      if (last_uncached < least) {
        next = least;
        least = last_uncached;
        scratch->holder = position;
      } else if (last_uncached < next) {
        next = last_uncached;
      }
      if (held <= most) continue;
      most = held;
      scratch->best_holder = position;
    }
    // The others compute all of it.
    const size_t others = eligible.size() - holders;
    if (holders == 0) {
      least = whole;
      scratch->holder = eligible.front();
    }
    if (holders + others > 1 && others > 0) next = std::min(next, whole);
    scratch->least = least;
    scratch->next = next;
    scratch->longest = longest;
    scratch->most_blocks = most;
    scratch->columns.Compact(eligible, fleet.members().size());
  }

  const AutoObjective objective_;
  const AutoWeights weights_;
  const double lora_load_tokens_;
  const std::shared_ptr<KvIndex> index_;
  std::array<PoolMeans, kPools> pools_;
  WorkerHistory history_;
  LostBlocks lost_;
  const std::unique_ptr<std::atomic<int32_t>[]>
      sharers_;  // open requests, by the last known block of their prompts
  Random random_;
};

}  // namespace

std::unique_ptr<Policy> MakeAuto(
    const PolicyOptions& options, std::shared_ptr<KvIndex> index, const AutoWeights& weights) {
  return std::make_unique<Auto>(options, std::move(index), weights);
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
