// Conditions of the fleet: what each worker did in the last minute, and what is wrong, in sentences: GET /admin/status, the
// metric `condition`, the log, and `recent` of each worker in GET /workers.
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kConditionsFeature;
extern const Step kOutcomesStep;

}  // namespace vllm_router
