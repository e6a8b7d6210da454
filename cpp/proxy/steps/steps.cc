#include "proxy/steps/steps.h"

#include <array>

#include "proxy/admission/admission_feature.h"
#include "proxy/conditions/conditions_feature.h"
#include "proxy/continuation/continuation_feature.h"
#include "proxy/disaggregation/disaggregation_feature.h"
#include "proxy/events/events_feature.h"
#include "proxy/holdout/holdout_feature.h"
#include "proxy/picker/picker_feature.h"
#include "proxy/receipts/receipts_feature.h"
#include "proxy/response_cache/response_cache_feature.h"
#include "proxy/sessions/sessions_feature.h"
#include "proxy/shared_pool/shared_pool_feature.h"
#include "proxy/tracing/tracing_feature.h"

namespace vllm_router {

// Each is defined in <name>.cc; those of a feature are together in its room.
extern const Step kHeadStep;
extern const Step kRouteStep;
extern const Step kAuthorizeStep;
extern const Step kValidateStep;
extern const Step kLimitStep;
extern const Step kLocalStep;
extern const Step kBodyStep;
extern const Step kModelStep;
extern const Step kKeyStep;
extern const Step kMessageStep;
extern const Step kQuarantineStep;
extern const Step kAdmitStep;
extern const Step kTokensStep;
extern const Step kStoredResponseStep;
extern const Step kUpstreamStep;
extern const Step kRelayStep;

std::span<const Step* const> Steps() {
  static constexpr std::array kSteps = {
      // From the head alone.
      &kHeadStep, &kTraceStep, &kRouteStep, &kAuthorizeStep, &kIdentifyStep, &kValidateStep, &kPickerOnlyStep,
      &kCacheableStep, &kTenantLimitStep, &kLimitStep, &kLocalStep,
      // With the body.
      &kStagedPathStep, &kBodyStep, &kModelStep, &kClassStep, &kInvalidateStep, &kResponseCacheStep,
      &kKeyStep, &kHoldoutStep, &kReceiptStep, &kSessionStep, &kStagesStep, &kMessageStep,
      &kEnginePriorityStep, &kQuarantineStep, &kTenantTokensStep,
      // With a worker that has room, and a permit.
      &kProgramStep, &kDispatchStep, &kEvictionStep, &kProgramGateStep, &kAdmitStep, &kTokensStep,
      &kSharedPrefixesStep, &kSharedPoolStep, &kStoredResponseStep, &kTokenIdsStep,
      // At workers.
      &kUpstreamStep, &kContinuationStep, &kRelayStep, &kOutcomesStep};
  return kSteps;
}

}  // namespace vllm_router
