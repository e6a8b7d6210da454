#include "policy/cache_prediction.h"

#include <algorithm>

namespace vllm_router {
namespace {

constexpr uint64_t kBytesPerToken = 4;
constexpr uint64_t kOverpredicted = 10;  // a miss of more than one in so many tokens of the prompt

// Tokens of `matched` units.
uint64_t TokensOf(
    const Decision& decision, uint64_t matched, std::optional<uint64_t> prompt_tokens,
    uint32_t block_tokens) {
  if (decision.unit == MatchUnit::kTokens) return matched;
  const bool is_blocks = decision.unit == MatchUnit::kBlocks;
  if (is_blocks && decision.blocks_are_tokens) return matched * block_tokens;
  if (!prompt_tokens) return is_blocks ? matched * block_tokens : matched / kBytesPerToken;
  if (decision.total == 0) return 0;
  const double share = static_cast<double>(matched) / static_cast<double>(decision.total);
  return static_cast<uint64_t>(share * static_cast<double>(*prompt_tokens));
}

}  // namespace

std::optional<CachePrediction> PredictionOf(
    const Decision& decision, std::optional<uint64_t> prompt_tokens, uint32_t block_tokens) {
  if (decision.unit == MatchUnit::kNone) return std::nullopt;
  const uint64_t best = std::max(decision.matched, decision.best_matched);
  return CachePrediction{
      .cached = TokensOf(decision, decision.matched, prompt_tokens, block_tokens),
      .best = TokensOf(decision, best, prompt_tokens, block_tokens)};
}

void CachePredictionSums::Count(const Decision& decision, const Outcome& outcome, uint32_t block_tokens) {
  if (!outcome.cached_tokens && decision.best_matched <= decision.matched) return;
  const std::optional<CachePrediction> prediction =
      PredictionOf(decision, outcome.prompt_tokens, block_tokens);
  if (!prediction) return;
  const auto add = [](std::atomic<uint64_t>& sum, uint64_t tokens) {
    if (tokens != 0) sum.fetch_add(tokens, std::memory_order_relaxed);
  };
  if (ComputedPrompt(outcome)) add(foregone_, prediction->foregone());
  if (!outcome.cached_tokens) return;
  add(predicted_, prediction->cached);
  add(reported_, *outcome.cached_tokens);
  const uint64_t miss = prediction->MissOf(*outcome.cached_tokens);
  add(missed_, miss);
  if (miss * kOverpredicted > outcome.prompt_tokens.value_or(prediction->cached)) add(overpredicted_, 1);
}

void CachePredictionSums::Report(StatsWriter* writer) const {
  const auto read = [](const std::atomic<uint64_t>& sum) { return sum.load(std::memory_order_relaxed); };
  writer->Group("cache_prediction");
  writer->Counter(
      {"predicted_tokens", "predicted_cached_tokens_total",
       "Prompt tokens that the policy predicted to be cached, of requests whose response reports cached "
       "tokens."},
      read(predicted_));
  writer->Counter(
      {"reported_tokens", "reported_cached_tokens_total",
       "Of the requests of predicted_cached_tokens_total: prompt tokens that workers reported as cached. Far "
       "fewer than predicted: workers forget sooner than the router expects."},
      read(reported_));
  writer->Counter(
      {"miss_tokens", "miss_tokens_total",
       "Prompt tokens that the policy predicted to be cached and the worker did not report as cached."},
      read(missed_));
  writer->Counter(
      {"overpredicted_requests", "overpredicted_requests_total",
       "Requests whose worker reported fewer cached tokens than predicted, by more than 10 % of the prompt."},
      read(overpredicted_));
  writer->Counter(
      {"foregone_tokens", "foregone_tokens_total",
       "Prompt tokens that another eligible worker was expected to have cached beyond the chosen one."},
      read(foregone_));
}

}  // namespace vllm_router
