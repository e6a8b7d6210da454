// RoutingText: the text that prefix-matching policies compare. One canonical byte string per request,
// such that turn N+1 of a conversation extends the text of turn N, for any endpoint and any order of
// members:
//
//   text    = [context] lead [tools] *item            lead = the leading run of system and developer items;
//             [context] tools lead *item              where the model's template has them so (tool_order.h)
//   item    = RS role [":" name] *part                RS 0x1E, US 0x1F, GS 0x1D
//   part    = US text  /  GS tag ":" value            tag: image, video, audio, file, call, result, reasoning, other
//   tools   = RS "tools" US json
//   context = RS "context" *(US name "=" value)       cache_salt, chat_template, chat_template_kwargs, documents,
//                                                     reasoning_effort: those that are there
//
//   {"messages": [{"role": "system", "content": "Be kind."},      RS system US Be kind.
//                 {"role": "user", "content": "Hello!"}]}    ->   RS user US Hello!
//
// Prompts without roles (completions, /generate, embeddings, rerank) are themselves the text; prompts of
// token ids have none, and are kept as ids. Media count by identity: their uuid, else the XXH3-128 of
// their base64 text, else their URL or file id. Strings are unescaped, other JSON is as received without
// blanks. The model is not in it; a user that keeps several models in one structure requests a scope in
// front. docs/reference/routing_text.md has the table of members.
//
// Built in the pass of ParseRequestFields() over the body, without a DOM; one copy of the prompt.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/routing_key.h"

namespace vllm_router {

inline constexpr char kRoutingItem = '\x1e';  // begins each item of a text
inline constexpr size_t kDefaultRoutingTextLimit = 4 * 1024 * 1024;
inline constexpr size_t kMinRoutingTextLimit = 1024;
inline constexpr size_t kMaxRoutingTextLimit = 1024 * 1024 * 1024;

struct RoutingText {
  enum class Kind : uint8_t {
    kMissing,  // no prompt, or a malformed one
    kText,
    kTokens,
  };
  Kind kind = Kind::kMissing;
  bool framed = false;              // the text consists of items
  size_t scope = 0;                 // bytes or ids before the prompt, if requested
  std::string text;                 // kText; cut off at the limit
  std::vector<uint32_t> token_ids;  // kTokens
  std::string cache_salt;           // empty: none. Of a chat it is part of the text as well.
  uint32_t media = 0;               // images, videos, audio clips and files

  // How a worker gives the token ids of the text (tokenize_call.h). Missing if none can: the text was cut, or has parts
  // that the call does not support (media, documents, another API's system text), or extends a stored response.
  std::optional<TokenCall> token_call;
  // Of a rendered request: members that a chat template may print besides the text. Equal texts have equal ids only if
  // these are equal.
  std::string render_options;
  bool lacks_tool_order = false;  // it has tools and a lead, whose order is not known for its model
};

// Keeps prompts of different models (and of different salts, where the text does not have the salt
// already) apart: bytes, or a page of ids, to precede the prompt. Empty when both are empty.
std::string TextScope(std::string_view model, std::string_view salt);
std::array<uint32_t, Prompt::kScopeTokens> TokenScope(std::string_view model, std::string_view salt);

}  // namespace vllm_router
