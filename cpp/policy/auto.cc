#include "policy/auto.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
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
constexpr double kPaceNoise = 0.15;      // a worker is not slower or faster by less, as a logarithm
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

  // One per thread, reused. Columns have a row for each eligible worker, in fleet order.
  struct Scratch {
    void Resize(size_t members) {
      if (queued.size() >= members) return;
      for (std::vector<double>* column :
           {&queued, &waiting, &uncached, &requests, &context, &weight, &cost, &sent, &pace, &known})
        column->resize(members);
    }

    BlockMatches matches;
    uint32_t longest = 0;      // blocks that some worker holds
    uint32_t most_blocks = 0;  // that an eligible worker holds
    uint32_t best_holder = 0;  // its position
    uint32_t shared = 0;       // Forecast::shared
    double hidden = 0;  // what the only holder is taken to have beyond its blocks; below 0: there is none
    size_t holder = 0;  // its row
    double alone = 0;   // tokens that no other worker holds
    double least = 0;   // U', before that
    double busy = 0;    // p
    std::vector<uint32_t> best;
    std::vector<double> queued;
    std::vector<double> waiting;
    std::vector<double> uncached;
    std::vector<double> requests;
    std::vector<double> context;
    std::vector<double> weight;
    std::vector<double> cost;
    std::vector<double> sent;
    std::vector<double> pace;  // once they were compared: slow
    std::vector<double> known;
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
  // Small differences are noise.
  static double SlowOf(double pace) {
    const double beyond = std::abs(pace) - kPaceNoise;
    return beyond <= 0 ? 1 : std::exp(pace < 0 ? -beyond : beyond);
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
    const std::span<const uint32_t> eligible = fleet.eligible();
    const auto row = std::ranges::lower_bound(eligible, decision->position) - eligible.begin();
    const double slow = scratch.pace[static_cast<size_t>(row)];
    history_.Add(place, (pool->output.value() * more + known) * slow / plan.weights[decision->position]);
    const auto workers = static_cast<uint32_t>(eligible.size());
    if (pool->sent.fetch_add(1, std::memory_order_relaxed) + 1 < workers) return;
    pool->sent.store(0, std::memory_order_relaxed);
    history_.Fade(plan.known, eligible);
  }

  // The terms are read into columns first, each worker's load once: that is one cache line each, and the
  // computation that follows is vector code.
  std::span<const double> CostsOf(
      const RoutingKey& key, const FleetView& fleet, const KvIndex::Plan* plan, const PoolMeans& pool,
      Scratch* scratch) const {
    scratch->Resize(fleet.members().size());
    const std::span<const uint32_t> eligible = fleet.eligible();
    FindUncached(key, fleet, plan, scratch);
    const double* weight = WeightsOf(fleet, plan, scratch);
    double* const queued = scratch->queued.data();
    double* const waiting = scratch->waiting.data();
    double* const requests = scratch->requests.data();
    double* const context = scratch->context.data();
    AutoLoads all;
    for (size_t row = 0; row < eligible.size(); ++row) {
      const WorkerLoad::Reading load = fleet.load(eligible[row]).ReadForDecision();
      all.Add(load);
      queued[row] = static_cast<double>(load.queued);
      waiting[row] = static_cast<double>(load.waiting);
      requests[row] = static_cast<double>(load.requests);
      context[row] = static_cast<double>(load.context);
    }
    const auto workers = static_cast<double>(eligible.size());
    const double mean_uncached = pool.uncached.value();
    const double mean_prompt = all.MeanPrompt(key.prompt_tokens);
    // Rarely any: a second pass over the loads, so that the first stays short.
    for (size_t row = 0; all.polled != 0 && row < eligible.size(); ++row) {
      const WorkerLoad::Reading load = fleet.load(eligible[row]).ReadForDecision();
      queued[row] += static_cast<double>(load.polled_waiting) * mean_uncached;
      context[row] += static_cast<double>(load.polled) * mean_prompt;
    }
    const double least = FindHolder(key, pool, eligible.size(), scratch);
    const double rate = RateOf(pool, eligible.size());
    scratch->busy = std::min(kAutoMostBusy, rate * kAutoEngine.token_s * mean_uncached);
    const AutoPrices made(
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
    FindHistory(eligible, plan, weight, made.own, scratch);
    // A copy that no function has seen: else each cost written could change it, and the loop below is no vector code.
    const AutoPrices prices = made;
    const double* const uncached = scratch->uncached.data();
    const double* const sent = scratch->sent.data();
    const double* const slow = scratch->pace.data();
    double* const cost = scratch->cost.data();
    for (size_t row = 0; row < eligible.size(); ++row) {
      cost[row] = AutoCost(
          {.queued = queued[row],
           .waiting = waiting[row],
           .uncached = uncached[row],
           .requests = requests[row],
           .context = context[row],
           .sent = sent[row],
           .slow = slow[row],
           .weight = weight[row]},
          prices);
    }
    if (const FleetView::Residents* const residents = fleet.residents()) {
      for (size_t row = 0; row < eligible.size(); ++row)
        cost[row] += (*residents)[eligible[row]] != 0 ? 0 : lora_load_tokens_;
    }
    return {cost, eligible.size()};
  }

  // Who shares the known part of the prompt, and the least U. The only holder of a prompt that nobody else has open has
  // also what it generated last, which no prompt had yet: as much as there was on average.
  double FindHolder(const RoutingKey& key, const PoolMeans& pool, size_t rows, Scratch* scratch) const {
    double* const uncached = scratch->uncached.data();
    uint32_t longest = 0;
    for (const BlockMatch& match : std::as_const(scratch->matches).entries())
      longest = std::max(longest, match.longest());
    scratch->longest = longest;
    longest = std::min(longest, static_cast<uint32_t>(key.blocks.size()));
    scratch->shared =
        longest == 0 ? 0
                     : 1 + static_cast<uint32_t>(static_cast<uint64_t>(key.blocks[longest - 1]) % kPrefixes);
    // Where nobody holds any of it all are equal.
    const double least = longest == 0 ? uncached[0] : LeastOf(std::span<const double>(uncached, rows));
    scratch->least = least;
    scratch->hidden = -1;
    if (longest == 0 || sharers_[scratch->shared - 1].load(std::memory_order_relaxed) > 0) return least;
    if (std::count(uncached, uncached + rows, least) != 1) return least;
    scratch->hidden = std::max(0.0, pool.hidden.value());
    double& holder = *std::find(uncached, uncached + rows, least);
    scratch->holder = static_cast<size_t>(&holder - uncached);
    double next = key.prompt_tokens;
    for (size_t row = 0; row < rows; ++row) {
      if (row != scratch->holder) next = std::min(next, uncached[row]);
    }
    scratch->alone = next - least;
    holder = std::min(holder, std::max(kLeastUncached, holder - scratch->hidden));
    return holder;
  }

  // Columns `sent` by their mean, without `own` of each token that one worker alone holds, and `pace` as the factor of
  // the cost.
  void FindHistory(
      std::span<const uint32_t> eligible, const KvIndex::Plan* plan, const double* weight, double own,
      Scratch* scratch) const {
    double* const sent = scratch->sent.data();
    double* const pace = scratch->pace.data();
    double* const known = scratch->known.data();
    double all_sent = 0;
    double all_pace = 0;
    double all_known = 0;
    bool is_told = false;
    for (size_t row = 0; row < eligible.size(); ++row) {
      const WorkerHistory::Reading read =
          plan != nullptr ? history_.Read(plan->known[eligible[row]]) : WorkerHistory::Reading{0, 0, 0};
      sent[row] = read.sent;
      pace[row] = read.pace;
      known[row] = read.known;
      all_sent += read.sent;
      all_pace += read.pace;
      all_known += read.known;
      is_told |= weight[row] != weight[0];
    }
    const auto workers = static_cast<double>(eligible.size());
    if (scratch->hidden >= 0) {
      const size_t row = scratch->holder;
      sent[row] = std::max(0.0, sent[row] - own * scratch->alone / weight[row]);
    }
    const double per_sent = all_sent > 0 ? workers / all_sent : 0;
    for (size_t row = 0; row < eligible.size(); ++row) sent[row] *= per_sent;
    // A worker is slow by what others are known to take: one that was not measured is as they are, and the only one
    // that was is as the rest.
    const double mean_pace = all_known > 0 ? all_pace / all_known : 0;
    double most_beyond = 0;
    for (size_t row = 0; row < eligible.size(); ++row) {
      const double others = std::min(1.0, all_known - known[row]);
      pace[row] = (pace[row] - mean_pace * known[row]) * others;
      most_beyond = std::max(most_beyond, std::abs(pace[row]));
    }
    // Usually: all are as fast as the others.
    if (is_told || !weights_.speeds || most_beyond <= kPaceNoise) {
      std::fill_n(pace, eligible.size(), 1.0);
    } else {
      for (size_t row = 0; row < eligible.size(); ++row) pace[row] = SlowOf(pace[row]);
    }
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
    uint32_t most = 0;
    double last_uncached = tokens.Of(0);
    std::fill_n(uncached, fleet.members().size(), last_uncached);
    for (const BlockMatch& match : std::as_const(scratch->matches).entries()) {
      const uint32_t position = plan->PositionOf(match.owner);
      if (position == KvIndex::kNowhere) continue;
      const uint32_t held = match.longest();
      if (held != last) {
        last = held;
        last_uncached = tokens.Of(held);
      }
      uncached[position] = last_uncached;
      if (held <= most || !fleet.IsEligible(position)) continue;
      most = held;
      scratch->best_holder = position;
    }
    scratch->most_blocks = most;
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
