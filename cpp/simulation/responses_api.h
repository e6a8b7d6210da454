// The responses of /v1/responses: items of text and of function calls. Pure; any thread.
//
// Over a WebSocket the same events are messages, and a request brings what is new in the conversation
// (responses_session.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "simulation/openai_api.h"

namespace vllm_router {

void WriteResponse(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out);
std::unique_ptr<ResponseStream> StreamResponse(const SimRequest& request, const AnswerStamp& stamp);

// The response's items, separated by commas: its `output` without brackets.
void WriteOutputItems(const SimRequest& request, std::string_view request_id, std::string* out);

}  // namespace vllm_router
