// HostUses: what each host of a fleet has to do for all routers, and what its cache saved, for programs that embed a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vllm_router {

class FleetView;
class Telemetry;

struct HostUse {
  std::string url;
  int64_t requests = 0;        // open, of all routers
  uint64_t cached_tokens = 0;  // that its cache saved, as its responses to this router told so far
};

// `telemetries`: of all threads. Any thread.
std::vector<HostUse> HostUses(const FleetView& fleet, const std::vector<const Telemetry*>& telemetries);

}  // namespace vllm_router
