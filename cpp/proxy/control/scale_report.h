// ScaleReport: what autoscalers are told, as ScaleService last worked it out. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "routing/scale_signals.h"

namespace vllm_router {

struct ScaleReport {
  struct Model {
    std::string name;    // empty: the whole fleet, of which no models are known
    uint32_t ready = 0;  // replicas: hosts, with all ranks of their engine
    uint32_t pending = 0;
    uint32_t draining = 0;
    int64_t requests = 0;  // under way, from all routers
    int64_t queued = 0;
    std::optional<double> prefill_seconds;
    ScaleReading reading;
    std::vector<std::string> removable;  // URLs of ready replicas beyond the desired ones, the idlest first
  };
  std::string awaited;  // sources that have not declared a list yet, so that nothing is known; else empty
  std::vector<Model> models;
};

}  // namespace vllm_router
