#include "policy/cost_override.h"

#include <array>
#include <utility>

#include "base/option_spec.h"
#include "policy/policy_options.h"

namespace vllm_router {

Status CostOverride::Set(std::string_view name, double value) {
  using Member = std::optional<double> CostOverride::*;
  static constexpr std::array<std::pair<std::string_view, Member>, 3> kMembers = {{
      {"overlap_weight", &CostOverride::overlap_weight},
      {"router_temperature", &CostOverride::router_temperature},
      {"shared_cache_multiplier", &CostOverride::shared_cache_multiplier},
  }};
  for (const auto& [known, member] : kMembers) {
    if (known != name) continue;
    static const PolicyOptions usual;
    const OptionSpec<PolicyOptions>& option = *FindOption(PolicyOptionTable(), name);
    ROUTER_RETURN_IF_ERROR(
        CheckRange(name, option.range, option.member.scale, value, option.member.get(usual)));
    this->*member = value;
    return absl::OkStatus();
  }
  std::array<std::string_view, kMembers.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kMembers[i].first;
  return WordIsUnknown("override", name, names);
}

}  // namespace vllm_router
