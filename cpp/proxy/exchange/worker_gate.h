// WorkerGate: which workers may have the first attempt of a request, where a step says so (EligibleWorkers::gate). Later
// attempts have all workers: a retry is not admitted again.
//
//   SELECT       Closed(fleet) -> the policy chooses among the others; all if none is left
//                Chosen()      -> the worker's load counts the request from now on
//   no place     WaitAgain()   -> all workers have --max-worker-requests
//
// Belongs to one request. One thread.
#pragma once

#include <cstdint>

#include <absl/container/inlined_vector.h>

#include "net/task.h"
#include "proxy/exchange/step.h"

namespace vllm_router {

class FleetView;

class WorkerGate {
 public:
  using Positions = absl::InlinedVector<uint32_t, 16>;

  virtual ~WorkerGate() = default;
  // Positions in the fleet, ascending; empty: none is closed.
  virtual Positions Closed(const FleetView& fleet) const = 0;
  // The first attempt has its worker, or there is none to be chosen. Calls after the first change nothing.
  virtual void Chosen() = 0;
  // Until the request may be tried again; kEnd: the client has a response.
  virtual Task<Verdict> WaitAgain() = 0;
};

}  // namespace vllm_router
