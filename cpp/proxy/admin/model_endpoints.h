// /v1/models and /v1/models/{id}: the models of the fleet, from what workers have listed. Workers are asked if they listed
// nothing yet, with ?refresh=1, or if nothing asks them regularly.
#pragma once

#include <span>

#include "net/task.h"
#include "proxy/control/shared_reply.h"

namespace vllm_router {

struct OwnEndpoint;

struct AdminContext;

// On the control thread: what workers list to the router.
Task<SharedReply::Reply> FetchModels(AdminContext& admin, IoThread& thread, CancelScope& scope);

std::span<const OwnEndpoint> ModelEndpoints();

}  // namespace vllm_router
