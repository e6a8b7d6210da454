// Hold-out: some conversations are routed by a baseline instead of the policy, so that the difference shows what the policy
// is worth (GET /admin/holdout).
#pragma once

#include "proxy/thread/delegated_requests.h"

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kHoldoutFeature;
extern const Step kHoldoutStep;
extern const DelegatedRequests::Hooks kDelegatedTurns;  // the same for requests that workers get from others

}  // namespace vllm_router
