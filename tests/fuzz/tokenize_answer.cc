// What a hostile worker answers to POST /tokenize: no ids that another JSON parser would not find there.
#include <cstring>

#include <boost/json.hpp>

#include "fuzz.h"
#include "routing/tokenize_call.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  namespace json = boost::json;
  const std::string_view answer = AsText(data, size);
  const StatusOr<std::vector<uint32_t>> ids = ParseTokenizeResponse(answer);
  if (!ids.ok()) return 0;
  FUZZ_CHECK(!ids->empty() && ids->size() <= kMaxTokenizedIds);
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = 2048;
  const json::value value = json::parse(json::string_view(answer.data(), answer.size()), error, {}, options);
  // Boost.JSON has no room for such an exponent, not even behind a zero; as JSON goes it may have any length.
  if (error == json::error::exponent_overflow) return 0;
  FUZZ_CHECK(!error && value.is_object());
  const json::array& tokens = value.as_object().at("tokens").as_array();
  FUZZ_CHECK(tokens.size() == ids->size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    FUZZ_CHECK(tokens[i].to_number<uint64_t>() == (*ids)[i]);
  }
  return 0;
}
