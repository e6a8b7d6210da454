#include "proxy/server/features.h"

#include <array>

#include "proxy/admin/feature.h"
#include "proxy/admission/admission_feature.h"
#include "proxy/conditions/conditions_feature.h"
#include "proxy/continuation/continuation_feature.h"
#include "proxy/dashboard/dashboard_feature.h"
#include "proxy/disaggregation/disaggregation_feature.h"
#include "proxy/events/events_feature.h"
#include "proxy/holdout/holdout_feature.h"
#include "proxy/peer_sync/peer_sync_feature.h"
#include "proxy/picker/picker_feature.h"
#include "proxy/receipts/receipts_feature.h"
#include "proxy/response_cache/response_cache_feature.h"
#include "proxy/sessions/sessions_feature.h"
#include "proxy/shared_pool/shared_pool_feature.h"
#include "proxy/tracing/tracing_feature.h"

namespace vllm_router {

std::span<const Feature* const> Features() {
  static constexpr std::array kFeatures = {
      &kDisaggregationFeature, &kEventsFeature,      &kResponseCacheFeature, &kSharedPoolFeature,
      &kSessionsFeature,       &kReceiptsFeature,    &kPeerSyncFeature,      &kConditionsFeature,
      &kTracingFeature,        &kHoldoutFeature,     &kDashboardFeature,     &kAdmissionFeature,
      &kPickerFeature,         &kContinuationFeature};
  return kFeatures;
}

}  // namespace vllm_router
