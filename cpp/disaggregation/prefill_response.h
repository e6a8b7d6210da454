// ReadPrefillResponse: what the prefill worker's response says of the blocks that it keeps for decode.
//
//   {"choices": [{"finish_reason": "length", …}], "kv_transfer_params": {"remote_block_ids": [[1, 2]], …}}
//                                                                       ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ raw
//
// Decode gets the object whole, as raw bytes, or none at all and computes the prompt itself: that is slower and never
// wrong, while half an object can end its process. The status is the caller's: only a 2xx response is read. Pure; any
// thread. Cost: linear in its length; 1 us for the response of a prompt with 14 blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "disaggregation/kv_connector.h"

namespace vllm_router {

enum class HandOver : uint8_t {
  kWhole,
  kNotUsed,  // the connector hands over no parameters
  kNotJson,  // such as an event stream
  kAbsent,   // workers that never send parameters exist, and their responses are right
  kNull,
  kHalf,        // not an object, or one that lacks something that decode reads
  kSeveral,     // more than one choice or object, so it is not known of which prompt the object is
  kUnfinished,  // the finish reason is neither that of a limit nor that of a stop
};
std::string_view HandOverName(HandOver hand_over);  // a label of metrics

struct PrefillResponse {
  HandOver hand_over = HandOver::kAbsent;
  std::optional<std::string_view> parameters = {};  // kWhole: the raw object, a view into the response
  bool pushes = false;  // of a NIXL worker that pushes; push_identity.h reads who it is
};

// `response`: the body, whole and not compressed.
PrefillResponse ReadPrefillResponse(std::string_view response, const KvConnector& connector);

}  // namespace vllm_router
