// The responses of /inference/v1/generate: token ids and, with `"output_mode": "text"`, their text. Pure; any thread.
#pragma once

#include <memory>
#include <string>

#include "simulation/openai_api.h"

namespace vllm_router {

void WriteGenerated(
    const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out);
std::unique_ptr<ResponseStream> StreamGenerated(const SimRequest& request, const AnswerStamp& stamp);

}  // namespace vllm_router
