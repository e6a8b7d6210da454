// MergeResponses: what both workers of a pair say of the log probabilities of one request, as one engine says it.
//
//   prefill   tokens  he llo !         its prompt, and the one token that it generates
//   decode    tokens  ! ! ?            what it generates; of a prompt that it computed again, that too: he llo ! ! ?
//   merged    tokens  he llo ! ! ?
//
// The prompt's part is prefill's, since prefill has computed the whole prompt; decode has only what was not transferred,
// unless its engine computes a prompt again for its log probabilities (vLLM 0.32 does). By route:
//
//   chat          prompt_logprobs of the response
//   completions   prompt_logprobs of each choice, and of a prompt that is echoed the four lists of logprobs: where decode
//                 has not the prompt itself, its text_offset is shifted by that of prefill's own token
//   /generate     meta_info's input_token_logprobs, input_top_logprobs and input_token_ids_logprobs
//
// Values are raw slices: no number and no text is written again but text_offset, and all other bytes of decode's
// response stay. Both texts are checked to be JSON, so a merged response is. A response of an unexpected shape, or with
// one of these members twice, leaves decode's as it is. For whole responses with a 2xx status, neither compressed nor
// event streams. Pure; any thread. Cost: a copy and some passes, about 4 ns per byte of both responses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "disaggregation/pd_plan.h"
#include "routing/body_map.h"

namespace vllm_router {

// A request whose responses may have something to merge: log probabilities of its prompt. Those of generated tokens are
// decode's alone. Each of repeated members is looked at.
bool WantsMerge(PdRoute route, const BodyMap& request);

// Decode's response with prefill's part, or as it is if prefill has nothing to add. nullopt: of an unexpected shape.
std::optional<std::string> MergeResponses(
    PdRoute route, std::string_view prefill_response, std::string_view decode_response);

// For --pd-usage merge, of chats and completions: decode's response with the prompt_tokens of prefill's usage and the
// total of both. Decode's prompt_tokens_details stay, as vLLM's decode worker reports prefill's hits there; those
// without a count of cached tokens (-1 is none) become prefill's.
std::optional<std::string> MergeUsage(std::string_view prefill_response, std::string_view decode_response);

// What MergeUsage needs of prefill's response: an object with its usage alone, or an empty text if it has none or a
// long one.
std::string UsageOf(std::string_view prefill_response);

}  // namespace vllm_router
