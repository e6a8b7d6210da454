// The header x-vllm-router-override, by which a client sets parts of the policy's cost for its request:
//
//   x-vllm-router-override: {"router_temperature": 0.5, "overlap_weight": 2}
#pragma once

#include <string_view>

#include "base/status.h"
#include "policy/cost_override.h"

namespace vllm_router {

inline constexpr std::string_view kCostOverrideHeader = "x-vllm-router-override";

// InvalidArgument for what is not a JSON object of numbers, and as CostOverride::Set.
StatusOr<CostOverride> ParseCostOverride(std::string_view value);

}  // namespace vllm_router
