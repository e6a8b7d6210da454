#include "simulation/response_text.h"

#include <bit>
#include <cstring>

#include "hashing/hash.h"
#include "simulation/block_chain.h"

namespace vllm_router {

static_assert(
    std::endian::native == std::endian::little, "token ids are windows of text as they lie in memory");

namespace {

constexpr uint64_t kGarbageSeed = 0x4741524241474521;  // "!EGABRAG": no prompt's, but for one in 2^64

// SplitMix64's finaliser: one word drawn per token costs nanoseconds, whatever the token's number.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<uint32_t> TokensOfText(std::string_view text) {
  std::vector<uint32_t> tokens(
      (text.size() + SimulatedPrompt::kTokenBytes - 1) / SimulatedPrompt::kTokenBytes);
  if (!text.empty()) std::memcpy(tokens.data(), text.data(), text.size());
  return tokens;
}

SimulatedPrompt SimulatedPrompt::FromText(std::string_view text) {
  const size_t rest = text.size() % kTokenBytes;
  return {TokensOfText(text), rest == 0 ? kTokenBytes : rest};
}

std::string TextOfTokens(std::span<const uint32_t> tokens) {
  std::string text(tokens.size() * SimulatedPrompt::kTokenBytes, '\0');
  if (!tokens.empty()) std::memcpy(text.data(), tokens.data(), text.size());
  std::erase(text, '\0');
  return text;
}

uint64_t AnswerSeed(const SimulatedPrompt& prompt, size_t choice) {
  if (prompt.garbage) return kGarbageSeed;
  return Mix(Xxh3(prompt.tokens.data(), prompt.tokens.size() * sizeof(uint32_t)) + choice);
}

uint64_t AnswerDraw(uint64_t seed, size_t number) { return Mix(seed + number * 0x9e3779b97f4a7c15u); }

void AppendTextChain(
    const SimulatedPrompt& prompt, std::string_view response, size_t block_tokens,
    std::vector<uint64_t>* chain, std::vector<uint32_t>* tokens) {
  // Starts after the last full block: the prompt's last tokens as text, then the response, cut anew,
  // because a response fills up the prompt's last window before it opens its own.
  std::span<const uint32_t> tail(prompt.tokens);
  tail = tail.subspan(tail.size() / block_tokens * block_tokens);
  if (tail.empty() && prompt.last_token_bytes != SimulatedPrompt::kTokenBytes)
    return;  // its last block ended with a padded token
  std::string text(reinterpret_cast<const char*>(tail.data()), tail.size_bytes());
  text.resize(text.size() - (SimulatedPrompt::kTokenBytes - prompt.last_token_bytes));
  text.append(response);
  text.resize(text.size() / SimulatedPrompt::kTokenBytes * SimulatedPrompt::kTokenBytes);
  const std::vector<uint32_t> behind = TokensOfText(text);
  AppendBlockChain(behind, block_tokens, chain);
  if (tokens != nullptr) tokens->insert(tokens->end(), behind.begin(), behind.end());
}

}  // namespace vllm_router
