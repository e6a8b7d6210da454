#include "policy/least_load.h"

namespace vllm_router {
namespace {

class LeastLoad final : public Policy {
 public:
  LeastLoad(uint64_t seed, LeastLoadMetric metric) : metric_(metric), random_(seed) {}

  std::string_view name() const override { return "least_load"; }
  KeyParts Needs() const override { return KeyParts::kPromptTokens; }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    DecisionRandom random(random_, key.dry_run);
    const std::optional<uint32_t> position = LeastLoaded(fleet, *random, metric_);
    if (!position) return std::nullopt;
    return Decision{
        .position = *position, .worker = fleet.worker(*position).id, .reason = Reason::kLeastLoaded};
  }

 private:
  const LeastLoadMetric metric_;
  Random random_;
};

}  // namespace

std::unique_ptr<Policy> MakeLeastLoad(uint64_t seed, LeastLoadMetric metric) {
  return std::make_unique<LeastLoad>(seed, metric);
}

}  // namespace vllm_router
