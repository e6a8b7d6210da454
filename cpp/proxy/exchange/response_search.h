// Finds the worker of a stored response (response_owners.h) by querying all hosts at once. One thread.
#pragma once

#include <optional>
#include <string_view>

#include "http/head.h"
#include "net/task.h"
#include "proxy/exchange/upstream_parts.h"
#include "worker/worker.h"

namespace vllm_router {

class CancelScope;
struct IoThread;

// GET /v1/responses/{id} at each host, with the client's details from `head`; returns the first host
// that has it. nullopt if no host has it, none responds within kResponseLookupMs, or the scope is
// cancelled.
Task<std::optional<WorkerId>> SearchResponse(
    IoThread& thread, CancelScope& scope, const RequestHead& head, std::string_view id,
    const ClientSide& client);

}  // namespace vllm_router
