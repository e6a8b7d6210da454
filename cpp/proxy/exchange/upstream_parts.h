// The part of a worker request's head that is the same for all requests of a client.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "http/head_writer.h"
#include "tracing/trace_context.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct IoThread;

// Beyond this, a client's key is not kept behind its request.
inline constexpr size_t kMaxKeptAuthorization = 8 * 1024;

// What a worker is told about the client. Views into the exchange.
struct ClientSide {
  std::string_view request_id;       // sent to the workers
  std::string_view request_id_name;  // the field that it came in; may be empty
  // In front of workers with stages, which may read addresses in an id: the fields that may have one of the client's.
  bool hide_ids = false;
  std::span<const std::string> id_names;
  std::string_view address;
  bool tls = false;
  bool drop_authorization = false;  // the client's key was meant for us
  bool preserve_host = false;
  bool trust_forwarded = true;
  bool identity = false;  // the client's head is written already, so the response must not be compressed
  RequestTrace* trace = nullptr;  // null: the client's trace context passes as it is
};

// The client's Authorization field that workers get; empty if there is none, or a very long one.
std::string_view ForwardedAuthorization(const RequestHead& head, const ClientSide& client);
// All its fields with a key that workers get, as lines of a head; empty likewise.
std::string ForwardedCredentials(const RequestHead& head, const ClientSide& client);

// For a request without a body; a sender of one adds its framing. Its place in a trace is that of the client's request, unless
// its sender names another.
UpstreamHeadParts PartsFor(const IoThread& thread, const WorkerUrl& url, const ClientSide& client);

}  // namespace vllm_router
