// The responses of /v1/chat/completions and /v1/completions. Pure; any thread.
#pragma once

#include <memory>
#include <string>

#include "simulation/openai_api.h"

namespace vllm_router {

void WriteChat(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out);
std::unique_ptr<ResponseStream> StreamChat(const SimRequest& request, const AnswerStamp& stamp);

}  // namespace vllm_router
