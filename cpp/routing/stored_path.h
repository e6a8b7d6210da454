// Paths of what engines keep in memory for OpenAI's Responses API: responses and conversations. Later requests that name
// one go to the worker that made it.
//
//   POST /v1/responses/resp_1f/cancel                                StoredPathOf     /v1/responses/resp_1f
//   GET  /v1/conversations/conv_7a/items                             StoredPathOf     /v1/conversations/conv_7a
//   POST /v1/responses      {"previous_response_id": "resp_1f", …}   ContinuedPath    /v1/responses/resp_1f
//   POST /v1/responses      {"conversation": {"id": "conv_7a"}, …}   ContinuedPath    /v1/conversations/conv_7a
//   POST /v1/responses      {"store": false, …}                      StoresNothing
//   200  {"id": "resp_1f", "object": "response", …}                  CreatedId        resp_1f
//
// Pure; malformed input names nothing. Cost: a body without the members costs three searches, for their names and for
// escapes of their letters; else one simdjson pass.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

inline constexpr std::string_view kResponsesPath = "/v1/responses";
inline constexpr std::string_view kConversationsPath = "/v1/conversations";

// The path up to the end of the id, unchanged; empty if there is none, it is too long for an id, or the path is that of
// another operation (/v1/responses/compact, /v1/responses/input_tokens).
std::string_view StoredPathOf(std::string_view path);
inline bool IsConversation(std::string_view stored_path) {
  return stored_path.starts_with(kConversationsPath);
}

// The id is as engines make them. A client of vLLM may choose another one for a response, so what looks different may be
// known all the same.
bool LooksStored(std::string_view stored_path);

// Whether a request line may have the id: it consists of letters, digits and _-.:[] and begins with no dot. A body may
// name anything.
bool HasPlainId(std::string_view stored_path);

// What the response to this body continues, by its top-level members: the response `previous_response_id`, else the
// `conversation`, a string or an object with an `id`. `padded` as in request_fields.h.
std::optional<std::string> ContinuedPath(std::string_view body, bool padded);

// True if the body's top-level member `store` is false: the response leaves nothing behind at its worker. Padded.
bool StoresNothing(std::string_view body);

// `beginning` is a prefix of a response's body. Returns the `id` of the JSON object, or of `response` in
// a stream's first event, as soon as that member is complete.
std::optional<std::string> CreatedId(std::string_view beginning, bool event_stream);

}  // namespace vllm_router
