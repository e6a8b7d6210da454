// The members of a body that may hold a prompt without roles, best first: of several, the first of this
// list counts, whatever their order in the body. prompt_walker.h reads them.
//
//   {"queries": "Who wrote it?", "documents": [...]}   ->  kQueries: "Who wrote it?"
//
//   member                        of                                           its prompt
//   input                         embeddings, Responses                        text, ids, items
//   prompt                        completions, /generate                       text, ids
//   text, input_ids, token_ids,   /generate, vLLM's /inference/v1/generate     text; ids
//     prompt_token_ids
//   query, queries                rerank, score (SGLang's, vLLM's)             the text that each document is compared with
//   text_1, data_1                score (vLLM's)                               likewise
//   prompt_embeds                 completions (vLLM)                           the name of base64 data, by its digest
//   contents                      Gemini                                       messages, with `parts` for `content`
#pragma once

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "hashing/hash.h"

namespace vllm_router {

enum class PromptForm : uint8_t {
  kMessages,
  kInput,
  kPrompt,
  kText,
  kInputIds,
  kTokenIds,
  kPromptTokenIds,
  kQuery,
  kQueries,
  kText1,
  kData1,
  kPromptEmbeds,
  kContents,
  kNone,
};

inline constexpr std::array<std::string_view, static_cast<size_t>(PromptForm::kNone)> kPromptMembers = {
    "messages", "input",   "prompt", "text",   "input_ids",     "token_ids", "prompt_token_ids",
    "query",    "queries", "text_1", "data_1", "prompt_embeds", "contents"};

// kNone: the member holds no prompt.
inline PromptForm PromptFormOf(std::string_view member) {
  return static_cast<PromptForm>(std::ranges::find(kPromptMembers, member) - kPromptMembers.begin());
}

// One text against several others; it may be {"content": parts} as well as a string.
inline bool IsCompared(PromptForm form) { return form >= PromptForm::kQuery && form <= PromptForm::kData1; }

// The name used for base64 data, so that nothing large is kept.
inline std::string NameOfData(std::string_view base64) {
  const Hash128 hash = Xxh3Of128(base64);
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
  return std::string("xxh3:") + hex;
}

}  // namespace vllm_router
