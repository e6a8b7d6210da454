// RequestSpans: the spans of one request, from its record once it has ended: nothing is written while it runs.
//
//   SERVER    POST /v1/chat/completions         the request, from its head to its last byte
//     INTERNAL  tokenize, response_cache, …     steps that waited for something
//     CLIENT    http_client_request             an attempt at a worker, one span each
//
// Names and attributes are those of docs/how-to/trace_requests.md. They hold no prompt, query, key or header's value. Pure; any
// thread.
// Conventions: OpenTelemetry's stable ones for HTTP spans; those for generative AI, which are in development, with
// `conversations`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proxy/telemetry/request_info.h"

namespace vllm_router {

class KeyedHash;

struct RequestSpansSource {
  const RequestInfo& info;  // REQUIRES: it has a trace, and has ended
  std::string_view request_id;
  std::string_view client;  // its address
  std::string_view policy;  // the router's, unless the record names another
  uint32_t block_size;      // of a prompt, in tokens
  // Names conversations by a hash under a key; null: no attributes of the conventions in development.
  KeyedHash* conversations;
};

// Appends the spans to `out` as SpanWriter does. How many these are.
size_t WriteRequestSpans(const RequestSpansSource& source, std::string* out);

}  // namespace vllm_router
