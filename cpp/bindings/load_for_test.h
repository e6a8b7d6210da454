// LoadForTest: sets the counters of a load that otherwise only tickets write. For tests.
#pragma once

#include <cstdint>

#include "worker/worker_load.h"

namespace vllm_router {

struct LoadForTest {
  static void Set(WorkerLoad& load, const LoadCounts& counts) {
    load.open_requests_ = static_cast<int32_t>(counts.requests);
    load.waiting_requests_ = static_cast<int32_t>(counts.waiting);
    load.queued_prefill_ = counts.queued_prefill;
    load.expected_output_ = counts.expected_output;
    load.context_ = counts.context;
  }
};

}  // namespace vllm_router
