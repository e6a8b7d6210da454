// The simulated worker's stand-in for a tokenizer, and the prompts that it makes; pure functions. generated_text.h has that
// for a model.
//
// Text is cut into windows of four bytes; a token's id is its window read as a
// little-endian number, the last one filled up with zeros. About as many tokens as a real tokenizer
// gives for English, reversible, and the tokens of a text's prefix are a prefix of its tokens, as a
// prefix cache needs.
//
//   "Hello worlds"  ->  "Hell" "o wo" "rlds"  ->  0x6c6c6548 0x6f77206f 0x73646c72
//
// A token of fewer bytes than four may stand anywhere, since its zeros are no text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

// The prompt that a simulated worker continues.
struct SimulatedPrompt {
  static constexpr size_t kTokenBytes = 4;

  std::vector<uint32_t> tokens;
  size_t last_token_bytes =
      kTokenBytes;       // 1..4: how much of the last token is text; 4 when given as token ids
  bool garbage = false;  // it is continued from KV blocks that are not its own: every token is " GARBAGE"

  static SimulatedPrompt FromText(std::string_view text);
};

std::vector<uint32_t> TokensOfText(std::string_view text);
// Reversed: token ids to bytes, without the zeros that fill up a token.
std::string TextOfTokens(std::span<const uint32_t> tokens);

// A hash of the prompt: of its embedding, and of the names in its response; choices 0, 1, … are responses to the same
// prompt (`n`).
uint64_t AnswerSeed(const SimulatedPrompt& prompt, size_t choice);
// 64 pseudorandom bits for this number: they choose tokens and make embeddings.
uint64_t AnswerDraw(uint64_t seed, size_t number);

// Continues `chain`, the prompt's block chain, over the text of its response, so that a prompt that repeats
// both finds both in the cache. `tokens`, unless null: appends the tokens behind the prompt's last full
// block.
void AppendTextChain(
    const SimulatedPrompt& prompt, std::string_view response, size_t block_tokens,
    std::vector<uint64_t>* chain, std::vector<uint32_t>* tokens = nullptr);

}  // namespace vllm_router
