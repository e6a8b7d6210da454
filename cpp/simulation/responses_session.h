// ResponsesSession: the conversation on one WebSocket of /v1/responses. A client sends what is new, and names the
// response before it, which the connection keeps:
//
//   {"type": "response.create", "input": [A], …}                                     -> resp_1 with the item B
//   {"type": "response.create", "previous_response_id": "resp_1", "input": [C], …}   as one request with [A, B, C]
//
//   ResponsesSession session;
//   StatusOr<std::string> body = session.Expand(message);    // a body for ParseRequest
//   session.Complete("resp_1", items);                       // it has its response
//
// Only the last response can be continued. One thread; it keeps the items of the conversation as JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

class ResponsesSession {
 public:
  // The request that the message means. InvalidArgument: it is none; NotFound: another response than the last.
  StatusOr<std::string> Expand(std::string_view message);

  // The request of the last Expand() has this response: its items, separated by commas.
  void Complete(std::string_view id, std::string_view items);

 private:
  std::string id_;       // of the last response; empty: none
  std::string items_;    // up to it, separated by commas
  std::string pending_;  // with those of the request under way
};

// The body of a request with `before`, items separated by commas, in front of its own input, and without the members
// `left_out`. Its own items are appended to `input`, likewise. InvalidArgument: it is no object, or its input is neither a
// text nor a list.
StatusOr<std::string> WithItemsBefore(
    std::string_view body, std::string_view before, std::span<const std::string_view> left_out,
    std::string* input);

// The message that a bad request gets.
void WriteSessionError(const Status& status, std::string* out);

}  // namespace vllm_router
