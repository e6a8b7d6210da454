// The call to a worker for the token ids of a request's prompt, from both sides. The body of a call to /tokenize is made
// of the unchanged members of the client's body; a render endpoint gets that body itself, so that the engine converts it
// as it does for the response. The response is read strictly.
//
//   /tokenize             {"model": "m", "messages": [...], "tools": [...]}  -->
//                         {"model":"m","messages":[...],"tools":[...],"add_generation_prompt":true}
//   /tokenize             {"model": "m", "prompt": "Hello"}  -->  {"model":"m","prompt":"Hello"}
//   /v1/messages/render   any body  -->  the same
//   {"tokens": [9906], "count": 1, ...}, {"token_ids": [9906], ...}  -->  9906
//
// vLLM's shapes, and SGLang's of /tokenize. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "policy/routing_key.h"

namespace vllm_router {

// More than any engine takes; a response with so many ids has some 7 MB.
inline constexpr size_t kMaxTokenizedIds = 1024 * 1024;

// The endpoints, and which of them a call goes to. Some workers have only the first.
inline constexpr std::array<std::string_view, 3> kTokenEndpoints = {
    "/tokenize", "/v1/messages/render", "/v1/responses/render"};
constexpr size_t TokenEndpointOf(TokenCall call) {
  return call == TokenCall::kMessages ? 1 : call == TokenCall::kResponses ? 2 : 0;
}

// For a body whose prompt has been read (RoutingText::token_call). nullopt when the prompt is not found.
std::optional<std::string> WriteTokenizeCall(std::string_view body, bool padded, TokenCall call);

// What a response other than 200 is about: this request, or its credentials; the endpoint, which the worker does not have
// or serve; or the worker. An engine may put a web framework's "Not Found" into an error of OpenAI's form; vLLM's render
// endpoints are 403 without --enable-scale-out.
enum class TokenizeFault : uint8_t { kRequest, kEndpoint, kWorker };
TokenizeFault FaultOf(int status, std::string_view body);

// The ids, 1..kMaxTokenizedIds of them. FailedPrecondition, with the reason, for any other response.
StatusOr<std::vector<uint32_t>> ParseTokenizeResponse(std::string_view answer);

}  // namespace vllm_router
