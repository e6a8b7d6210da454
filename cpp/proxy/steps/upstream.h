// SendToWorkers: what the step `upstream` does, for a step behind it that has edited the request and sends it again. The
// attempts before are over.
#pragma once

#include "net/task.h"
#include "proxy/exchange/step.h"

namespace vllm_router {

struct Request;

Task<Verdict> SendToWorkers(Request& request);

}  // namespace vllm_router
