#include "policy/random.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

// Sums of the weights of the eligible up to and including each. Weights 1, 2, 1: 1000, 3000, 4000.
struct WeightSums final : FleetPlan {
  using FleetPlan::FleetPlan;
  std::vector<uint64_t> up_to;
};

class RandomPolicy final : public Policy {
 public:
  explicit RandomPolicy(const PolicyOptions& options) : random_(options.seed) {}

  std::string_view name() const override { return "random"; }
  KeyParts Needs() const override { return KeyParts::kNone; }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    const auto eligible = fleet.eligible();
    if (eligible.empty()) return std::nullopt;
    DecisionRandom random(random_, key.dry_run);
    const uint32_t position = fleet.equal_weights() ? eligible[random->Below(eligible.size())]
                                                    : Draw(fleet, random->Below(fleet.eligible_weight()));
    return Decision{.position = position, .worker = fleet.worker(position).id, .reason = Reason::kRandom};
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    if (next.equal_weights()) return nullptr;
    auto sums = std::make_shared<WeightSums>(this);
    sums->up_to.reserve(next.eligible().size());
    uint64_t sum = 0;
    for (const uint32_t position : next.eligible())
      sums->up_to.push_back(sum += next.worker(position).load_weight());
    return sums;
  }

 private:
  // The eligible worker at the cumulative weight `drawn`. A retry's view has fewer eligible workers than
  // the plan; then the sums are computed on the way, with the same result.
  uint32_t Draw(const FleetView& fleet, uint64_t drawn) const {
    const auto eligible = fleet.eligible();
    const auto* sums = FindPlan<WeightSums>(fleet, this);
    if (sums != nullptr && sums->up_to.size() == eligible.size()) {
      return eligible[std::upper_bound(sums->up_to.begin(), sums->up_to.end(), drawn) - sums->up_to.begin()];
    }
    for (const uint32_t position : eligible) {
      const uint32_t weight = fleet.worker(position).load_weight();
      if (drawn < weight) return position;
      drawn -= weight;
    }
    return eligible.back();
  }

  Random random_;
};

}  // namespace

PolicyEntry RandomEntry() { return {.name = "random", .may_be_fallback = true, .make = Make<RandomPolicy>}; }

}  // namespace vllm_router
