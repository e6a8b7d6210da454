#include "policy/rendezvous_hash.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

// Inlined here as well: a call per worker would cost as much as the hash itself.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "policy/keyed_policy.h"

namespace vllm_router {
namespace {

// What depends on the members alone. Weights of all members count, not of the eligible only: the same scores must
// decide about a key's home and about who stands in for it.
struct MembersPlan final : FleetPlan {
  using FleetPlan::FleetPlan;
  uint64_t membership = 0;
  bool equal_weights = true;
  std::vector<uint64_t> url_hashes;  // by position; only with xxh3
};

double WeightedScore(uint64_t score, uint32_t weight) {
  constexpr double kTwoTo64 = 18446744073709551616.0;
  const double surprise = -std::log((static_cast<double>(score) + 0.5) / kTwoTo64);
  // The highest scores round to 2^64, whose logarithm is zero.
  return surprise > 0 ? weight / surprise : std::numeric_limits<double>::infinity();
}

class RendezvousHash final : public KeyedPolicy {
 public:
  RendezvousHash(HashFunction hash_function, std::unique_ptr<Policy> fallback)
      : KeyedPolicy(std::move(fallback)), hash_function_(hash_function) {}

  std::string_view name() const override { return "rendezvous_hash"; }

 protected:
  Owner ChooseOwner(const RoutingKey& key, const FleetView& fleet) override {
    const MembersPlan* plan = FindPlan<MembersPlan>(fleet, this);
    if (plan == nullptr || plan->membership != fleet.membership()) {
      // A view that nobody planned for: right, and slow.
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
    plan->membership = fleet.membership();
    for (const FleetView::Member& member : fleet.members()) {
      if (member.worker->weight != fleet.worker(0).weight) plan->equal_weights = false;
      if (hash_function_ == HashFunction::kXxh3) plan->url_hashes.push_back(Xxh3(member.worker->url.url));
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
    // "<key>:<url>" is put together in a buffer that the thread keeps, so that nothing is allocated per decision; a
    // key of unusual length gets its own.
    constexpr size_t kKept = 64 * 1024;
    thread_local std::string kept;
    std::string own;
    std::string& text = key.size() < kKept ? kept : own;
    text.assign(key);
    text.push_back(':');
    const size_t stem = text.size();
    return HighestScore(plan, fleet, [&](uint32_t position) {
      text.resize(stem);
      text.append(fleet.worker(position).url.url);
      return RingHash(hash_function_, text);
    });
  }

  template <typename ScoreOf>
  static Owner HighestScore(const MembersPlan& plan, const FleetView& fleet, ScoreOf score_of) {
    return plan.equal_weights ? HighestOf<uint64_t>(fleet, score_of)
                              : HighestOf<double>(fleet, [&](uint32_t position) {
                                  return WeightedScore(score_of(position), fleet.worker(position).weight);
                                });
  }

  // One pass finds the home among all and the best of the eligible; the later in fleet order wins on equality.
  template <typename Score, typename ScoreOf>
  static Owner HighestOf(const FleetView& fleet, ScoreOf score_of) {
    uint32_t home = 0;
    uint32_t best = fleet.eligible().front();
    Score home_score = 0;
    Score best_score = 0;
    for (uint32_t position = 0; position < fleet.members().size(); ++position) {
      const Score score = score_of(position);
      if (score >= home_score) {
        home = position;
        home_score = score;
      }
      if (score >= best_score && fleet.IsEligible(position)) {
        best = position;
        best_score = score;
      }
    }
    return {best, best == home ? Reason::kSessionHash : Reason::kFailover};
  }

  const HashFunction hash_function_;
};

}  // namespace

std::unique_ptr<Policy> MakeRendezvousHash(HashFunction hash_function, std::unique_ptr<Policy> fallback) {
  return std::make_unique<RendezvousHash>(hash_function, std::move(fallback));
}

}  // namespace vllm_router
