// Actions around the workers' circuit breakers (worker/circuit_breaker.h): probes are admitted when due;
// state changes are logged, counted and published in the fleet's next snapshot; requests without an
// admitting worker go to workers in panic mode. Any thread.
#pragma once

#include <memory>
#include <string_view>

#include "worker/circuit_breaker.h"

namespace vllm_router {

class FleetView;
struct IoThread;
struct Worker;

// Lets open breakers that are due admit a probe, and ends back-offs that are over. Call it before
// choosing or awaiting a worker of a fleet that is not all admitting. Any thread.
void AdmitHalfOpen(IoThread& thread, const FleetView& fleet);

// Panic mode: requests go to workers whose circuit breakers do not admit them, since no other does.
// Logged once when it begins and once when a closed breaker is found again. Any thread.
void BeginPanic(IoThread& thread, const FleetView& fleet);
void EndPanic(IoThread& thread, const Worker& found);

// Logs and counts a breaker's change of state, and publishes the fleet's next snapshot. Any thread.
void OnBreakerStateChange(
    IoThread& thread, const std::shared_ptr<Worker>& worker, BreakerChange change, std::string_view why);

// Settles `pass` with a failure of `worker` that the request may have caused: a 5xx, a lost connection,
// a timeout after it was sent. So it opens a closed breaker only while MayEject(). Failures that show
// the worker to be unreachable are not limited by that. Called at the response's head (or instead of
// it), or at its end. Any thread.
enum class FailedAt : uint8_t { kHead, kEnd };
void RecordWorkerFailure(
    IoThread& thread, const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at,
    std::string_view why);

}  // namespace vllm_router
