// What /admin/discovery says: the sources of workers, and every worker that somebody declares. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proxy/api/admin_reply.h"
#include "proxy/control/pd_registration_service.h"
#include "worker/worker_registry.h"

namespace vllm_router {

// `registrations`: of workers that register themselves, where they can.
AdminReply DiscoveryReport(
    const WorkerRegistry& registry, int64_t now_ns,
    const std::optional<PdRegistrationReport>& registrations = std::nullopt);

// "waiting for file: …" while a source has not declared a list yet; else empty.
std::string AwaitedSource(const WorkerRegistry& registry);

}  // namespace vllm_router
