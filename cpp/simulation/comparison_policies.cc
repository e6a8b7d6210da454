#include "simulation/comparison_policies.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/check.h"
#include "base/random.h"
#include "policy/auto_cost.h"
#include "policy/kv_index.h"
#include "policy/moving_mean.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, 14> kNames = {
    "compare_cache_aware_reference",
    "compare_cache_aware_documented",
    "compare_smg",
    "compare_dynamo",
    "compare_lmetric",
    "compare_auto_v2",
    "compare_auto_v1",
    "compare_auto_b0",
    "compare_auto_one_speed",
    "compare_auto_no_balance",
    "compare_auto_no_copies",
    "compare_auto_dear_moves",
    "compare_seed_000",
    "compare_seed_004"};

double Requests(const Worker& worker) { return static_cast<double>(worker.load.open_requests()); }

// The common part: an index that learns from what was sent, the fleet's loads, ties at random.
class Comparison : public Policy {
 public:
  Comparison(std::string_view name, const PolicyOptions& options, const KnownCaches* caches)
      : name_(name),
        block_size_(options.block_size),
        caches_(caches),
        index_(
            {.tracker =
                 {.block_size = options.block_size, .max_blocks_per_worker = options.max_blocks_per_worker}}),
        random_(options.seed) {}

  std::string_view name() const override { return name_; }
  KeyParts Needs() const override { return KeyParts::kBlocks | KeyParts::kPromptTokens; }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    const KvIndex::Plan* plan = index_.PlanOf(fleet);
    ROUTER_CHECK(plan != nullptr, "a replay chooses only for views that have a plan");
    held_.assign(fleet.members().size(), 0);
    if (caches_ != nullptr) {
      for (const uint32_t position : fleet.eligible()) {
        held_[position] = caches_->Held(fleet.worker(position), key.blocks);
      }
    } else if (!key.blocks.empty()) {
      index_.Match(key, *plan, &matches_);
      for (const BlockMatch& match : matches_.entries()) {
        const uint32_t position = plan->PositionOf(match.owner);
        if (position != KvIndex::kNowhere) held_[position] = match.longest();
      }
    }
    const uint32_t position = Pick(key, fleet);
    Sent(key, fleet.worker(position));
    Decision decision = KvIndex::DecisionFor(position, Reason::kLowestCost, held_[position], key, fleet);
    if (caches_ != nullptr || key.blocks.empty()) return decision;
    if (reserves_room()) {
      index_.Remember(plan->known[position].slot, key, &decision);
    } else {
      index_.tracker().Record(plan->known[position].slot, key.blocks);
    }
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    Ended(decision, outcome);
    if (caches_ == nullptr && reserves_room()) index_.Settle(decision, outcome);
    if (caches_ != nullptr || !learns_responses() || outcome.end != Outcome::End::kFinished) return;
    if (outcome.blocks.empty()) return;
    index_.RecordBlocks(decision.worker, outcome.blocks);
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    return index_.MakePlan(nullptr, next);
  }

 protected:
  virtual uint32_t Pick(const RoutingKey& key, const FleetView& fleet) = 0;
  virtual void Sent(const RoutingKey& /*key*/, const Worker& /*worker*/) {}
  virtual void Ended(const Decision& /*decision*/, const Outcome& /*outcome*/) {}
  // True if its index gets the blocks of responses when they end.
  virtual bool learns_responses() const { return true; }
  // True if its index keeps room for a mean response behind each prompt instead, as the server's does.
  virtual bool reserves_room() const { return false; }

  uint32_t held(uint32_t position) const { return held_[position]; }
  uint32_t block_size() const { return block_size_; }

  double Cached(uint32_t position, const RoutingKey& key) const {
    return static_cast<double>(std::min<uint64_t>(held_[position], key.usable_blocks) * block_size_);
  }
  double Uncached(uint32_t position, const RoutingKey& key) const {
    return std::max(1.0, static_cast<double>(key.prompt_tokens) - Cached(position, key));
  }
  double Share(uint32_t position, const RoutingKey& key) const {
    return std::min(1.0, Cached(position, key) / static_cast<double>(key.prompt_tokens));
  }

  // The eligible position of the smallest score; of equals a random one, or the first.
  template <typename Score>
  uint32_t Smallest(const FleetView& fleet, Score score, bool by_lot = true) {
    double least = std::numeric_limits<double>::infinity();
    uint32_t best = fleet.eligible().front();
    uint64_t equals = 0;
    for (const uint32_t position : fleet.eligible()) {
      const double value = score(position);
      if (value < least) {
        least = value;
        best = position;
        equals = 1;
      } else if (value == least && by_lot && random_.Below(++equals) == 0) {
        best = position;
      }
    }
    return best;
  }
  uint32_t LeastRequests(const FleetView& fleet, bool by_lot = true) {
    return Smallest(
        fleet, [&](uint32_t position) { return Requests(fleet.worker(position)); }, by_lot);
  }
  static double AllRequests(const FleetView& fleet) {
    double sum = 0;
    for (const uint32_t position : fleet.eligible()) sum += Requests(fleet.worker(position));
    return sum;
  }

 private:
  const std::string_view name_;
  const uint32_t block_size_;
  const KnownCaches* const caches_;
  KvIndex index_;
  Random random_;
  BlockMatches matches_;
  std::vector<uint32_t> held_;  // by position, of the present request
};

// One tree for all workers; a node belongs to the worker that created it.
class CacheAwareReference final : public Comparison {
 public:
  struct Thresholds {
    double cache;
    double absolute;
    double relative;
  };
  CacheAwareReference(std::string_view name, const PolicyOptions& options, const Thresholds& thresholds)
      : Comparison(name, options, nullptr), thresholds_(thresholds) {}

 private:
  uint32_t Pick(const RoutingKey& key, const FleetView& fleet) override {
    double most = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const uint32_t position : fleet.eligible()) {
      most = std::max(most, Requests(fleet.worker(position)));
      least = std::min(least, Requests(fleet.worker(position)));
    }
    if (most - least > thresholds_.absolute && most > least * thresholds_.relative) {
      return LeastRequests(fleet, false);
    }
    uint32_t matched = 0;
    WorkerId owner{};
    for (const BlockHash block : key.blocks) {
      const auto found = owner_.find(block);
      if (found == owner_.end()) break;
      owner = found->second;
      ++matched;
    }
    const auto cached = static_cast<double>(std::min<uint64_t>(matched, key.usable_blocks) * block_size());
    if (matched > 0 && cached / static_cast<double>(key.prompt_tokens) > thresholds_.cache) {
      for (const uint32_t position : fleet.eligible()) {
        if (fleet.worker(position).id == owner) return position;
      }
    }
    return LeastRequests(fleet, false);
  }
  void Sent(const RoutingKey& key, const Worker& worker) override {
    for (const BlockHash block : key.blocks) owner_.try_emplace(block, worker.id);
  }

  const Thresholds thresholds_;
  absl::flat_hash_map<BlockHash, WorkerId> owner_;
};

class Smg final : public Comparison {
 public:
  using Comparison::Comparison;

 private:
  uint32_t Pick(const RoutingKey& key, const FleetView& fleet) override {
    uint32_t longest = 0;
    double share = 0;
    for (const uint32_t position : fleet.eligible()) {
      longest = std::max(longest, held(position));
      share = std::max(share, Share(position, key));
    }
    if (share <= 0.3) return LeastRequests(fleet);
    const uint32_t position = Smallest(fleet, [&](uint32_t candidate) {
      return held(candidate) == longest ? Requests(fleet.worker(candidate)) : 1e18;
    });
    const double mean = (AllRequests(fleet) + 1) / static_cast<double>(fleet.eligible().size());
    const double load = Requests(fleet.worker(position));
    return load > mean * 1.5 && load > mean + 64 ? LeastRequests(fleet) : position;
  }
};

class Dynamo final : public Comparison {
 public:
  using Comparison::Comparison;

 private:
  struct Active {
    absl::flat_hash_map<BlockHash, uint32_t> open;  // requests that have the block
  };

  uint32_t Pick(const RoutingKey& key, const FleetView& fleet) override {
    return Smallest(fleet, [&](uint32_t position) {
      const Worker& worker = fleet.worker(position);
      const Active& active = active_[static_cast<uint32_t>(worker.id)];
      size_t added = 0;
      for (const BlockHash block : key.blocks) added += active.open.contains(block) ? 0 : 1;
      const double prefill = static_cast<double>(worker.load.queued_prefill()) + Uncached(position, key);
      return prefill / block_size() + static_cast<double>(active.open.size() + added);
    });
  }
  void Sent(const RoutingKey& key, const Worker& worker) override {
    Active& active = active_[static_cast<uint32_t>(worker.id)];
    for (const BlockHash block : key.blocks) ++active.open[block];
  }
  void Ended(const Decision& decision, const Outcome& outcome) override {
    Active& active = active_[static_cast<uint32_t>(decision.worker)];
    for (const BlockHash block :
         outcome.blocks.first(std::min<size_t>(decision.total, outcome.blocks.size()))) {
      const auto found = active.open.find(block);
      if (found != active.open.end() && --found->second == 0) active.open.erase(found);
    }
  }

  absl::flat_hash_map<uint32_t, Active> active_;  // by WorkerId
};

class LMetric final : public Comparison {
 public:
  using Comparison::Comparison;

 private:
  uint32_t Pick(const RoutingKey& key, const FleetView& fleet) override {
    return Smallest(fleet, [&](uint32_t position) {
      const Worker& worker = fleet.worker(position);
      const double prefill = static_cast<double>(worker.load.queued_prefill()) + Uncached(position, key);
      return prefill * (Requests(worker) + 1);
    });
  }
};

// auto's cost as it was: its second version, that without its price of later work, and its first one.
class FormerAuto final : public Comparison {
 public:
  struct Weights {
    double ahead;    // of a mean uncached prompt, for each request that waits
    double waiting;  // of this prompt's uncached tokens, for each request that waits
    double running;  // the same, for each open request
    double context;  // a token of context, against one of prefill
    double crowd;    // a mean prompt, for each open request and as many others as a mean worker has
  };
  static constexpr Weights kFirstVersion{0, 0, 0.1, 0.05, 0};
  static constexpr Weights kSecondVersion{0.5, 0.7, 0.125, 0.02, 0.01};
  static constexpr Weights kWithoutPrice{0.5, 0.7, 0, 0.02, 0.01};

  FormerAuto(
      std::string_view name, const PolicyOptions& options, const KnownCaches* caches, const Weights& weights)
      : Comparison(name, options, caches), weights_(weights) {}

 private:
  uint32_t Pick(const RoutingKey& key, const FleetView& fleet) override {
    AutoLoads all;
    for (const uint32_t position : fleet.eligible()) all.Add(fleet.load(position).ReadForDecision());
    const double prompt = all.MeanPrompt(key.prompt_tokens);
    const double mean_requests =
        static_cast<double>(all.requests) / static_cast<double>(fleet.eligible().size());
    const double mean_uncached = mean_uncached_.value();
    const uint32_t position = Smallest(fleet, [&](uint32_t candidate) {
      const WorkerLoad::Reading load = fleet.load(candidate).ReadForDecision();
      const auto waiting = static_cast<double>(load.waiting);
      const auto requests = static_cast<double>(load.requests);
      const double uncached = Uncached(candidate, key);
      const double queued =
          static_cast<double>(load.queued) + static_cast<double>(load.polled_waiting) * mean_uncached;
      const double context = static_cast<double>(load.context) + static_cast<double>(load.polled) * prompt;
      const double ahead = queued + weights_.ahead * waiting * mean_uncached;
      const double own = uncached * (1 + weights_.waiting * waiting);
      const double place = weights_.crowd * prompt / (mean_requests + 1) * requests * requests;
      const double weight = static_cast<double>(fleet.worker(candidate).weight) / kWeightOne;
      return (ahead + own + place) / weight + weights_.running * uncached * requests +
             weights_.context * (context + requests * prompt);
    });
    mean_uncached_.Learn(Uncached(position, key));
    return position;
  }
  bool learns_responses() const override { return false; }
  bool reserves_room() const override { return weights_.crowd != 0; }

  const Weights weights_;
  MovingMean mean_uncached_;
};

// auto with other weights, over an index like its own.
PolicyParts OtherAuto(PolicyOptions options, const AutoWeights& weights) {
  options.policy = "auto";
  PolicyParts parts = MakePolicy(options).value();
  parts.policy = MakeAuto(options, parts.index, weights);
  return parts;
}

class Seed000 final : public Comparison {
 public:
  using Comparison::Comparison;

 private:
  uint32_t Pick(const RoutingKey& key, const FleetView& fleet) override {
    const uint32_t best =
        Smallest(fleet, [&](uint32_t position) { return -static_cast<double>(held(position)); });
    const double mean = AllRequests(fleet) / static_cast<double>(fleet.eligible().size());
    const bool taken = Share(best, key) > 0.3 && Requests(fleet.worker(best)) <= mean * 1.25;
    return taken ? best : LeastRequests(fleet);
  }
};

class Seed004 final : public Comparison {
 public:
  using Comparison::Comparison;

 private:
  uint32_t Pick(const RoutingKey& /*key*/, const FleetView& fleet) override {
    double longest = 0;
    double most = 0;
    for (const uint32_t position : fleet.eligible()) {
      longest = std::max(longest, static_cast<double>(held(position)));
      most = std::max(most, Requests(fleet.worker(position)));
    }
    if (longest == 0) return LeastRequests(fleet);
    return Smallest(fleet, [&](uint32_t position) {
      const double load = most > 0 ? Requests(fleet.worker(position)) / most : 0;
      return -(0.6 * held(position) / longest + 0.3 * (1 - load));
    });
  }
};

}  // namespace

std::span<const std::string_view> ComparisonPolicyNames() { return kNames; }

bool IsComparisonPolicy(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

PolicyParts MakeComparisonPolicy(const PolicyOptions& options, const KnownCaches* caches) {
  const auto name = std::find(kNames.begin(), kNames.end(), options.policy);
  ROUTER_CHECK(name != kNames.end(), "a comparison policy has one of their names");
  switch (name - kNames.begin()) {
    case 0:
      return {
          .policy = std::make_unique<CacheAwareReference>(
              *name, options,
              CacheAwareReference::Thresholds{.cache = 0.3, .absolute = 64, .relative = 1.5})};
    case 1:
      return {
          .policy = std::make_unique<CacheAwareReference>(
              *name, options,
              CacheAwareReference::Thresholds{.cache = 0.5, .absolute = 32, .relative = 1.1})};
    case 2:
      return {.policy = std::make_unique<Smg>(*name, options, caches)};
    case 3:
      return {.policy = std::make_unique<Dynamo>(*name, options, caches)};
    case 4:
      return {.policy = std::make_unique<LMetric>(*name, options, caches)};
    case 5:
      return {.policy = std::make_unique<FormerAuto>(*name, options, caches, FormerAuto::kSecondVersion)};
    case 6:
      return {.policy = std::make_unique<FormerAuto>(*name, options, caches, FormerAuto::kFirstVersion)};
    case 7:
      return {.policy = std::make_unique<FormerAuto>(*name, options, caches, FormerAuto::kWithoutPrice)};
    case 8:
      return OtherAuto(options, {.speeds = false});
    case 9:
      return OtherAuto(options, {.most_sent = 0});
    case 10:
      return OtherAuto(options, {.sharers = 0});
    case 11:
      return OtherAuto(options, {.later = 4 * AutoWeights().later});
    case 12:
      return {.policy = std::make_unique<Seed000>(*name, options, caches)};
    default:
      return {.policy = std::make_unique<Seed004>(*name, options, caches)};
  }
}

}  // namespace vllm_router
