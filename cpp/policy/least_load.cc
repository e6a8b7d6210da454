#include "policy/least_load.h"

#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

class LeastLoad final : public Policy {
 public:
  explicit LeastLoad(const PolicyOptions& options)
      : metric_(options.least_load_metric), random_(options.seed) {}

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

PolicyEntry LeastLoadEntry() {
  return {
      .name = "least_load",
      .aliases = {"least_loaded", "least_request"},
      .may_be_fallback = true,
      .options = {"least_load_metric"},
      .make = Make<LeastLoad>};
}

}  // namespace vllm_router
