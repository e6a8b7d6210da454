// Hold-out: some conversations are routed by a baseline instead of the policy, so that the difference shows what the policy
// is worth (GET /admin/holdout).
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kHoldoutFeature;
extern const Step kHoldoutStep;

}  // namespace vllm_router
