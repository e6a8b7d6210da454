// Admission: who sends a request and which priority class it has, for logs, receipts, spans and metrics. With
// --admission-config requests wait for a worker with room for their class, and tenants have limits; with
// --program-admission agents' programs wait for room in the workers' KV caches.
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kAdmissionFeature;
extern const Step kIdentifyStep;
extern const Step kTenantLimitStep;
extern const Step kClassStep;
extern const Step kEnginePriorityStep;
extern const Step kTenantTokensStep;
extern const Step kProgramStep;
extern const Step kDispatchStep;
extern const Step kEvictionStep;
extern const Step kProgramGateStep;

}  // namespace vllm_router
