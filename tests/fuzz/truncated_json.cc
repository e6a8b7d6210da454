// The cut-off body of a hostile client: what is made of it is itself whole, and a cut of what is JSON is JSON, says Boost.
#include "routing/truncated_json.h"

#include <boost/json.hpp>
#include <string>

#include "fuzz.h"

namespace {

bool IsObject(std::string_view text) {
  namespace json = boost::json;
  json::parse_options options;
  options.max_depth = 2000;  // CloseJson() takes 1,000
  boost::system::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  return !error && value.is_object();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  const std::optional<JsonRepair> beginning = CloseJson(text);
  if (!beginning.has_value()) return 0;
  FUZZ_CHECK(beginning->keep > 0 && beginning->keep <= size);
  const std::string whole = std::string(text.substr(0, beginning->keep)) + beginning->closing;
  const std::optional<JsonRepair> again = CloseJson(whole);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(again->keep == whole.size() && again->closing.empty());

  if (!IsObject(text)) return 0;
  const std::string_view half = text.substr(0, size / 2);
  const std::optional<JsonRepair> cut = CloseJson(half);
  if (!cut.has_value()) return 0;  // blanks
  const std::string cut_whole = std::string(half.substr(0, cut->keep)) + cut->closing;
  FUZZ_CHECK(IsObject(cut_whole));
  return 0;
}
