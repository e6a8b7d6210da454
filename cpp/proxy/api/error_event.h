// An error as the end of an event stream, for a client that has the head of its stream already: an event in the form
// of the route's API, and what its streams end with.
//
//   OpenAI, SGLang       data: {"error":{"message":"…","type":"…","param":null,"code":"…"}}
//                        data: [DONE]
//   /v1/responses        event: error
//                        data: {"type":"error","code":"…","message":"…","param":null,"sequence_number":0,"error":{…}}
//   /v1/messages         event: error
//                        data: {"type":"error","error":{"type":"overloaded_error","message":"…"}}
//
// The official SDKs raise each of them as an error with its message. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "proxy/api/routes.h"

namespace vllm_router {

// Streams of this route have one of these forms, if their request wants a stream.
bool HasEventStreams(Route route);

// For a response with this status and body, ours or a worker's; whatever the body does not say is said in our words.
std::string ErrorEvents(Route route, int status, std::string_view body);
// The same without [DONE], for a stream that broke off and has to look so.
std::string ErrorEvent(Route route, int status, std::string_view body);

// A whole JSON object instead of a stream, as the one event of one; empty if the API has no such event.
std::string WholeAsEvents(Route route, std::string_view body);

}  // namespace vllm_router
