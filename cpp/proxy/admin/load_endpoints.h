// /get_loads: the load that each worker reports. All are polled at once, for all clients who wait.
#pragma once

#include <span>

#include "net/task.h"
#include "proxy/control/shared_reply.h"

namespace vllm_router {

struct OwnEndpoint;

struct AdminContext;

// On the control thread: as the workers report; -1 for one that does not report.
Task<SharedReply::Reply> FetchLoads(AdminContext& admin, IoThread& thread, CancelScope& scope);

std::span<const OwnEndpoint> LoadEndpoints();

}  // namespace vllm_router
