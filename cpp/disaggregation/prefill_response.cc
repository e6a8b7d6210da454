#include "disaggregation/prefill_response.h"

#include <algorithm>
#include <array>
#include <vector>

#include "disaggregation/transfer_parameters.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

// finish_reason of completions and chats, stop_reason of messages, status of responses.
constexpr std::array<std::string_view, 9> kFinished = {"length",     "stop",      "tool_calls",
                                                       "max_tokens", "end_turn",  "stop_sequence",
                                                       "tool_use",   "completed", "incomplete"};

bool IsFinished(const BodyMap::Member* reason) {
  if (reason == nullptr) return true;  // this API has none
  return std::ranges::any_of(kFinished, [reason](std::string_view one) { return reason->Holds(one); });
}

// kWhole: nothing is wrong with them.
HandOver CheckChoices(const BodyMap::Member& choices) {
  if (choices.type == BodyMap::Type::kNull) return HandOver::kWhole;
  const std::optional<std::vector<std::string_view>> elements = JsonElements(choices.value, 2);
  if (!elements || elements->empty()) return HandOver::kUnfinished;
  if (elements->size() > 1) return HandOver::kSeveral;
  const BodyMap choice = BodyMap::Read(elements->front());
  if (!choice.ok()) return HandOver::kNotJson;
  return IsFinished(choice.Find("finish_reason")) ? HandOver::kWhole : HandOver::kUnfinished;
}

HandOver CheckEnd(const BodyMap& response) {
  if (const BodyMap::Member* choices = response.Find("choices")) return CheckChoices(*choices);
  const bool finished = IsFinished(response.Find("stop_reason")) && IsFinished(response.Find("status"));
  return finished ? HandOver::kWhole : HandOver::kUnfinished;
}

// The parameters themselves; `raw` is set for kWhole.
HandOver CheckTransferParameters(
    const BodyMap& response, const KvConnector& connector, PrefillResponse* out) {
  const BodyMap::Member* const found = response.Find(kTransferParameters);
  if (found == nullptr) return HandOver::kAbsent;
  if (response.Count(kTransferParameters) > 1) return HandOver::kSeveral;
  if (found->type == BodyMap::Type::kNull) return HandOver::kNull;
  if (found->type != BodyMap::Type::kObject) return HandOver::kHalf;
  const BodyMap parameters = BodyMap::Read(found->value);
  if (!connector.IsWhole(parameters)) return HandOver::kHalf;
  out->pushes = connector.IsOfPush(parameters);
  out->parameters = found->value;
  return HandOver::kWhole;
}

}  // namespace

std::string_view HandOverName(HandOver hand_over) {
  switch (hand_over) {
    case HandOver::kWhole:
      return "whole";
    case HandOver::kNotUsed:
      return "not_used";
    case HandOver::kNotJson:
      return "not_json";
    case HandOver::kAbsent:
      return "absent";
    case HandOver::kNull:
      return "null";
    case HandOver::kHalf:
      return "half";
    case HandOver::kSeveral:
      return "several";
    case HandOver::kUnfinished:
      return "unfinished";
  }
  return "";
}

PrefillResponse ReadPrefillResponse(std::string_view response, const KvConnector& connector) {
  PrefillResponse out;
  if (!connector.traits().hands_parameters) {
    out.hand_over = HandOver::kNotUsed;
    return out;
  }
  const BodyMap map = BodyMap::Read(response);
  out.hand_over = map.ok() ? CheckTransferParameters(map, connector, &out) : HandOver::kNotJson;
  if (out.hand_over == HandOver::kWhole) out.hand_over = CheckEnd(map);
  if (out.hand_over != HandOver::kWhole) {
    out.parameters.reset();
    out.pushes = false;
  }
  return out;
}

}  // namespace vllm_router
