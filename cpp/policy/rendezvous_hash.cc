#include "policy/rendezvous_hash.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

// Inlined here as well: a call per worker would cost as much as the hash itself.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "hashing/furc_batch.h"
#include "policy/keyed_policy.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

// What depends on the members alone. Weights of all members count, not of the eligible only: the same
// scores must decide on a key's home and on its replacement.
struct MembersPlan final : FleetPlan {
  using FleetPlan::FleetPlan;
  uint64_t membership = 0;
  bool equal_weights = true;
  std::vector<uint32_t> weights;     // by position
  std::vector<uint64_t> url_hashes;  // likewise; only with xxh3
  FurcBatch urls;                    // only with furc
};

// As a share of all scores, up to 1.
double ShareOf(uint64_t score) {
  constexpr double kTwoTo64 = 18446744073709551616.0;
  return (static_cast<double>(score) + 0.5) / kTwoTo64;
}

double WeightedScore(double share, uint32_t weight) {
  const double surprise = -std::log(share);
  // The highest scores round to 2^64, whose logarithm is zero.
  return surprise > 0 ? weight / surprise : std::numeric_limits<double>::infinity();
}

// True if WeightedScore() may reach `other`, found without a logarithm: -ln x >= 1 - x, and nearly equal
// where it matters. There is a margin for rounding.
bool MayReach(double share, uint32_t weight, double other) {
  constexpr double kRounding = 1 - 1e-12;
  return !(weight < other * (1 - share) * kRounding);  // also where both are infinite
}

class RendezvousHash final : public KeyedPolicy {
 public:
  RendezvousHash(const PolicyOptions& options, std::unique_ptr<Policy> fallback)
      : KeyedPolicy(std::move(fallback)), hash_function_(options.hash_function) {}

  std::string_view name() const override { return "rendezvous_hash"; }

 protected:
  Owner ChooseOwner(const RoutingKey& key, const FleetView& fleet) override {
    const MembersPlan* plan = FindPlan<MembersPlan>(fleet, this);
    if (plan == nullptr || plan->membership != fleet.membership_version()) {
      // A view without a plan: correct, and slow.
      return HighestScore(*MakePlan(fleet, nullptr), key.hash_key, fleet);
    }
    return HighestScore(*plan, key.hash_key, fleet);
  }

  std::shared_ptr<const FleetPlan> PlanOwners(
      const FleetView& next, std::shared_ptr<const FleetPlan> inner) override {
    return MakePlan(next, std::move(inner));
  }

 private:
  std::shared_ptr<const MembersPlan> MakePlan(
      const FleetView& fleet, std::shared_ptr<const FleetPlan> inner) const {
    auto plan = std::make_shared<MembersPlan>(this, std::move(inner));
    plan->membership = fleet.membership_version();
    const MembersPlan* last = FindPlan<MembersPlan>(fleet, this);
    if (last != nullptr && last->membership == fleet.membership_version()) {
      plan->equal_weights = last->equal_weights;
      plan->weights = last->weights;
      plan->url_hashes = last->url_hashes;
      plan->urls = last->urls;
      return plan;
    }
    std::vector<std::string_view> urls;
    for (const FleetView::Member& member : fleet.members()) {
      if (member.worker->weight != fleet.worker(0).weight) plan->equal_weights = false;
      plan->weights.push_back(member.worker->weight);
      urls.push_back(member.worker->url.url);
    }
    if (hash_function_ == HashFunction::kXxh3) {
      for (const std::string_view url : urls) plan->url_hashes.push_back(Xxh3(url));
    } else {
      plan->urls = FurcBatch(urls);
    }
    return plan;
  }

  Owner HighestScore(const MembersPlan& plan, std::string_view key, const FleetView& fleet) const {
    if (hash_function_ == HashFunction::kXxh3) {
      const uint64_t key_hash = Xxh3(key);
      return HighestScore(plan, fleet, [&](uint32_t position) {
        const uint64_t pair[2] = {key_hash, plan.url_hashes[position]};
        return static_cast<uint64_t>(XXH3_64bits(pair, sizeof(pair)));
      });
    }
    // "<key>:" is composed in a buffer that the thread keeps, so that no decision allocates; a key of
    // unusual length gets its own.
    constexpr size_t kKept = 64 * 1024;
    thread_local Scratch scratch;
    std::string own;
    std::string& stem = key.size() < kKept ? scratch.stem : own;
    stem.assign(key);
    stem.push_back(':');
    std::vector<uint64_t>& scores = scratch.scores;
    scores.resize(std::max(scores.size(), plan.urls.room()));
    plan.urls.Hash(stem, scores);
    return HighestScore(plan, fleet, [read = scores.data()](uint32_t position) { return read[position]; });
  }

  // One pass finds the home among all and the best of the eligible; the later in fleet order wins on
  // equality.
  template <typename ScoreOf>
  static Owner HighestScore(const MembersPlan& plan, const FleetView& fleet, ScoreOf score_of) {
    return plan.equal_weights ? HighestOf(fleet, score_of) : HighestWeightedOf(plan, fleet, score_of);
  }

  template <typename ScoreOf>
  static Owner HighestOf(const FleetView& fleet, ScoreOf score_of) {
    Highest<uint64_t> highest(fleet);
    for (uint32_t position = 0; position < fleet.members().size(); ++position)
      if (!fleet.members()[position].elsewhere()) highest.Add(position, score_of(position));
    return highest.owner();
  }

  template <typename ScoreOf>
  static Owner HighestWeightedOf(const MembersPlan& plan, const FleetView& fleet, ScoreOf score_of) {
    Highest<double> highest(fleet);
    for (uint32_t position = 0; position < fleet.members().size(); ++position) {
      if (fleet.members()[position].elsewhere()) continue;
      const double share = ShareOf(score_of(position));
      const uint32_t weight = plan.weights[position];
      if (MayReach(share, weight, highest.best_score)) highest.Add(position, WeightedScore(share, weight));
    }
    return highest.owner();
  }

  template <typename Score>
  struct Highest {
    explicit Highest(const FleetView& view) : fleet(view), best(view.eligible().front()) {}

    void Add(uint32_t position, Score score) {
      if (score >= home_score) {
        home = position;
        home_score = score;
      }
      if (score >= best_score && fleet.IsEligible(position)) {
        best = position;
        best_score = score;
      }
    }
    Owner owner() const { return {best, best == home ? Reason::kSessionHash : Reason::kFailover}; }

    const FleetView& fleet;
    uint32_t home = 0;
    uint32_t best;
    Score home_score = 0;
    Score best_score = 0;  // at most the home's
  };

  // One per thread, reused.
  struct Scratch {
    std::string stem;
    std::vector<uint64_t> scores;
  };

  const HashFunction hash_function_;
};

}  // namespace

PolicyEntry RendezvousHashEntry() {
  return {
      .name = "rendezvous_hash",
      .options = {"fallback_policy", "hash_function"},
      .make = Make<RendezvousHash>};
}

}  // namespace vllm_router
