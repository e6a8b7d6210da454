#include "policy/power_of_two.h"

#include "base/random.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

class PowerOfTwo final : public Policy {
 public:
  explicit PowerOfTwo(const PolicyOptions& options) : random_(options.seed) {}

  std::string_view name() const override { return "power_of_two"; }
  KeyParts Needs() const override { return KeyParts::kPromptTokens; }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    const auto eligible = fleet.eligible();
    if (eligible.empty()) return std::nullopt;
    uint32_t position = eligible[0];
    if (eligible.size() > 1) {
      // The second is drawn from the others: those at or after the first are one place further on.
      DecisionRandom random(random_, key.dry_run);
      const uint64_t first = random->Below(eligible.size());
      uint64_t second = random->Below(eligible.size() - 1);
      if (second >= first) ++second;
      const bool second_is_less =
          CompareLoad(fleet.worker(eligible[second]), fleet.worker(eligible[first])) < 0;
      position = eligible[second_is_less ? second : first];
    }
    return Decision{.position = position, .worker = fleet.worker(position).id, .reason = Reason::kPowerOfTwo};
  }

 private:
  Random random_;
};

}  // namespace

PolicyEntry PowerOfTwoEntry() {
  return {.name = "power_of_two", .may_be_fallback = true, .make = Make<PowerOfTwo>};
}

}  // namespace vllm_router
