// What happens around the circuit breakers of workers (worker/circuit_breaker.h): what is due is admitted, what has moved is
// logged, counted and published in the fleet's next snapshot, and requests that have no admitting worker left go to
// workers in panic mode. Any thread.
#pragma once

#include <memory>
#include <string_view>

#include "proxy/thread/io_thread.h"
#include "worker/circuit_breaker.h"

namespace vllm_router {

// Lets open breakers that are due admit a probe, and ends rests that are over. To be called before somebody is chosen, or
// waited for, from a fleet that is not steady. Any thread's thread.
void AdmitHalfOpen(IoThread& thread, const FleetView& fleet);

// Panic mode: requests go to workers whose circuit breakers do not admit them, since no other does. Logged once when it
// begins and once when a closed breaker has been found again. Any thread's thread.
void BeginPanic(IoThread& thread, const FleetView& fleet);
void EndPanic(IoThread& thread, const Worker& found);

// Tells log and metrics, and the fleet's next snapshot, that a breaker has moved. Any thread's thread.
void OnBreakerStateChange(
    IoThread& thread, const std::shared_ptr<Worker>& worker, BreakerChange change, std::string_view why);

// Settles `pass` with a failure of `worker` that the request may have caused: a 5xx, a lost connection, a timeout after it
// was sent. So it opens a closed breaker only while MayEject(); what shows that the worker cannot be reached is not held to
// that. At the response's head (or instead of it), or at its end. Any thread's thread.
enum class FailedAt : uint8_t { kHead, kEnd };
void RecordWorkerFailure(
    IoThread& thread, const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at,
    std::string_view why);

}  // namespace vllm_router
