// The heads that we send: written from parsed values, never copied, so that nothing smuggled through one
// parser reaches another. Which field goes where is the table of docs/reference/http_api.md, "What is
// passed on".
//
// Field order and spelling are kept; added fields come last. Values must hold no control bytes;
// HeadParser has checked this for everything received.
//
// All functions append to `out`. Cost: one pass over the fields and one allocation at most, when `out`
// has to grow; about 0.2 us for 17 fields. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/head.h"

namespace vllm_router {

struct UpstreamHeadParts {
  std::string_view prefix;           // path of the worker's URL, in front of the target
  std::string_view authority;        // Host of the worker
  bool preserve_host = false;        // true: the client's Host instead
  std::string_view hop_name;         // appended to Via, behind those before us; may be empty
  std::string_view client_address;   // appended to X-Forwarded-For
  std::string_view forwarded_proto;  // "http" or "https"; set if absent
  bool trust_forwarded = true;       // false: incoming X-Forwarded-* are replaced
  std::string_view
      request_id_name;  // the incoming field that held the id, dropped in favour of X-Request-Id; may be empty
  // No id or rank of the client's passes: neither in these fields, nor in X-Request-Id and X-Data-Parallel-Rank, also
  // with _ for -.
  bool hide_ids = false;
  std::span<const std::string> id_names;
  std::string_view request_id;                 // sent as X-Request-Id
  std::optional<uint32_t> data_parallel_rank;  // X-Data-Parallel-Rank, replacing the client's
  bool drop_rank = false;                      // the client's, even if there is none to replace it
  bool identity = false;                       // the response must not be compressed
  std::string_view traceparent;     // in place of the client's; empty: that one passes, with its tracestate
  bool drop_tracestate = false;     // the client's
  std::string_view authorization;   // "Bearer …" to use when the client sent none; may be empty
  bool drop_authorization = false;  // the client's, and what else is its key, were meant for us
  bool websocket = false;           // requests the worker's switch to it, as the client did
  BodyFraming framing = BodyFraming::kNone;  // of the body as we send it
  uint64_t content_length = 0;
};

// Hop-by-hop fields, the fields that Connection names, Expect, Host and x-vllm-router-* are dropped.
// Always HTTP/1.1.
void WriteUpstreamHead(const RequestHead& head, const UpstreamHeadParts& parts, std::string* out);

struct ClientHeadParts {
  std::string_view request_id;               // x-request-id, replacing the worker's
  BodyFraming framing = BodyFraming::kNone;  // of the body as we send it
  uint64_t content_length = 0;               // with kLength
  bool close = false;                        // Connection: close
  bool keep_alive_10 = false;                // HTTP/1.0 client that may keep the connection
  bool own_cors = false;                     // the worker's Access-Control-* are dropped
  bool websocket = false;                    // says that the connection switches to it (101)
  // x-vllm-router-* and the like; the worker's fields of these names are dropped, except Vary.
  std::span<const HeaderField> extra;
};

// The worker's Content-Length passes only if it announces no body: in responses to HEAD, and in 304.
void WriteClientHead(const ResponseHead& head, const ClientHeadParts& parts, std::string* out);

// The same response as it would be with a body of this length: for one whose body was changed.
void WriteWholeHead(const ResponseHead& head, uint64_t content_length, std::string* out);

// A whole small response of our own, body included (left out when `to_head`).
struct OwnResponse {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string_view request_id;         // may be empty
  std::span<const HeaderField> extra;  // Retry-After, Allow, …
  std::string_view body;
  bool close = false;
  bool to_head = false;
};
void WriteOwnResponse(const OwnResponse& response, std::string* out);

// "OK", "Bad Request", …; "Unknown" for codes without a registered phrase.
std::string_view ReasonPhrase(int status);

// Size line of a chunk, CRLF included: "1a\r\n".
void WriteChunkSize(uint64_t size, std::string* out);

}  // namespace vllm_router
