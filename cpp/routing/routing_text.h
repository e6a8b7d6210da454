// RoutingText: what policies that match prefixes compare. One canonical byte string per request, such that turn N+1 of a
// conversation extends the text of turn N, whatever endpoint and whatever order of members the client chose:
//
//   text    = [context] lead [tools] *item            lead = the leading run of system and developer items
//   item    = RS role [":" name] *part                RS 0x1E, US 0x1F, GS 0x1D
//   part    = US text  /  GS tag ":" value            tag: image, video, audio, file, call, result, reasoning, other
//   tools   = RS "tools" US json
//   context = RS "context" *(US name "=" value)       cache_salt, chat_template, chat_template_kwargs, documents,
//                                                     reasoning_effort: those that are there
//
//   {"messages": [{"role": "system", "content": "Be kind."},      RS system US Be kind.
//                 {"role": "user", "content": "Hello!"}]}    ->   RS user US Hello!
//
// Prompts without roles (completions, /generate, embeddings, rerank) are themselves the text; prompts of token ids have
// none, and are kept as ids. Media count by identity: their uuid, else the XXH3-128 of their base64 text, else their URL
// or file id. Strings are unescaped, other JSON is as received without blanks. The model is not in it: what is learned
// belongs to one model. docs/reference/routing_text.md has the table of members.
//
// Built in the pass of ParseRequestFields() over the body, without a DOM; one copy of the prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vllm_router {

inline constexpr size_t kDefaultRoutingTextLimit = 4 * 1024 * 1024;

struct RoutingText {
  enum class Kind : uint8_t {
    kMissing,  // no prompt, or one that does not hold together
    kText,
    kTokens,
  };
  Kind kind = Kind::kMissing;
  std::string text;                 // kText; cut off at the limit
  std::vector<uint32_t> token_ids;  // kTokens
  std::string cache_salt;           // empty: none. Of a chat it is part of the text as well.
  uint32_t media = 0;               // images, videos, audio clips and files
};

}  // namespace vllm_router
