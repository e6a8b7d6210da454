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
    {408, kInvalid, "body_too_slow",
     "The request body arrives slower than this router waits for; send it faster."},
    {400, kInvalid, "bad_chunk", "The chunked request body is malformed."},
    {413, kInvalid, "body_too_large", "The request body is larger than this router accepts."},
    {400, kInvalid, "nul_in_path", "The path contains an encoded NUL (%00), which no worker can serve."},
    {400, kInvalid, "path_outside_prefix",
     "The path's dot segments (..) lead out of what this router serves; send the path without them."},
    {401, kInvalid, "missing_api_key", "An API key is needed: send it as Authorization: Bearer KEY."},
    {401, kInvalid, "invalid_api_key", "The API key is not one that is valid here."},
    {403, kInvalid, "admin_closed",
     "Admin endpoints are shut: clients need keys here, and there are none for admins "
     "(--admin-api-key-file)."},
    {403, kInvalid, "cross_site_request",
     "A browser sent this request for a page of another site (see its Origin or Sec-Fetch-Site); admin "
     "endpoints and WebSocket accept such requests only from origins in --cors-allowed-origins."},
    {503, kServer, "key_not_checked", "The API key could not be checked just now.", true},
    {405, kInvalid, "method_not_allowed", "This method is not allowed on this path; see the Allow header."},
    {404, kInvalid, "not_found", "There is no such thing here."},
    {508, kServer, "loop_detected", "The request goes round in a circle of routers."},
    {400, kInvalid, "invalid_argument", "An argument is missing or wrong."},
    {429, kInvalid, "queue_full", "The router is full, and so is the line before it; try again later.", true},
    {408, kInvalid, "queue_timeout", "The request waited too long for its turn; try again later."},
    {429, kInvalid, "rate_limited", "More requests come than this router lets begin per second; slow down.",
     true},
    {503, kServer, "no_body_memory", "The router holds too many long request bodies; try again later.", true},
    {503, kServer, "no_workers", "No available workers (all circuits open or unhealthy).", true},
    {502, kServer, "worker_unreachable", "The chosen worker could not be reached."},
    {504, kServer, "connect_timeout", "The chosen worker did not accept the connection in time."},
    {502, kServer, "worker_closed", "The worker closed the connection before it answered."},
    {502, kServer, "worker_bad_answer", "The worker answered with something that is not valid HTTP/1.1."},
    {504, kServer, "worker_write_timeout", "The worker stopped taking the request."},
    {504, kServer, "first_byte_timeout", "The worker did not begin to answer in time."},
    {503, kServer, "worker_drained",
     "The worker that had the request is leaving, and its time was over before it answered.", true},
    {503, kServer, "response_search_busy",
     "Which worker holds the response is not known, and too many others are being looked for; try again "
     "later.",
     true},
    {503, kServer, "fan_out_busy",
     "16 requests for all workers are under way, and more are not begun; try again when one of them has "
     "ended.",
     true},
    {502, kServer, "fan_out_failed", "No worker did what was asked of all."},
    {502, kServer, "request_suspected",
     "Two workers failed while they served this request, so it is rejected for a minute; change it, or retry "
     "later."},
    {429, kInvalid, "client_restricted",
     "Several requests of this client were followed by failures of workers, so it may have one request at a "
     "time for up "
     "to ten minutes; wait for the response to the other one.",
     true},
    {503, kServer, "shutting_down", "The router is shutting down.", true},
};
static_assert(std::size(kRows) == kHttpErrorCount, "an error without a row");

}  // namespace

const ErrorRow& ErrorOf(HttpError error) { return kRows[static_cast<size_t>(error)]; }

std::string ErrorBody(std::string_view message, std::string_view type, std::string_view code) {
  std::string body = R"({"error":{"message":)";
  body += JsonQuoted(message);
  body += R"(,"type":)";
  body += JsonQuoted(type);
  body += R"(,"param":null,"code":)";
  body += JsonQuoted(code);
  body += "}}";
  return body;
}

}  // namespace vllm_router
