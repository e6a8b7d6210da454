// The endpoint picker: a gateway keeps the connections of its clients, and this router says which worker gets each request
// (Envoy's ext_proc, as the Gateway API Inference Extension uses it). A feature (proxy/admin/feature.h).
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kPickerFeature;
extern const Step kPickerOnlyStep;

}  // namespace vllm_router
