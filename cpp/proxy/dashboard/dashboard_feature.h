// The dashboard: GET /dashboard, a page that shows the fleet as it is now, and the events that it reads. Read only.
#pragma once

namespace vllm_router {

struct Feature;

extern const Feature kDashboardFeature;

}  // namespace vllm_router
