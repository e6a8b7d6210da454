// A shared pool: a Mooncake store in which the engines keep pages of prompts, which decisions may count
// (--shared-cache-type).
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kSharedPoolFeature;
extern const Step kSharedPoolStep;

}  // namespace vllm_router
