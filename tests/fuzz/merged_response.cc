// The responses of two hostile workers, prefill's up to the first NUL: a merged one is JSON of which the members that
// are not merged mean what they mean in decode's, says Boost.
#include "disaggregation/merged_response.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "fuzz.h"

namespace {

namespace json = boost::json;
using namespace vllm_router;

constexpr std::array kMerged = {"prompt_logprobs", "choices", "meta_info", "usage"};

bool IsMerged(json::string_view name) {
  return std::ranges::any_of(kMerged, [name](const char* one) { return name == one; });
}

bool Parse(std::string_view text, json::value* value) {
  json::parse_options options;
  options.max_depth = 2000;
  boost::system::error_code error;
  *value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  return !error;
}

void Check(const std::optional<std::string>& merged, std::string_view decode) {
  if (!merged) return;
  json::value before;
  json::value after;
  if (!Parse(decode, &before)) return;  // what the two parsers do not agree on, such as deep nesting
  FUZZ_CHECK(Parse(*merged, &after));
  if (!before.is_object()) return;
  for (const json::key_value_pair& member : before.as_object()) {
    const json::value* const found = after.as_object().if_contains(member.key());
    FUZZ_CHECK(found != nullptr && (IsMerged(member.key()) || *found == member.value()));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = AsText(data, size);
  const size_t end = std::min(text.find('\0'), text.size());
  const std::string_view prefill = text.substr(0, end);
  const std::string_view decode = text.substr(std::min(end + 1, text.size()));
  for (const PdRoute route : {PdRoute::kCompletions, PdRoute::kChat, PdRoute::kGenerate}) {
    Check(MergeResponses(route, prefill, decode), decode);
    WantsMerge(route, BodyMap::Read(decode));
  }
  Check(MergeUsage(prefill, decode), decode);
  return 0;
}
