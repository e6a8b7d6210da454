// Finds the worker of a stored response or conversation (response_owners.h) by querying all hosts at once. One thread.
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

// GET of the stored path (routing/stored_path.h), whose id is plain, at each host, with the client's details from `head`;
// returns the first host that has it. nullopt if no host has it, none responds within kResponseLookupMs, or the scope is
// cancelled.
Task<std::optional<WorkerId>> SearchStored(
    IoThread& thread, CancelScope& scope, const RequestHead& head, std::string_view path,
    const ClientSide& client);

}  // namespace vllm_router
