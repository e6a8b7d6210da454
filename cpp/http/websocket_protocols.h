// Keys among a WebSocket's subprotocols. A page cannot set headers of a WebSocket, so OpenAI's clients in browsers send
// their key as one of the subprotocols that they offer:
//
//   Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sk-1, openai-beta.realtime-v1
//                                                             ~~~~
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

// The key in the field's value; empty if there is none, nullopt if there are several.
std::optional<std::string_view> KeyOfProtocols(std::string_view value);

// The value without keys, for a server that they are not meant for; empty if nothing else is offered.
std::string WithoutKeys(std::string_view value);

}  // namespace vllm_router
