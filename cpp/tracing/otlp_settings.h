// OtlpSettings: where spans go and under which name, from flags and from the variables that OpenTelemetry's own SDKs read.
//
//   --otlp-traces-endpoint http://collector:4318     POST http://collector:4318/v1/traces
//   OTEL_EXPORTER_OTLP_TRACES_ENDPOINT               else as it is
//   OTEL_EXPORTER_OTLP_ENDPOINT                      else with /v1/traces behind it
//   (none)                                           http://localhost:4318/v1/traces
//
// OTLP over HTTP, with Protocol Buffers. Pure; any thread.
// The variables: opentelemetry.io/docs/specs/otel/protocol/exporter, and configuration/sdk-environment-variables.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct OtlpSettings {
  WorkerUrl url;                                              // with its path as `prefix`
  std::string headers;                                        // "Name: value\r\n" of each; may hold a secret
  std::vector<std::pair<std::string, std::string>> resource;  // attributes; the first of a name counts
  bool genai =
      false;  // attributes of OpenTelemetry's conventions for generative AI, which are in development
};

// The value of a variable of the environment; empty: it is not set.
using Environment = std::function<std::string(std::string_view name)>;

// `endpoint` and `service_name`: of the flags; empty: not given. InvalidArgument names the flag or variable and the remedy,
// and no part of a value that may be a secret.
StatusOr<OtlpSettings> ReadOtlpSettings(
    std::string_view endpoint, std::string_view service_name, const Environment& environment);

// Of this process. Not while another thread changes it.
std::string ProcessEnvironment(std::string_view name);

}  // namespace vllm_router
