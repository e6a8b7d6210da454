// WorkerGate: which workers may have the first attempt of a request, where a step says so (EligibleWorkers::gate). Later
// attempts have all workers: a retry is not admitted again.
//
//   SELECT       Closed(fleet) -> the policy chooses among the others; all if none is left
//                Chosen()      -> the worker's load counts the request from now on; of later attempts, too
//   no place     WaitAgain()   -> all workers have --max-worker-requests, or it was evicted from its worker
//
// Belongs to one request. One thread.
#pragma once

#include <cstdint>

#include <absl/container/inlined_vector.h>

#include "net/task.h"
#include "proxy/exchange/step.h"

namespace vllm_router {

class FleetView;
class Ticket;

class WorkerGate {
 public:
  using Positions = absl::InlinedVector<uint32_t, 16>;

  virtual ~WorkerGate() = default;
  // Positions in the fleet, ascending; empty: none is closed.
  virtual Positions Closed(const FleetView& fleet) const = 0;
  // An attempt has its worker; null: there is none to be chosen.
  virtual void Chosen(const Ticket* ticket) = 0;
  // Until the request may be tried again; kEnd: the client has a response.
  virtual Task<Verdict> WaitAgain() = 0;
};

}  // namespace vllm_router
