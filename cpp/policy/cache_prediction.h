// CachePrediction: what a decision expected of caches, in prompt tokens, beside what the worker then reported.
//
//   w0  holds 1,740 of the prompt's 1,893 tokens, 4 open requests    chosen          predicted 1740
//   w1  holds 1,888 of them, 9 open requests                         best match      foregone   148
//   w0's response reports 1,712 cached tokens                                        miss        28
//
// Policies match bytes, tokens or blocks. Tokens count as they are, and a block of token ids has the block size. Of text,
// whose tokens only the worker counts, the same share of the prompt is taken as was matched; without a report of the
// prompt's size, four bytes are a token. Pure functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "policy/decision.h"
#include "policy/stats_writer.h"

namespace vllm_router {

struct CachePrediction {
  uint64_t cached = 0;  // tokens that the chosen worker was expected to have
  uint64_t best = 0;    // tokens that some eligible worker was expected to have; at least `cached`

  // What load was preferred to.
  uint64_t foregone() const { return best - cached; }
  // The error of the prediction.
  uint64_t MissOf(uint64_t reported) const { return cached > reported ? cached - reported : 0; }
};

// `prompt_tokens`: as reported; `block_tokens`: of the router's blocks. nullopt: the policy matched nothing.
std::optional<CachePrediction> PredictionOf(
    const Decision& decision, std::optional<uint64_t> prompt_tokens, uint32_t block_tokens);

// The sums of a policy that matches prompts. Thread-safe; a request costs an addition per sum that it changes.
class CachePredictionSums {
 public:
  // A request has ended.
  void Count(const Decision& decision, const Outcome& outcome, uint32_t block_tokens);
  void Report(StatsWriter* writer) const;  // as group "cache_prediction"

  // Of requests whose response reports cached tokens.
  uint64_t predicted() const { return predicted_.load(std::memory_order_relaxed); }
  uint64_t reported() const { return reported_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> predicted_{0};
  std::atomic<uint64_t> reported_{0};
  std::atomic<uint64_t> missed_{0};
  std::atomic<uint64_t> overpredicted_{0};  // requests
  std::atomic<uint64_t> foregone_{0};
};

}  // namespace vllm_router
