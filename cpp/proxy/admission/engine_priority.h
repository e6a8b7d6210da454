// PriorityEdits: the member `priority` in a body, by which an engine orders its own queue: the class's value, unless the client
// may keep its own (admission/admission_settings.h, EnginePriority).
//
//   {"model":"m","prompt":"hi"}                batch, vLLM   ->  {"model":"m","priority":10,"prompt":"hi"}
//   {"prompt":"hi","priority":-999}            clamp         ->  {"prompt":"hi","priority":10}
//
// 0 is every engine's default and is not inserted. A body that is no object of JSON stays as it is. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "admission/admission_settings.h"
#include "routing/body_patch.h"

namespace vllm_router {

class BodyMap;

// The edits, whose texts are views of `text`.
std::vector<BodyInsertion> PriorityEdits(
    const BodyMap& body, const EnginePriority& engine, PriorityClass priority_class, std::string* text);

}  // namespace vllm_router
