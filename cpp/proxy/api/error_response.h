// The one table that maps an error to its HTTP response: a status and an OpenAI-style JSON body,
//
//   {"error":{"message":"…","type":"invalid_request_error","param":null,"code":"body_too_large"}}
//
// and on the routes of Anthropic's API a body in its form, with its name for the status, by which its SDKs tell errors
// apart, and with the same code:
//
//   {"type":"error","error":{"type":"request_too_large","message":"…","code":"body_too_large"},"request_id":"…"}
//
// Messages never contain a worker's URL. Documented, row by row, in docs/reference/errors.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proxy/api/routes.h"

namespace vllm_router {

enum class HttpError : uint8_t {
  kBadRequest,  // the parser's own status and message apply
  kHeadTimeout,
  kBodyTimeout,
  kBodyTooSlow,
  kBadChunk,
  kBodyTooLarge,
  kNulInPath,
  kPathOutsidePrefix,
  kMissingApiKey,
  kInvalidApiKey,
  kAdminClosed,
  kCrossSiteRequest,
  kKeyNotChecked,
  kMethodNotAllowed,
  kNotFound,
  kPathNotPassed,
  kLoopDetected,
  kInvalidArgument,  // of an admin call, or x-vllm-router-override
  kQueueFull,
  kDisplaced,  // by a request of a higher priority class
  kEvicted,    // from its worker, likewise, and it got no other
  kQueueTimeout,
  kRateLimited,
  kTenantRateLimited,
  kTenantTokensLimited,
  kTenantConcurrency,
  kProgramTimeout,
  kNoBodyMemory,
  kNoWorkers,
  kModelNotFound,
  kNoWorkersForModel,
  kModelRequired,
  kInvalidBody,
  kConnectFailed,
  kConnectTimeout,
  kWorkerClosed,  // before a complete response head
  kWorkerBadResponse,
  kWorkerWriteTimeout,
  kFirstByteTimeout,
  kWorkerDrained,
  kResponseSearchBusy,
  kFanOutBusy,
  kFanOutFailed,
  kRequestSuspected,
  kClientRestricted,
  kShuttingDown,
};
inline constexpr int kHttpErrorCount = static_cast<int>(HttpError::kShuttingDown) + 1;

struct ErrorRow {
  int status;
  std::string_view type;
  std::string_view code;
  std::string_view message;  // used when the caller has no message of its own
  bool retry_after = false;  // Retry-After: 1, unless the caller sets another value
  std::string_view param = {};
};

const ErrorRow& ErrorOf(HttpError error);
// `param`: the member of the request that is wrong; empty: null.
std::string ErrorBody(
    std::string_view message, std::string_view type, std::string_view code, std::string_view param = {});

// Anthropic's name of errors with this status.
std::string_view AnthropicType(int status);

// What the router says of a request.
struct RouteError {
  int status;
  std::string_view message;
  std::string_view type;  // OpenAI's
  std::string_view code;
  std::string_view param = {};
  std::string_view request_id = {};
};
// In the form of the route's API.
std::string ErrorBodyFor(Route route, const RouteError& error);

}  // namespace vllm_router
