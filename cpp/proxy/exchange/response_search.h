// Where a stored response is whose worker is not known (response_owners.h): all hosts are asked for it at once. One thread.
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

// GET /v1/responses/{id} at each host, with what `head` says of its client; the first that has it. None when no host has,
// or none within kResponseLookupMs, or the scope is cancelled.
Task<std::optional<WorkerId>> SearchResponse(
    IoThread& thread, CancelScope& scope, const RequestHead& head, std::string_view id,
    const ClientSide& client);

}  // namespace vllm_router
