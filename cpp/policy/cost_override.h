// CostOverride: what a request sets of its policy's cost for itself, in place of the options of these names.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

struct CostOverride {
  std::optional<double> overlap_weight;
  std::optional<double> router_temperature;
  std::optional<double> shared_cache_multiplier;

  // InvalidArgument for a name of none of them, and for a value that the option could not have.
  Status Set(std::string_view name, double value);
};

}  // namespace vllm_router
