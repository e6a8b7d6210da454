// Families of what the fleet is made of: the sources that declare workers, and the models that workers list. Any thread.
#pragma once

#include <cstdint>

namespace vllm_router {

class FleetView;
class MetricsPage;
class WorkerRegistry;

// Nothing while no source has declared anything.
void WriteDiscovery(const WorkerRegistry& registry, int64_t now_ns, MetricsPage* page);
// By model for the first names, and for all others together.
void WriteModels(const FleetView& fleet, MetricsPage* page);

}  // namespace vllm_router
