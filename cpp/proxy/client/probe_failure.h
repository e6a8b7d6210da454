// ProbeFailure: what one of the router's own requests to a worker came to, with the remedy, for the log and for errors.
//
//   GET /v1/models, 401               returned 401 to GET /v1/models: --api-key is not the engine's
//   GET /health, 404 at http://w/v1   returned 404 to GET /health: its URL should end before /v1: http://w
//   GET /health, no connection        did not respond to GET /health: the connection was refused
//
// Nothing of a response's body is repeated. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "proxy/client/http_client.h"
#include "worker/worker_url.h"

namespace vllm_router {

// The worker wants a key, and has not got the one that it wants.
inline bool IsRefusal(const StatusOr<HttpResponse>& response) {
  return response.ok() && (response->status == 401 || response->status == 403);
}

// Continues a sentence that begins with the worker. `key`: what the request carried of the workers' key.
std::string ProbeFailure(
    const WorkerUrl& url, std::string_view target, const StatusOr<HttpResponse>& response,
    HttpClient::KeyUse key);

}  // namespace vllm_router
