// CountFleet sums what all threads have counted of requests: failures, retries, times. What receipts add is not in it. Cost:
// some microseconds per thread and worker. Any thread.
#pragma once

#include <span>

#include "proxy/dashboard/fleet_history.h"

namespace vllm_router {

class Telemetry;

FleetCounts CountFleet(std::span<const Telemetry* const> telemetries);

}  // namespace vllm_router
