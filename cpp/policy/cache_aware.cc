#include "policy/cache_aware.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "base/random.h"
#include "policy/cache_prediction.h"
#include "policy/keep_least.h"
#include "policy/load_order.h"
#include "policy/membership.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

// Wide enough for loads times weights times thresholds; the compiler's, which -Wpedantic wants marked.
__extension__ using Wide = __int128;

constexpr std::string_view kAnswer =
    "\x1e"
    "assistant";  // how the next turn of a conversation continues

// The bytes that one block of an engine's cache holds: matches that differ by less are equal.
constexpr uint64_t kGrainBytes = 64;
constexpr uint64_t kGrainTokens = 16;
constexpr uint64_t kTellingGrains = 4;  // a prediction of this much without any hit is significant
constexpr uint32_t kTellingMisses = 3;

// Fleet position -> owner in the prompt memory, for one membership.
struct OwnersPlan final : FleetPlan {
  OwnersPlan(const void* owner, std::shared_ptr<const FleetPlan> inner, uint64_t membership)
      : FleetPlan(owner, std::move(inner)), membership(membership) {}

  struct Known {
    WorkerId worker;
    PromptMemory::Owner owner;
    uint32_t weight;  // Worker::weight
  };
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // From `known`.
  void FillPositions() {
    of_text.assign(kMaxWorkers, kNowhere);
    of_tokens.assign(kMaxWorkers, kNowhere);
    for (uint32_t position = 0; position < known.size(); ++position) {
      of_text[static_cast<size_t>(known[position].owner.of_text)] = position;
      of_tokens[static_cast<size_t>(known[position].owner.of_tokens)] = position;
    }
  }

  uint64_t membership;
  std::vector<Known> known;  // by position
  // Positions by owner, as each tree knows it; kNowhere: none of this membership.
  std::vector<uint32_t> of_text;
  std::vector<uint32_t> of_tokens;
};

// Load per weight of two workers: a/wa - b/wb > limit, and a/wa > ratio/1000 * b/wb.
struct Share {
  explicit Share(const Worker& worker) : requests(worker.load.requests()), weight(worker.load_weight()) {}

  bool operator<(const Share& other) const {
    return static_cast<Wide>(requests) * other.weight < static_cast<Wide>(other.requests) * weight;
  }
  bool Exceeds(const Share& least, const PolicyOptions& options) const {
    const Wide mine = static_cast<Wide>(requests) * least.weight;
    const Wide its = static_cast<Wide>(least.requests) * weight;
    return (mine - its) * kWeightOne >
               static_cast<Wide>(options.balance_abs_threshold) * weight * least.weight &&
           mine * 1000 > its * static_cast<Wide>(options.balance_rel_threshold);
  }
  // True if its load is within the threshold even against a load of 0.
  bool ExceedsNone(const PolicyOptions& options) const {
    return static_cast<Wide>(requests) * kWeightOne <=
           static_cast<Wide>(options.balance_abs_threshold) * weight;
  }

  int64_t requests;
  uint32_t weight;
};

class CacheAware final : public Policy {
 public:
  CacheAware(const PolicyOptions& options, std::unique_ptr<Policy> fallback)
      : options_(options),
        memory_(PromptMemory::Create(
            {.max_size = options.max_tree_size,
             .eviction = options.eviction_order,
             .interval = std::chrono::seconds(options.eviction_interval_secs)})),
        random_(options.seed),
        fallback_(std::move(fallback)) {}

  std::string_view name() const override { return "cache_aware"; }
  KeyParts Needs() const override { return KeyParts::kPrompt | KeyParts::kPromptTokens | fallback_->Needs(); }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    if (key.prompt.kind == Prompt::Kind::kMissing) {
      std::optional<Decision> decision = fallback_->Choose(key, fleet);
      if (decision) decision->reason = Reason::kFallback;
      return decision;
    }
    const OwnersPlan* plan = FindPlan<OwnersPlan>(fleet, this);
    DecisionRandom random(random_, key.dry_run);
    thread_local Walk own_walk;
    Walk& walk = own_walk;  // each access to a thread-local variable is a call
    const bool planned = plan != nullptr && plan->membership == fleet.membership_version();
    if (!planned || key.prompt.size() == 0) {
      // An empty prompt, or a view without a plan: nothing is known, nothing is learned.
      if (!key.dry_run) misses_.value.fetch_add(1, std::memory_order_relaxed);
      const uint32_t position =
          planned ? Least(fleet, fleet.eligible(), *plan, &walk, *random) : *LeastLoaded(fleet, *random);
      return DecisionFor(position, Reason::kPrefixMiss, 0, key, fleet);
    }
    memory_->Match(key.prompt, &walk.matches);
    Weigh(key.prompt, fleet, *plan, &walk);
    if (key.explanation != nullptr) Explain(fleet, walk, key.explanation.get());
    const auto [position, reason] = Pick(key.prompt, fleet, *plan, &walk, *random);
    Decision decision = DecisionFor(position, reason, walk.held[position], key, fleet);
    ConsiderBest(walk.best_position, walk.best, &decision);
    decision.endpoint = key.endpoint;
    if (key.dry_run) return decision;
    decision.claim = memory_->Insert(
        key.prompt, plan->known[position].owner,
        {.is_open = true, .is_start = !walk.continues, .priority = key.priority}, walk.matches);
    CounterOf(reason).fetch_add(1, std::memory_order_relaxed);
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    if (decision.reason == Reason::kFallback) return fallback_->Observe(decision, outcome);
    if (decision.claim != 0) {
      const Prompt::Kind kind =
          decision.unit == MatchUnit::kTokens ? Prompt::Kind::kTokens : Prompt::Kind::kText;
      memory_->Settle(kind, decision.claim, ComputedPrompt(outcome));
    }
    predictions_.Count(decision, outcome, options_.block_size);
    if (!outcome.cached_tokens || decision.unit == MatchUnit::kNone) return;
    const bool is_text = decision.unit == MatchUnit::kBytes;
    if (decision.matched < kTellingGrains * (is_text ? kGrainBytes : kGrainTokens)) return;
    const MutexLock lock(trust_mutex_);
    const auto found = trust_.find(decision.worker);
    if (found == trust_.end()) return;
    Trust& trust = found->second;
    if (*outcome.cached_tokens != 0) {
      trust.misses = 0;
      trust.telling.set(decision.endpoint);
      return;
    }
    // Some engines report 0 at all times, others at some endpoints: there it says nothing.
    if (!trust.telling.test(decision.endpoint) || ++trust.misses < kTellingMisses) return;
    // It has restarted, or lost its cache in another way.
    memory_->Forget(trust.owner);
    trust.Restarted();
    ++forgotten_;
  }

  bool remembers_prompts() const override { return true; }
  void SetCacheSize(WorkerId worker, const CacheSize& size) override {
    const MutexLock lock(trust_mutex_);
    const auto found = trust_.find(worker);
    if (found != trust_.end() && size.bytes != 0) memory_->SetCapacity(found->second.owner, size.bytes);
  }

  void ForgetCache(WorkerId worker) override {
    const MutexLock lock(trust_mutex_);
    const auto found = trust_.find(worker);
    if (found == trust_.end()) return;
    found->second.Restarted();
    memory_->Forget(found->second.owner);
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    const OwnersPlan* last = FindPlan<OwnersPlan>(next, this);
    auto plan = std::make_shared<OwnersPlan>(this, fallback_->Plan(next), next.membership_version());
    if (last != nullptr && last->membership == next.membership_version()) {
      plan->known = last->known;
      plan->of_text = last->of_text;
      plan->of_tokens = last->of_tokens;
      return plan;
    }
    std::vector<OwnersPlan::Known> gone = last != nullptr ? last->known : std::vector<OwnersPlan::Known>();
    plan->known = CarryOver(&gone, next, [this](const FleetView::Member& member) {
      return OwnersPlan::Known{member.worker->id, memory_->AddWorker(), member.worker->weight};
    });
    for (size_t i = 0; i < plan->known.size(); ++i) plan->known[i].weight = next.members()[i].worker->weight;
    plan->FillPositions();
    const MutexLock lock(trust_mutex_);
    for (const OwnersPlan::Known& known : gone) {
      memory_->RemoveWorker(known.owner);
      trust_.erase(known.worker);
    }
    for (const OwnersPlan::Known& known : plan->known) trust_[known.worker].owner = known.owner;
    return plan;
  }

  void Report(const FleetView& fleet, StatsWriter* writer) const override {
    const PrefixTreeStats trees = memory_->stats();
    writer->Group("cache_routing");
    writer->Counter(
        {"hits", "cache_hits_total",
         "Decisions of cache_aware for a worker that had been sent enough of the prompt (prefix_hit)."},
        hits_.value.load(std::memory_order_relaxed));
    writer->Counter(
        {"misses", "cache_misses_total",
         "Decisions of cache_aware where no worker had been sent enough of the prompt (prefix_miss), or its "
         "prefix is hot (prefix_spread)."},
        misses_.value.load(std::memory_order_relaxed));
    writer->Counter(
        {"load_balancing", "load_balancing_events_total",
         "Decisions of cache_aware by load that override a prefix match (load_balance)."},
        balanced_.value.load(std::memory_order_relaxed));
    writer->PerWorker(
        {"workers", "tree_size",
         "Bytes of prompts that cache_aware remembers for the worker; a token id counts as four."},
        SizesOf(fleet));
    writer->Gauge(
        {"bytes", "tree_distinct_bytes",
         "Bytes of prompts that cache_aware remembers, what several workers were sent counting once; "
         "--max-tree-size is the limit."},
        trees.size);
    writer->Gauge(
        {"max_bytes", "tree_max_bytes", "Maximum of tree_distinct_bytes (--max-tree-size)."},
        options_.max_tree_size);
    writer->Gauge(
        {"memory_bytes", "tree_memory_bytes", "Memory of the prefix trees of cache_aware."}, trees.memory);
    writer->Gauge({"nodes", "tree_nodes", "Nodes of the prefix trees of cache_aware."}, trees.nodes);
    writer->Counter(
        {"evicted_bytes", "tree_evicted_bytes_total",
         "Bytes of prompts that cache_aware evicted to stay below --max-tree-size."},
        trees.evicted_size);
    // Their former place; the metrics are those of the group below.
    writer->Counter({"predicted_tokens", {}, {}}, predictions_.predicted());
    writer->Counter({"reported_tokens", {}, {}}, predictions_.reported());
    ReportRestarts(writer);
    predictions_.Report(writer);
  }

 private:
  void ReportRestarts(StatsWriter* writer) const {
    const MutexLock lock(trust_mutex_);
    writer->Counter(
        {"inferred_restarts", "worker_restarts_inferred_total",
         "Worker restarts inferred from three responses in a row that had nothing cached.",
         "worker_restarts_guessed_total"},
        forgotten_);
    writer->Counter({"guessed_restarts", {}, {}}, forgotten_);  // the former key
  }

  // Bytes that each worker was sent, by position; none for a view without a plan.
  std::vector<uint64_t> SizesOf(const FleetView& fleet) const {
    const OwnersPlan* plan = FindPlan<OwnersPlan>(fleet, this);
    if (plan == nullptr || plan->membership != fleet.membership_version()) return {};
    std::vector<PromptMemory::Owner> owners;
    for (const OwnersPlan::Known& known : plan->known) owners.push_back(known.owner);
    std::vector<uint64_t> sizes(owners.size());
    memory_->Sizes(owners, sizes);
    return sizes;
  }

  // The result of matching a prompt, without the scope. One per thread, reused.
  struct Walk {
    PrefixMatches matches;
    std::vector<uint64_t> held;  // by position; 0 for workers that are not eligible
    uint64_t best = 0;           // of the eligible
    uint32_t best_position = 0;  // one of those
    bool continues = false;      // an earlier request's prompt, and what an engine made of it
    std::vector<uint32_t> holders;
    std::vector<uint32_t> equals;
    std::vector<PromptMemory::Owner> owners;  // of the equals
    std::vector<uint64_t> sizes;              // bytes that they own
  };

  struct Picked {
    uint32_t position;
    Reason reason;
  };

  // Every decision of every thread counts, so counters do not share a cache line.
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
  };

  struct Trust {
    PromptMemory::Owner owner{};
    uint32_t misses = 0;              // consecutive
    std::bitset<kEndpoints> telling;  // endpoints that have reported more than 0 since its start

    void Restarted() {
      misses = 0;
      telling.reset();
    }
  };

  std::atomic<uint64_t>& CounterOf(Reason reason) {
    if (reason == Reason::kPrefixHit) return hits_.value;
    return reason == Reason::kLoadBalance ? balanced_.value : misses_.value;
  }

  static void Weigh(const Prompt& prompt, const FleetView& fleet, const OwnersPlan& plan, Walk* walk) {
    const std::vector<uint32_t>& position_of =
        prompt.kind == Prompt::Kind::kText ? plan.of_text : plan.of_tokens;
    walk->held.assign(fleet.members().size(), 0);
    walk->best = 0;
    for (const PrefixMatches::Entry& match : walk->matches.entries()) {
      const uint32_t position = position_of[static_cast<size_t>(match.owner)];
      if (position == OwnersPlan::kNowhere || !fleet.IsEligible(position)) continue;
      const uint64_t held = match.matched - std::min<uint64_t>(match.matched, prompt.scope);
      walk->held[position] = held;
      if (held <= walk->best) continue;
      walk->best = held;
      walk->best_position = position;
    }
    walk->continues = Continues(prompt, *walk);
  }

  // An earlier request ended within the part that a worker has. What follows is nothing, or a response
  // to it or, for a text without roles, anything. With ids, an end within a page counts as the end of
  // the page.
  static bool Continues(const Prompt& prompt, const Walk& walk) {
    const bool is_text = prompt.kind == Prompt::Kind::kText;
    const uint64_t deepest = prompt.scope + walk.best;
    if (walk.best == 0) return false;
    for (const uint64_t end : walk.matches.ends()) {
      if ((is_text ? end : end - end % PromptMemory::kPageTokens) > deepest) break;
      if (end <= prompt.scope) continue;
      if (!prompt.framed) return true;
      const std::string_view rest = prompt.text().substr(end);
      if (rest.empty() || rest.starts_with(kAnswer)) return true;
    }
    return false;
  }

  Picked Pick(
      const Prompt& prompt, const FleetView& fleet, const OwnersPlan& plan, Walk* walk,
      Random& random) const {
    const auto least_loaded = [&](std::span<const uint32_t> among) {
      return Least(fleet, among, plan, walk, random);
    };
    if (options_.balance_gate == BalanceGate::kFleet && FleetIsUneven(fleet)) {
      return {least_loaded(fleet.eligible()), Reason::kLoadBalance};
    }
    const auto total = static_cast<double>(prompt.size());
    // Engines cache whole blocks: a match shorter than one saves nothing, and prompts that agree in less
    // would all follow the first.
    if (walk->best < Granularity(prompt) ||
        static_cast<double>(walk->best) / total <= options_.cache_threshold) {
      const bool smallest = options_.miss_choice == MissChoice::kSmallestTree;
      return {
          smallest ? Smallest(fleet, plan, walk, random) : least_loaded(fleet.eligible()),
          Reason::kPrefixMiss};
    }
    FindHolders(prompt, fleet, walk);
    if (!walk->continues && options_.spread_new_conversations && IsHotPrefix(prompt, fleet, plan, *walk)) {
      return {least_loaded(fleet.eligible()), Reason::kPrefixSpread};
    }
    const uint32_t holder = least_loaded(walk->holders);
    if (options_.balance_gate == BalanceGate::kWorker) {
      const Share share(fleet.worker(holder));
      if (!share.ExceedsNone(options_) && share.Exceeds(LeastShare(fleet), options_)) {
        return {least_loaded(fleet.eligible()), Reason::kLoadBalance};
      }
    }
    return {holder, Reason::kPrefixHit};
  }

  static uint64_t Granularity(const Prompt& prompt) {
    return prompt.kind == Prompt::Kind::kText ? kGrainBytes : kGrainTokens;
  }

  // A conversation's own holder or, for a new conversation, all workers that have it up to the same
  // block.
  static void FindHolders(const Prompt& prompt, const FleetView& fleet, Walk* walk) {
    const uint64_t granularity = walk->continues ? 1 : Granularity(prompt);
    const uint64_t least = walk->best - walk->best % granularity;
    const std::span<const uint32_t> eligible = fleet.eligible();
    walk->holders.resize(eligible.size());
    size_t count = 0;
    for (const uint32_t position : eligible) {
      walk->holders[count] = position;
      count += walk->held[position] >= least ? 1 : 0;
    }
    walk->holders.resize(count);
  }

  // A prefix with the share f of all new conversations belongs on f of the fleet.
  static bool IsHotPrefix(
      const Prompt& prompt, const FleetView& fleet, const OwnersPlan& plan, const Walk& walk) {
    const uint64_t granularity = Granularity(prompt);
    const uint64_t passed = walk.matches.StartsAt(prompt.scope + walk.best / granularity * granularity);
    uint64_t holding = 0;
    for (const uint32_t position : walk.holders) holding += plan.known[position].weight;
    return passed * fleet.eligible_weight() > holding * walk.matches.starts();
  }

  static Share LeastShare(const FleetView& fleet) {
    Share least(fleet.worker(fleet.eligible().front()));
    for (const uint32_t position : fleet.eligible().subspan(1)) {
      if (fleet.equal_weights()) {
        least.requests = std::min(least.requests, fleet.load(position).requests());
      } else {
        least = std::min(least, Share(fleet.worker(position)));
      }
    }
    return least;
  }

  bool FleetIsUneven(const FleetView& fleet) const {
    Share most(fleet.worker(fleet.eligible().front()));
    for (const uint32_t position : fleet.eligible().subspan(1)) {
      most = std::max(most, Share(fleet.worker(position)));
    }
    return most.Exceeds(LeastShare(fleet), options_);
  }

  // The least-loaded order; of equals the workers that have seen least come first; then at random.
  uint32_t Least(
      const FleetView& fleet, std::span<const uint32_t> among, const OwnersPlan& plan, Walk* walk,
      Random& random) const {
    std::vector<uint32_t>& equals = walk->equals;
    FindLeastLoaded(fleet, among, &equals);
    if (equals.size() > 1) KeepSmallest(plan, &equals, walk);
    return Draw(equals, random);
  }

  uint32_t Smallest(const FleetView& fleet, const OwnersPlan& plan, Walk* walk, Random& random) const {
    std::vector<uint32_t>& equals = walk->equals;
    equals.assign(fleet.eligible().begin(), fleet.eligible().end());
    KeepSmallest(plan, &equals, walk);
    return LeastLoaded(fleet, equals, random);
  }

  void KeepSmallest(const OwnersPlan& plan, std::vector<uint32_t>* positions, Walk* walk) const {
    const size_t size = positions->size();
    walk->owners.resize(size);
    walk->sizes.resize(size);
    for (size_t i = 0; i < size; ++i) walk->owners[i] = plan.known[(*positions)[i]].owner;
    memory_->Sizes(walk->owners, walk->sizes);
    KeepLeast(std::span<const uint64_t>(walk->sizes), *positions, positions);
  }

  static uint32_t Draw(std::span<const uint32_t> equals, Random& random) {
    return equals.size() == 1 ? equals.front() : equals[random.Below(equals.size())];
  }

  static void Explain(const FleetView& fleet, const Walk& walk, Explanation* explanation) {
    for (size_t i = 0; i < explanation->candidates.size() && i < fleet.eligible().size(); ++i) {
      explanation->candidates[i].matched = walk.held[fleet.eligible()[i]];
    }
  }

  static Decision DecisionFor(
      uint32_t position, Reason reason, uint64_t matched, const RoutingKey& key, const FleetView& fleet) {
    return {
        .position = position,
        .worker = fleet.worker(position).id,
        .reason = reason,
        .unit = key.prompt.kind == Prompt::Kind::kText ? MatchUnit::kBytes : MatchUnit::kTokens,
        .matched = matched,
        .total = key.prompt.size()};
  }

  const PolicyOptions options_;
  const std::shared_ptr<PromptMemory> memory_;
  Random random_;
  const std::unique_ptr<Policy> fallback_;

  Counter hits_;
  Counter misses_;
  Counter balanced_;
  CachePredictionSums predictions_;

  mutable Mutex trust_mutex_;  // held briefly, and once in a while for a worker's restart
  std::unordered_map<WorkerId, Trust> trust_ ABSL_GUARDED_BY(trust_mutex_);
  uint64_t forgotten_ ABSL_GUARDED_BY(trust_mutex_) = 0;
};

}  // namespace

PolicyEntry CacheAwareEntry() {
  return {
      .name = "cache_aware",
      .options =
          {"fallback_policy", "cache_threshold", "balance_abs_threshold", "balance_rel_threshold",
           "eviction_interval_secs", "max_tree_size", "eviction_policy", "balance_gate",
           "spread_new_conversations", "miss_choice"},
      .make = Make<CacheAware>};
}

}  // namespace vllm_router
