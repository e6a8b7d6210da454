// Admission: who sends a request and which priority class it has, for logs, receipts, spans and metrics. It delays nothing.
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kAdmissionFeature;
extern const Step kIdentifyStep;
extern const Step kClassStep;

}  // namespace vllm_router
