// FanOut: one request sent to all workers at once (proxy/api/fan_out_paths.h says which requests), with
// their responses merged into one.
//
//   POST /flush_cache ──┬──> gpu-0   200 {"success": true}
//                       ├──> gpu-1   200 {"success": true}
//                       └──> gpu-2   the connection was refused
//   207 {"success": true, "workers": [
//        {"worker": "http://gpu-0:8000", "status": 200, "body": {"success": true}}, …,
//        {"worker": "http://gpu-2:8000", "status": 0, "error": "the connection was refused"}]}
//
//   all did it (2xx)                   200
//   some did                           207, and the rows say which did not
//   none did, all with the same 4xx    that status: the request is wrong, or no engine supports it
//   none did                           502 `fan_out_failed`
//
// Fields that are equal in all JSON bodies are in the merged body as well, so that a client of one
// engine finds what it expects. All workers get the request, unhealthy and draining ones too, ranks of
// one host once: a worker that missed a flush would serve stale entries when it is back. Nothing is sent
// twice. A client that leaves cancels the calls without a response.
//
// Memory: the body once, and up to 64 KiB of each response. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/head.h"
#include "net/task.h"
#include "proxy/api/admin_reply.h"
#include "proxy/exchange/upstream_parts.h"

namespace vllm_router {

class CancelScope;
struct IoThread;
class OwnEndpoints;

struct FanOutRequest {
  const RequestHead& head;
  std::string_view body;
  ClientSide client;
  int64_t timeout_ms;  // of each call
};

// `own`: has a thread that merges many responses.
Task<AdminReply> FanOut(
    IoThread& thread, CancelScope& scope, OwnEndpoints& own, const FanOutRequest& request);

// One worker's response; `status` 0: none, and `error` says why.
struct FanOutResponse {
  std::string worker;
  int status = 0;
  std::string body;
  std::string error;
};

// Pure.
AdminReply MergeFanOut(const std::vector<FanOutResponse>& responses);

}  // namespace vllm_router
