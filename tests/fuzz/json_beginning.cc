// The cut-off body of a hostile client: what is made of it is itself whole, and a cut of what is JSON is JSON.
#include "routing/json_beginning.h"

#include <string>

#include "fuzz.h"
#include "routing/request_fields.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  const std::optional<JsonBeginning> beginning = CloseJson(text);
  if (!beginning.has_value()) return 0;
  FUZZ_CHECK(beginning->keep > 0 && beginning->keep <= size);
  const std::string whole = std::string(text.substr(0, beginning->keep)) + beginning->closing;
  const std::optional<JsonBeginning> again = CloseJson(whole);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(again->keep == whole.size() && again->closing.empty());

  if (!ParseRequestFields(text, /*padded=*/false).is_object) return 0;
  const std::string_view half = text.substr(0, size / 2);
  const std::optional<JsonBeginning> cut = CloseJson(half);
  if (!cut.has_value()) return 0;  // blanks
  const std::string cut_whole = std::string(half.substr(0, cut->keep)) + cut->closing;
  FUZZ_CHECK(ParseRequestFields(cut_whole, /*padded=*/false).is_object);
  return 0;
}
