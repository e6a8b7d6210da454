// kv_overlap: the worker with the highest score of cached tokens, load and health, as long as some worker
// holds enough of the prompt. Below that a hash ring of prefixes decides, as in prefix_aware.
//
//   score(w) = kv_overlap_weight * e / t_max + kv_load_weight * (1 - r / r_max) + kv_health_weight * h
//
//   t      tokens of the prompt that w holds        r   open requests on w, by weight
//   e      the same, each times the weight of its   h   share of w's last 100 requests that ended well
//          tier: GPU or storage
//
//   t      tier      r   h      score, weights 0.6, 0.3, 0.1
//   2048   GPU       8   1      0.6 * 1                    + 0.3 * 0    + 0.1    = 0.70   <-
//    512   GPU       2   1      0.6 * 0.25                 + 0.3 * 0.75 + 0.1    = 0.475
//      0             0   0.95   0                          + 0.3        + 0.095  = 0.395
//
// Only workers below kv_load_factor times the mean load are compared, so that the sole holder of a hot
// prefix does not get all of its requests.
//
// Cost: a match, 0.1 to 0.5 us, O(eligible), and a record, 3 to 8 ns per block. Thread-safe.
#pragma once

#include <cstdint>

namespace vllm_router {

struct PolicyEntry;

// What kv_min_overlap_threshold is a share of.
enum class OverlapBasis : uint8_t {
  kPrompt,    // the prompt's tokens
  kFleetMax,  // the most tokens that a worker holds: true whenever any worker holds anything on its GPU
};

struct OverlapTerms {
  double credit = 0;       // e
  double most_tokens = 0;  // t_max; 0: no worker holds anything
  double load = 0;         // r
  double most_load = 0;    // r_max
  double health = 1;       // h
};

struct OverlapWeights {
  double overlap = 0.6;
  double load = 0.3;
  double health = 0.1;
};

// 0 to 1.
double OverlapScore(const OverlapTerms& terms, const OverlapWeights& weights);

PolicyEntry KvOverlapEntry();

}  // namespace vllm_router
