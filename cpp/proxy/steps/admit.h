// The permit that a request needs to go on: one of --max-concurrent-requests.
#pragma once

#include "proxy/exchange/step.h"

namespace vllm_router {

// Every eligible worker has its maximum of requests: gives the permit back, and waits for it at the old place.
Task<Verdict> WaitForWorker(Request& request);

}  // namespace vllm_router
