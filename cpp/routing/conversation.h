// What requests of one conversation have in common, as a hash: the same in all its turns, and different in other
// conversations. The first of these that a request has:
//
//   a name    of the session in the headers (session_names.h), or of the session or conversation in the body
//   opening   of a chat: all before the model's first item, so that a shared system prompt alone is no conversation
//   prompt    else its first 1,024 bytes, or 256 token ids
//
// Names of users, tenants and single requests are none: a user has many conversations, and a request's name is new in each
// turn. So this is not the key of the hash policies (session_key.h).
//
// Cost: one pass over the headers; without a name there one over the body, two if it has neither a name nor a chat. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/header_field.h"
#include "routing/request_view.h"

namespace vllm_router {

// False: the body has to be read.
bool HeadersNameConversation(std::span<const HeaderField> headers);

// nullopt: it has none of these.
std::optional<uint64_t> ConversationOf(const RequestView& request);
// The parts of that: by a name in the headers; and by the body, of which there has to be one, whatever the headers say.
std::optional<uint64_t> ConversationInHeaders(std::span<const HeaderField> headers);
std::optional<uint64_t> ConversationInBody(const RequestView& request);

}  // namespace vllm_router
