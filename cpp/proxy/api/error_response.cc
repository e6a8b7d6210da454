#include "proxy/api/error_response.h"

#include <iterator>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr std::string_view kServer = "server_error";

// In the order of HttpError.
constexpr ErrorRow kRows[] = {
    {400, kInvalid, "bad_request", "The request is not valid HTTP/1.1."},
    {408, kInvalid, "head_timeout", "The request head did not arrive in time; send it faster."},
    {408, kInvalid, "body_timeout", "The request body stopped arriving; send it without long pauses."},
    {408, kInvalid, "body_too_slow", "The request body arrives below the minimum rate; send it faster."},
    {400, kInvalid, "bad_chunk", "The chunked request body is malformed."},
    {413, kInvalid, "body_too_large", "The request body is larger than this router accepts."},
    {400, kInvalid, "nul_in_path", "The path contains an encoded NUL (%00), which no worker can serve."},
    {400, kInvalid, "path_outside_prefix",
     "The path's dot segments (..) lead outside the path that workers serve; send the path without them."},
    {401, kInvalid, "missing_api_key", "An API key is required: send it as Authorization: Bearer KEY."},
    {401, kInvalid, "invalid_api_key", "Invalid API key."},
    {403, kInvalid, "admin_closed",
     "Admin endpoints are closed: clients need API keys here, and no admin keys are set "
     "(--admin-api-key-file)."},
    {403, kInvalid, "cross_site_request",
     "This is a browser's cross-site request (see its Origin or Sec-Fetch-Site); admin endpoints and "
     "WebSocket accept such requests only from origins in --cors-allowed-origins."},
    {503, kServer, "key_not_checked", "The API key could not be validated; retry later.", true},
    {405, kInvalid, "method_not_allowed", "This method is not allowed on this path; see the Allow header."},
    {404, kInvalid, "not_found", "Not found."},
    {404, kInvalid, "path_not_passed", "Requests to this path are passed on to no worker."},
    {508, kServer, "loop_detected", "Routing loop detected."},
    {400, kInvalid, "invalid_argument", "An argument is missing or invalid."},
    {429, kInvalid, "queue_full", "The router is at capacity and its queue is full; retry later.", true},
    {429, kInvalid, "displaced",
     "A request of a higher priority class, or of a tenant with fewer, took its place in the full queue; "
     "retry later.",
     true},
    {503, kServer, "evicted",
     "A request of a higher priority class needed its worker, and it got no other in time; retry later.",
     true},
    {408, kInvalid, "queue_timeout", "The request waited too long in the queue; retry later."},
    {429, kInvalid, "rate_limited", "Rate limit exceeded; see Retry-After.", true},
    {429, kInvalid, "tenant_rate_limited",
     "The tenant's limit of requests per minute is exceeded; see Retry-After.", true},
    {429, kInvalid, "tenant_tokens_limited",
     "The tenant's limit of tokens per minute is exceeded; see Retry-After, or send a shorter prompt.", true},
    {429, kInvalid, "tenant_concurrency",
     "The tenant has as many requests under way as it may have; wait for the response to one of them.", true},
    {429, kInvalid, "program_timeout",
     "The request's program waited too long for room in the KV caches of workers; retry later.", true},
    {503, kServer, "no_body_memory", "The memory for request bodies is used up; retry later.", true},
    {503, kServer, "no_workers", "No available workers (all circuits open or unhealthy).", true},
    {404, kInvalid, "model_not_found", "The model does not exist.", false, "model"},
    {503, kServer, "no_workers_for_model", "No worker serves the model now; retry later.", true, "model"},
    {400, kInvalid, "model_required", "The request names no model; name one as its member model.", false,
     "model"},
    {400, kInvalid, "invalid_body", "The request body cannot be read; send a JSON object."},
    {502, kServer, "worker_unreachable", "The chosen worker could not be reached."},
    {504, kServer, "connect_timeout", "Connecting to the chosen worker timed out."},
    {502, kServer, "worker_closed", "The worker closed the connection before it responded."},
    {502, kServer, "worker_bad_answer", "The worker's response is not valid HTTP/1.1."},
    {504, kServer, "worker_write_timeout", "The worker stopped reading the request."},
    {504, kServer, "first_byte_timeout", "The worker did not start its response in time."},
    {503, kServer, "worker_drained",
     "The worker was drained and its drain timeout expired before it responded.", true},
    {503, kServer, "response_search_busy",
     "The worker that holds the response is not known, and too many searches are in progress; retry later.",
     true},
    {503, kServer, "fan_out_busy",
     "16 requests to all workers are in progress, which is the limit; retry when one of them has ended.",
     true},
    {502, kServer, "fan_out_failed", "No worker carried out the request to all workers."},
    {502, kServer, "request_suspected",
     "Two workers failed while they served this request, so it is rejected for a minute; change it, or retry "
     "later."},
    {429, kInvalid, "client_restricted",
     "Workers failed again and again while they served this client, so it is limited to one request at a "
     "time, "
     "or to none for some minutes; wait for the response to the other one, or retry later.",
     true},
    {503, kServer, "shutting_down", "The router is shutting down.", true},
};
static_assert(std::size(kRows) == kHttpErrorCount, "an error without a row");

}  // namespace

const ErrorRow& ErrorOf(HttpError error) { return kRows[static_cast<size_t>(error)]; }

std::string ErrorBody(
    std::string_view message, std::string_view type, std::string_view code, std::string_view param) {
  std::string body = R"({"error":{"message":)";
  body += JsonQuoted(message);
  body += R"(,"type":)";
  body += JsonQuoted(type);
  body += R"(,"param":)";
  body += param.empty() ? std::string("null") : JsonQuoted(param);
  body += R"(,"code":)";
  body += JsonQuoted(code);
  body += "}}";
  return body;
}

std::string_view AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    case 408:
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string ErrorBodyFor(Route route, const RouteError& error) {
  if (!IsAnthropic(route)) return ErrorBody(error.message, error.type, error.code, error.param);
  return Concat(
      R"({"type":"error","error":{"type":")", AnthropicType(error.status), R"(","message":)",
      JsonQuoted(error.message), R"(,"code":)", JsonQuoted(error.code), R"(},"request_id":)",
      JsonQuoted(error.request_id), "}");
}

}  // namespace vllm_router
