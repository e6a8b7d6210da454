// ChooseAmong: a worker for a request that may go to some workers only, with its load reserved and its circuit breaker's
// pass; the rules are WorkerChoice's, of a first attempt.
//
//   eligible, passes the filter, its breaker admits, not in back-off (Retry-After)      the policy's choice among these
//   the same, in back-off                                                               if there is none of the former
//   passes the filter, its breaker is open                                              else the one that opened first
//
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proxy/exchange/worker_choice.h"

namespace vllm_router {

class FleetView;
struct BreakerOptions;
struct IoThread;
struct RoutingKey;
struct Worker;

using WorkerFilter = std::function<bool(const Worker& worker)>;

struct SubsetChoice {
  std::optional<WorkerChoice::Selected> selected = {};  // empty: there is none
  bool all_full = false;     // and the reason is that all have --max-worker-requests
  std::string message = {};  // of the error, without a choice
};

// `fleet`: the newest one for the request's model.
SubsetChoice ChooseAmong(
    IoThread& thread, const RoutingKey& key, const BreakerOptions& breaker, const FleetView& fleet,
    const WorkerFilter& passes);

}  // namespace vllm_router
