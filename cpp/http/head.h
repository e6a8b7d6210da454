// The heads of HTTP/1.x messages after parsing and checking: plain values whose views point into the
// buffer that was parsed. That buffer must not move or change while the head is in use.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/header_field.h"

namespace vllm_router {

// The longest body that can be announced: 15 decimal digits, so that sums of lengths never overflow.
inline constexpr uint64_t kMaxContentLength = 999'999'999'999'999;

// Requests are read strictly. A response cannot smuggle a request, so unambiguous deviations pass:
// workers are written in many languages, and a client is better served by their response than by a 502.
enum class MessageKind : uint8_t { kRequest, kResponse };

// How the bytes after a head are delimited.
enum class BodyFraming : uint8_t {
  kNone,        // no body
  kLength,      // content_length bytes
  kChunked,     // chunked coding
  kUntilClose,  // responses only
};

struct RequestHead {
  std::string_view method;
  std::string_view target;  // as received; for absolute form only path and query (from '?' if it has no path)
  std::string_view path;    // target up to '?', "/" if that is empty
  std::string_view query;   // after '?', may be empty
  std::string_view authority;  // Host, or the authority of an absolute target
  int minor_version = 1;
  std::vector<HeaderField> fields;  // in order, spelled as received; includes Host and framing fields
  BodyFraming framing = BodyFraming::kNone;
  uint64_t content_length = 0;
  bool keep_alive = true;         // what the client wants, by version and Connection
  bool expects_continue = false;  // Expect: 100-continue, never set for HTTP/1.0
  std::vector<std::string_view>
      connection_tokens;              // fields nominated as hop-by-hop; without close, keep-alive
  std::vector<std::string_view> via;  // values of the Via fields, for via.h
  bool websocket = false;             // a GET of HTTP/1.1 without a body that requests a switch to WebSocket
  size_t size = 0;                    // bytes of the head in the buffer, leading empty lines included
};

struct ResponseHead {
  int status = 0;
  std::string_view reason;
  int minor_version = 1;
  std::vector<HeaderField> fields;
  BodyFraming framing = BodyFraming::kUntilClose;  // HEAD, 204, 304 and 1xx already considered
  uint64_t content_length = 0;  // valid with kLength; for HEAD and 304 the field itself passes in `fields`
  bool keep_alive = true;       // the connection may be used again once the body has ended
  bool event_stream = false;    // content-type is text/event-stream
  std::vector<std::string_view> connection_tokens;
  size_t size = 0;
};

}  // namespace vllm_router
