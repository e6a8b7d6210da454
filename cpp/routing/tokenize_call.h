// The call to a worker for the token ids of a request's prompt, POST /tokenize, from both sides. The
// call's body is made of the unchanged members of the client's body, and the response is read strictly.
//
//   {"model": "m", "messages": [...], "tools": [...]}  -->  {"model":"m","messages":[...],"tools":[...],
//                                                            "add_generation_prompt":true}
//   {"model": "m", "prompt": "Hello"}                  -->  {"model":"m","prompt":"Hello"}
//   {"tokens": [9906], "count": 1, ...}                -->  9906
//
// vLLM's and SGLang's shapes. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace vllm_router {

// More than any engine takes; a response with so many ids has some 7 MB.
inline constexpr size_t kMaxTokenizedIds = 1024 * 1024;

// For a body whose prompt has been read (RoutingText::asks gives its form). nullopt when the prompt is
// not found.
std::optional<std::string> WriteTokenizeCall(std::string_view body, bool padded, bool is_chat);

// The ids, 1..kMaxTokenizedIds of them. FailedPrecondition, with the reason, for any other response.
StatusOr<std::vector<uint32_t>> ParseTokenizeResponse(std::string_view answer);

}  // namespace vllm_router
