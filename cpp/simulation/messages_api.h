// The responses of Anthropic's /v1/messages: content blocks of text and of tool use. Pure; any thread.
#pragma once

#include <memory>
#include <string>

#include "simulation/openai_api.h"

namespace vllm_router {

void WriteMessage(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out);
std::unique_ptr<ResponseStream> StreamMessage(const SimRequest& request, const AnswerStamp& stamp);

}  // namespace vllm_router
