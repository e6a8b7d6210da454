// PdRequest: what a request is for a fleet whose workers have stages: its route, the fleet's connector, where its members stand, its plan, and the
// copy for a plan with one worker. It views the request's body, which is whole.
#pragma once

#include "disaggregation/pd_plan.h"
#include "routing/body_map.h"
#include "routing/body_patch.h"

namespace vllm_router {

struct PdRequest {
  PdRoute route;
  const KvConnector* connector;
  BodyMap body;
  PdPlan plan;
  SplicedBody copy = {};  // kLocal and kSingle, if something was removed; else empty
};

}  // namespace vllm_router
