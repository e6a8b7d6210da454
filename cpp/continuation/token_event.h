// TokenEvent: what an event of a stream of completions or chat completions says of token ids, and what its client sees of
// them.
//
//   chat         {"choices":[{"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2]}
//                {"choices":[{"delta":{"content":"Hi"},"token_ids":[7]}]}
//                {"choices":[{"delta":{},"finish_reason":null,"token_ids":[8]}]}      is there for its ids alone
//   completions  {"choices":[{"text":"Hi","prompt_token_ids":[1,2],"token_ids":[7]}]}
//
// An engine that was not asked for ids writes null in place of each array, and no event that is there for ids alone: so
// vLLM 0.32 does. Pure; any thread. Cost: a pass over the event and some allocations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

struct TokenEvent {
  // Arrays, as spelled; empty: it has none.
  std::string_view prompt;
  std::string_view output;
  std::string_view usage;         // an object, as spelled; empty: none
  std::string_view text_offsets;  // of the log probabilities of a completion, likewise
  bool has_choice = false;
  bool has_several = false;  // choices; ids are those of the first
  bool is_of_ids = false;    // it is there for its ids alone
};

// `data`: of the event. nullopt: not such an event.
std::optional<TokenEvent> ReadTokenEvent(std::string_view data);

// The data of an event that has it in one line; empty: it has not, or has none.
std::string_view OneLineData(std::string_view event);

// What of a client's stream came before, where a request for the rest goes on.
struct TokensBefore {
  uint64_t prompt = 0;     // tokens
  uint64_t output = 0;     // likewise
  uint64_t reasoning = 0;  // of these
  uint64_t letters = 0;    // of text
};

// The usage of the whole, from that of the rest, whose prompt is all that came before. As it is, if a count is no number.
std::string UsageOfWhole(std::string_view usage, const TokensBefore& before);
// The places of tokens in the whole text, likewise.
std::string OffsetsInWhole(std::string_view offsets, const TokensBefore& before);

}  // namespace vllm_router
