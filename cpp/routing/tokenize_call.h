// The call that asks a worker for the token ids of a request's prompt, POST /tokenize, from both sides: what is asked is
// made of the members of the client's body as they stand there, and the answer is read strictly.
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

// Longer prompts than any engine takes; an answer of so many ids has some 7 MB.
inline constexpr size_t kMaxTokenizedIds = 1024 * 1024;

// Of a body whose prompt has been read (RoutingText::asks says which form it has). nullopt when the prompt is not found.
std::optional<std::string> WriteTokenizeCall(std::string_view body, bool padded, bool is_chat);

// The ids, 1..kMaxTokenizedIds of them. FailedPrecondition says what is wrong with any other answer.
StatusOr<std::vector<uint32_t>> ParseTokenizeResponse(std::string_view answer);

}  // namespace vllm_router
