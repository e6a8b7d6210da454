// The response of a hostile prefill worker: what decode is handed is an object with all that decode reads, says Boost.
#include "disaggregation/prefill_response.h"

#include <boost/json.hpp>
#include <string_view>
#include <vector>

#include "fuzz.h"

namespace {

std::vector<const char*> NeededBy(std::string_view connector, bool pushes) {
  if (pushes) return {"remote_engine_id", "remote_host", "remote_port"};
  if (connector == "moriio") return {"remote_engine_id", "remote_block_ids"};
  if (connector == "p2p_nccl") return {};
  return {"remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids"};
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  namespace json = boost::json;
  const std::string_view response = AsText(data, size);
  for (const KvConnector* const connector : KvConnectors()) {
    const PrefillResponse told = ReadPrefillResponse(response, *connector);
    FUZZ_CHECK(told.parameters.has_value() == (told.hand_over == HandOver::kWhole));
    if (!told.parameters) continue;
    FUZZ_CHECK(Inside(*told.parameters, response));
    json::parse_options options;
    options.max_depth = 2000;
    boost::system::error_code error;
    const json::value value =
        json::parse(json::string_view(told.parameters->data(), told.parameters->size()), error, {}, options);
    if (error) continue;  // damaged inside: decode rejects it
    FUZZ_CHECK(!told.pushes || ReadPushIdentity(BodyMap::Read(*told.parameters)));
    for (const char* const name : NeededBy(connector->traits().name, told.pushes)) {
      const json::value* const found = value.as_object().if_contains(name);
      FUZZ_CHECK(found != nullptr && !found->is_null());
    }
  }
  return 0;
}
