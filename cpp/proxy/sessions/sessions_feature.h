// Sessions: which worker each conversation that clients name is on, for WebSockets, which say no prompt, and for people
// (GET /admin/sessions).
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kSessionsFeature;
extern const Step kSessionStep;

}  // namespace vllm_router
