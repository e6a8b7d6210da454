// PickRejection: why a request at a data plane gets no worker. It becomes a response of the router's own to the client, the
// proxy's error for the same reason.
//
//   if (PickRejection rejection = …) Reject(rejection, *settings, &stream, &info);
//
// Its headers are Retry-After, where a later attempt may succeed, and llm-d's reason for a request that was not let in:
//
//   x-llm-d-request-dropped-reason: rejected-saturated | rejected-ttl-expired | rejected-no-endpoints | rejected-shutting-down
//
// Functions without state.
#pragma once

#include <cstdint>
#include <string>

#include "picker/ext_proc_stream.h"
#include "proxy/api/error_response.h"
#include "proxy/picker/picker_counts.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

struct Settings;

struct PickRejection {
  PickResult result = PickResult::kNoWorkers;
  HttpError error{};
  std::string message = {};    // empty: the error's own
  int64_t retry_after_ns = 0;  // 0: a second, for errors that have a Retry-After
};

// Tells the data plane, unless it has a choice, and records it in `info`, whose route and request id are set.
void Reject(
    const PickRejection& rejection, const Settings& settings, ExtProcStream* stream, RequestInfo* info);

}  // namespace vllm_router
