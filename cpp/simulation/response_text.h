// The simulated worker's stand-ins for a tokenizer and for a model, both pure functions.
//
// RemoteTokenizer: text is cut into windows of four bytes; a token's id is its window read as a
// little-endian number, the last one filled up with zeros. About as many tokens as a real tokenizer
// gives for English, reversible, and the tokens of a text's prefix are a prefix of its tokens, as a
// prefix cache needs.
//
//   "Hello worlds"  ->  "Hell" "o wo" "rlds"  ->  0x6c6c6548 0x6f77206f 0x73646c72
//
// Model: token k of a response is one of 64 words of three letters behind a blank, four bytes and
// therefore exactly one token, chosen by a hash of (seed, k). The seed is a hash of the prompt: the same
// prompt always has the same response.
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
// Reversed: token ids to bytes, without the zeros that fill up the last token.
std::string TextOfTokens(std::span<const uint32_t> tokens);

// The seed of the response to this prompt; choices 0, 1, … are responses to the same prompt (`n`).
uint64_t AnswerSeed(const SimulatedPrompt& prompt, size_t choice);
// 64 pseudorandom bits for this number: they choose tokens and make embeddings.
uint64_t AnswerDraw(uint64_t seed, size_t number);
// Four bytes of text (a garbage token: eight) that need no escaping in JSON.
std::string_view AnswerToken(uint64_t seed, size_t token);
void AppendAnswer(uint64_t seed, size_t tokens, std::string* text);

// Continues `chain`, the prompt's block chain, over the text of its response, so that a prompt that repeats
// both finds both in the cache. `tokens`, unless null: appends the tokens behind the prompt's last full
// block.
void AppendTextChain(
    const SimulatedPrompt& prompt, std::string_view response, size_t block_tokens,
    std::vector<uint64_t>* chain, std::vector<uint32_t>* tokens = nullptr);
// The same with the first `answer_tokens` tokens of the generated response.
void AppendAnswerChain(
    const SimulatedPrompt& prompt, uint64_t seed, size_t answer_tokens, size_t block_tokens,
    std::vector<uint64_t>* chain, std::vector<uint32_t>* tokens = nullptr);

}  // namespace vllm_router
