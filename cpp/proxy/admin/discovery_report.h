// What /admin/discovery says: the sources of workers, and every worker that somebody declares. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "worker/worker_registry.h"

namespace boost::json {
class object;
}

namespace vllm_router {

boost::json::object DiscoveryReport(const WorkerRegistry& registry, int64_t now_ns);

// "waiting for file: …" while a source has not declared a list yet; else empty.
std::string AwaitedSource(const WorkerRegistry& registry);

}  // namespace vllm_router
