// Families of a fleet with stages: what the threads count at requests that a prefill and a decode worker serve. Any thread.
#pragma once

#include <memory>
#include <vector>

namespace vllm_router {

class MetricsPage;
class TelemetrySums;
struct Worker;

void WriteStages(
    const TelemetrySums& threads, const std::vector<std::shared_ptr<const Worker>>& workers,
    MetricsPage* page);

}  // namespace vllm_router
