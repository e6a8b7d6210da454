// Claude Code puts a text block in front of its system prompt, which tells Anthropic's API whom to bill:
//
//   "system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.197.fe3; cch=e3a2f;"},
//             {"type":"text","text":"You are Claude Code …"}]
//
// It differs between sessions, and with `cch` between requests. vLLM drops it before it makes the prompt, so it is no
// part of a prompt's text for routing; for engines that keep it, and so cache nothing behind it, it can be removed from
// the body (--strip-anthropic-billing-header). Only blocks of the list `system` count, as in vLLM; the same text
// elsewhere is a text like any other.
//
// Pure; any thread. Cost of BillingHeaderEdits(): a pass over `system`.
#pragma once

#include <string_view>
#include <vector>

#include "routing/body_map.h"
#include "routing/body_patch.h"

namespace vllm_router {

// `text`: of a text block of `system`.
constexpr bool IsBillingHeader(std::string_view text) {
  return text.starts_with("x-anthropic-billing-header:");
}

// For each copy of the body: they remove such blocks, in order. None if there is no such block, or where two parsers
// may read different things.
std::vector<BodyInsertion> BillingHeaderEdits(const BodyMap& body);

}  // namespace vllm_router
