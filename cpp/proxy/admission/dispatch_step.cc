// Where there are priority classes, a request for a model gets a worker with room for its class, or waits for one. Where
// there are none, it costs a comparison.
#include <algorithm>
#include <memory>

#include "base/limits.h"
#include "hashing/hash.h"
#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_dispatch.h"
#include "proxy/admission/class_pools.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "response_cache/cacheability.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

uint64_t DispatchBytesNeeded(const Request& request) {
  return MayCompute(request) && ClassSettingsOf(request) != nullptr ? kRoutedBodyBytes : 0;
}

bool IsWhole(const Request& request) { return !WantsStream(BodyMap::Read(request.body->held())); }

ClassDispatch::Claim ClaimOf(const Request& request, const AdmissionSettings& settings) {
  ClassDispatch::Claim claim;
  claim.of_class = ClassOf(request);
  if (const IdentityInfo* const identity = request.info.identity.get()) {
    claim.tenant = Xxh3(identity->tenant);
    claim.weight = settings.WeightOf(identity->tenant);
  }
  claim.prompt = PromptTokensOf(request, request.key.prompt_tokens > 1);
  claim.output = request.key.expected_output;
  if (request.fully_read() && !request.stream_body) claim.is_whole = &IsWhole;
  return claim;
}

bool MustWait(Request& request) {
  const std::shared_ptr<const AdmissionSettings> settings = ClassSettingsOf(request);
  if (settings == nullptr || !MayCompute(request)) return false;
  auto& thread = *request.thread.features.Find<ThreadClasses>();
  ClassDispatch& dispatch =
      request.state.Emplace<ClassDispatch>(request, thread, settings, ClaimOf(request, *settings));
  return !dispatch.TryPass();
}

Task<Verdict> WaitForRoom(Request& request) { return request.state.Find<ClassDispatch>()->Run(); }

void FollowResponse(Request& request, const ResponseHead& /*response*/) {
  if (auto* const dispatch = request.state.Find<ClassDispatch>()) dispatch->Responded();
}

// Of one that has ended.
uint64_t ActualCost(const RequestInfo& info, const ClassDispatch& dispatch) {
  if (info.worker == nullptr) return 0;
  if (!info.prompt_tokens || !info.completion_tokens) return dispatch.CostSeen(info.events);
  const uint64_t cached = std::min(*info.prompt_tokens, info.cached_tokens.value_or(0));
  return CostOf(*info.prompt_tokens - cached, *info.completion_tokens);
}

void EndDispatch(Request& request) {
  if (auto* const dispatch = request.state.Find<ClassDispatch>())
    dispatch->End(ActualCost(request.info, *dispatch));
}

}  // namespace

extern constexpr Step kDispatchStep = {
    .name = "dispatch",
    .begin = &MustWait,
    .run = &WaitForRoom,
    .needs = &DispatchBytesNeeded,
    .on_response = &FollowResponse,
    .on_end = &EndDispatch};

}  // namespace vllm_router
