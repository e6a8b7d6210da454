#include "proxy/disaggregation/kept_legs.h"

#include "proxy/api/pd_settings.h"
#include "proxy/disaggregation/pd_exchange.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kKeepCompleteMs = 1'000;  // how long prefill is kept behind a complete response

void OnGraceOver(void* owner) { static_cast<PdExchange*>(owner)->Post({.type = PdEventType::kGraceOver}); }

void OnKeepOver(void* owner) { static_cast<PdExchange*>(owner)->Post({.type = PdEventType::kKeepOver}); }

}  // namespace

void KeptLegs::KeepDecode(const StageLeg* leg) {
  if (settings_.grace_ms == 0 || leg == nullptr || !leg->request().sender().sent())
    return OnGraceOver(&owner_);
  decode_.Arm(thread_.loop.timers(), settings_.grace_ms, &OnGraceOver, &owner_);
}

void KeptLegs::KeepPrefill(const StageLeg* leg, bool behind_complete_response) {
  if (leg == nullptr || !leg->runs()) return OnKeepOver(&owner_);
  const int64_t limit_ms = behind_complete_response ? kKeepCompleteMs : settings_.drain_ms;
  prefill_.Arm(thread_.loop.timers(), limit_ms, &OnKeepOver, &owner_);
}

}  // namespace vllm_router
