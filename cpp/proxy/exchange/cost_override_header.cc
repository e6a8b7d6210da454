#include "proxy/exchange/cost_override_header.h"

#include <boost/json.hpp>

#include "base/text.h"

namespace vllm_router {
namespace json = boost::json;

StatusOr<CostOverride> ParseCostOverride(std::string_view value) {
  boost::system::error_code error;
  const json::value parsed = json::parse(json::string_view(value.data(), value.size()), error);
  if (error || !parsed.is_object()) {
    return absl::InvalidArgumentError(
        Concat(kCostOverrideHeader, R"( is not a JSON object; write it as {"router_temperature": 0.5})"));
  }
  CostOverride made;
  for (const json::key_value_pair& member : parsed.get_object()) {
    const std::string_view name(member.key().data(), member.key().size());
    const bool is_number = member.value().is_number();
    const Status set = made.Set(name, is_number ? member.value().to_number<double>() : 0);
    if (!set.ok()) {
      return absl::InvalidArgumentError(Concat(kCostOverrideHeader, ": ", std::string(set.message())));
    }
    if (!is_number) {
      return absl::InvalidArgumentError(
          Concat(kCostOverrideHeader, ": ", name, " is not a number; write it as {\"", name, "\": 0.5}"));
    }
  }
  return made;
}

}  // namespace vllm_router
