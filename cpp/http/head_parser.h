// HeadParser: bytes in, one checked head out; sans-io. Stricter than RFC 9112 where it lets a recipient
// choose: ambiguous messages are rejected. The rules R1..R9 are in docs/explanation/http_parsing.md.
//
//   buffer  GET /v1/models HTTP/1.1 CRLF  Host: a CRLF  Accept: *| <- the rest has not arrived
//           `-- checked when complete --'`-- so is this '
//
//   RequestHeadParser parser;
//   while (parser.Feed(buffer) == ParseState::kNeedMore) { read more bytes into buffer }
//
// Feed() is always given the whole buffer from its first byte and continues where it stopped. The buffer
// may have moved between calls; then it parses again from the start, so let buffers grow in large
// steps. A buffer of kMaxHeadBytes is always enough. Which messages are rejected, and how, depends on
// the bytes alone, not on how they were split.
//
// Cost: 0.6 us for a client's head of 586 bytes and 17 fields, 0.3 us for a worker's of 286 bytes and 8;
// linear if fed byte by byte; no allocation once the vectors have grown. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "http/head.h"

namespace vllm_router {

// Why a head was rejected. `status` is the HTTP response for a request (0: close without a response); a
// rejected response head is a 502 to the client. `rule` is a stable label for the metric
// bad_requests_total{reason}.
struct HeadError {
  int status = 400;
  std::string_view rule;
  std::string_view message;  // one sentence for the client
};

enum class ParseState : uint8_t { kNeedMore, kDone, kBad };

class RequestHeadParser {
 public:
  RequestHeadParser();
  ~RequestHeadParser();
  RequestHeadParser(RequestHeadParser&&) noexcept;
  RequestHeadParser& operator=(RequestHeadParser&&) noexcept;

  void Reset();  // ready for the next message
  // kDone: head() views `buffer`, whose first head().size bytes are the head. kBad: error().
  ParseState Feed(std::string_view buffer);
  const RequestHead& head() const;
  // Replaces head().path. REQUIRES: kDone; `path` begins with a slash and outlives the head.
  void ReplacePath(std::string_view path);
  // Replaces head().query. REQUIRES: kDone; `target` has a query, and outlives the head.
  void ReplaceQueryBy(std::string_view target);
  const HeadError& error() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class ResponseHeadParser {
 public:
  ResponseHeadParser();
  ~ResponseHeadParser();
  ResponseHeadParser(ResponseHeadParser&&) noexcept;
  ResponseHeadParser& operator=(ResponseHeadParser&&) noexcept;

  // `to_head`: the request was HEAD, so no body follows. `to_upgrade`: it requested WebSocket, so the
  // status may be 101 with exactly that upgrade; the bytes behind it are not HTTP.
  void Reset(bool to_head, bool to_upgrade = false);
  // 1xx heads are reported like others (status < 200); Reset and feed the rest for the next.
  ParseState Feed(std::string_view buffer);
  const ResponseHead& head() const;
  const HeadError& error() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vllm_router
