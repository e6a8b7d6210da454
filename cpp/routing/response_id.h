// Ids of stored responses (OpenAI's Responses API): engines keep their responses to POST /v1/responses
// in memory, so later requests that name one go to the worker that made it.
//
//   GET  /v1/responses/resp_1f                                        ResponseIdOfPath
//   POST /v1/responses     {"previous_response_id": "resp_1f", …}     PreviousResponseId
//   POST /v1/responses     {"store": false, …}                         StoresNothing
//   200  {"id": "resp_1f", "object": "response", …}                   ResponseIdOf
//
// Pure; malformed input has no id. Cost: a body without the member costs two searches, for its name and for
// escapes of its letters; else one simdjson pass.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

inline constexpr std::string_view kResponsePathPrefix = "/v1/responses/";

// The first segment behind /v1/responses/, unchanged; empty if there is none, it is too long for an id, or the path is
// that of another operation (/v1/responses/compact, /v1/responses/input_tokens).
std::string_view ResponseIdOfPath(std::string_view path);

// As engines make ids. A client of vLLM may choose another one, so what looks different may be known all the same.
constexpr bool LooksLikeResponseId(std::string_view id) { return id.starts_with("resp_"); }

// Whether a request line may have it: it consists of letters, digits and _-.:[] and begins with no dot. A body may name
// anything.
bool IsPlainId(std::string_view id);

// The body's top-level member `previous_response_id`, if that is a string. `padded` as in request_fields.h.
std::optional<std::string> PreviousResponseId(std::string_view body, bool padded);

// True if the body's top-level member `store` is false: the response leaves nothing behind at its worker. Padded.
bool StoresNothing(std::string_view body);

// `beginning` is a prefix of a response's body. Returns the `id` of the JSON object, or of `response` in
// a stream's first event, as soon as that member is complete.
std::optional<std::string> ResponseIdOf(std::string_view beginning, bool event_stream);

}  // namespace vllm_router
