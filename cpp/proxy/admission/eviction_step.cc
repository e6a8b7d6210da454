// Where a class may be evicted (admission/evictables.h), its requests and those of the highest class take part in evictions.
// Else it costs a comparison.
#include <memory>

#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_dispatch.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/eviction.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

bool TakePart(Request& request) {
  const std::shared_ptr<const AdmissionSettings> settings = ClassSettingsOf(request);
  if (settings == nullptr || !settings->evicts() || request.workers.gate == nullptr) return false;
  const PriorityClass of_class = ClassOf(request);
  if (of_class != PriorityClass::kInteractive && !settings->of(of_class).evict) return false;
  auto* const dispatch = request.state.Find<ClassDispatch>();
  if (dispatch == nullptr) return false;
  auto& thread = *request.thread.features.Find<ThreadClasses>();
  request.workers.gate = &request.state.Emplace<Eviction>(request, thread, *dispatch);
  return false;
}

void Withdraw(Request& request) {
  if (auto* const eviction = request.state.Find<Eviction>()) eviction->Withdraw();
}

void WithdrawAtResponse(Request& request, const ResponseHead& /*response*/) { Withdraw(request); }

}  // namespace

extern constexpr Step kEvictionStep = {
    .name = "eviction", .begin = &TakePart, .on_response = &WithdrawAtResponse, .on_end = &Withdraw};

}  // namespace vllm_router
