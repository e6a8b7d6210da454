// ReplyWithEvents: writes an EventStream to a client as the response of one of the router's own endpoints.
//
//   HTTP/1.1   in chunks, one for each piece; the connection is kept if the stream ends
//   HTTP/1.0   until the connection ends
//
// It goes on until the stream ends, the client leaves or takes nothing for --client-write-timeout-secs, or the server
// stops, which does not wait for it. Meanwhile a comment follows each silence. One thread.
#pragma once

#include "net/task.h"
#include "proxy/api/admin_reply.h"

namespace vllm_router {

struct Request;

// REQUIRES: reply.stream != nullptr.
Task<void> ReplyWithEvents(Request& request, AdminReply reply);

}  // namespace vllm_router
