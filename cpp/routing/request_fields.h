// RequestFields: the few members of a JSON body that routing uses, read in one pass without a DOM.
// Top-level members only (and one each of session_params, metadata and conversation), so nothing that a
// user writes inside a prompt can steer a request.
//
//   {"model": "m", "messages": [ ... "user": "not me" ... ], "user": "ann"}   ->   model "m", user "ann"
//
// A repeated member: the last wins, as in Python's json. A member name with escapes counts as its
// unescaped form.
//
// Strictness: values that are read must be well-formed (UTF-8, closed strings, a comma or the closing
// brace after each member, nothing after the object). In skipped values only brackets are counted, so
// `{"a": tru}` passes. The worker parses the same bytes again and decides; routing must only never read
// a value where there is none.
//
// Cost: one simdjson on-demand pass, 0.5 to 1 us for 4 KB and 35 to 75 us for 400 KB, more with more
// escapes; also a copy when the body is not padded. On-demand parsing needs up to 4x the body as memory,
// hence kMaxParsedBodyBytes and a parser that is not kept after a large body. Any thread (one parser per
// thread).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.h"

namespace vllm_router {

// Longer bodies are not parsed: is_object is false and nothing is set. 8 MiB keeps a thread's parser
// below 32 MiB.
inline constexpr size_t kMaxParsedBodyBytes = kRoutedBodyBytes;

struct RequestFields {
  bool is_object = false;  // the body is one JSON object; when false nothing else is set

  // A string that is not blank, unchanged, or an integer as its decimal text; any other value counts as
  // none.
  std::optional<std::string> session_params_session_id;
  std::optional<std::string> user;
  std::optional<std::string> session_id;
  std::optional<std::string> user_id;
  std::optional<std::string> conversation_id;
  std::optional<std::string> prompt_cache_key;
  std::optional<std::string> conversation;  // itself, or the object's `id`
  std::optional<std::string>
      metadata_session_id;  // what metadata.user_id says of the session, as Claude Code has it

  std::optional<std::string> model;    // a string, blank or not
  std::optional<bool> stream;          // true or false
  std::optional<int32_t> priority;     // an integer of 32 bits
  std::optional<uint64_t> max_tokens;  // max_completion_tokens, else max_tokens; integers from 0 to 2^64 - 1
};

class ToolOrders;
struct RoutingText;

// Extra output of the pass: the prompt of a request to `path`, at most `limit` bytes of it; `scoped`:
// behind the scope of the body's model; `opening`: of a conversation only what precedes the model's first
// item; `tool_orders`: where the model's template prints tools, null: after the system prompt.
struct PromptWanted {
  std::string_view path;
  size_t limit;
  RoutingText* text;
  bool scoped = false;
  bool opening = false;
  const ToolOrders* tool_orders = nullptr;
};

struct PrefixAnchor;

// Likewise the input of its prefix digest, at most `limit` bytes.
struct PrefixWanted {
  size_t limit;
  PrefixAnchor* anchor;
};

// `padded`: kBodyPadding bytes after the text are readable; otherwise the text is copied first. Each
// value can be read once, so prompt and prefix together take two passes.
RequestFields ParseRequestFields(
    std::string_view body, bool padded, const PromptWanted* prompt = nullptr,
    const PrefixWanted* prefix = nullptr);

}  // namespace vllm_router
