// The endpoint picker: a gateway keeps the connections of its clients, and this router says which worker gets each request
// (Envoy's ext_proc, as the Gateway API Inference Extension uses it). A feature (proxy/admin/feature.h).
#pragma once

namespace vllm_router {

struct Feature;

extern const Feature kPickerFeature;

}  // namespace vllm_router
