// auto: the worker where this request costs everybody least. One sum in prefill tokens, lower wins; no thresholds and
// nothing to tune.
//
//   cost(w) = (q + U * (1 + r / 10)) / s + 0.05 * (c + r * L)
//
//   q   prompt tokens sent to w that still wait for their first token       w's own wait
//   U   tokens of this prompt that w would compute: all but what it holds    this request's, and for each of the r
//   r   open requests on w                                                   that run there a tenth more: its prompt
//                                                                            stretches their steps, takes their blocks
//   c   prompt tokens of w's open requests; L their mean over the fleet      decoding beside many and long ones is slow
//   s   weight of w. Only work that waits is divided by it: a faster worker has fewer open requests for the same rate
//       of arrivals as it is, and dividing those too would count its speed twice.
//
//   P 4096, L 8000           q      U      r    c            cost
//   A holds 3584 of it     2000    512     6   48000         2819 + 4800 = 7619
//   B holds nothing           0   4096     1    4000         4506 +  600 = 5106
//   C holds half of it        0   2048     2   16000         2458 + 1600 = 4058   <- C
//
// Ties go by the least-loaded order. Whoever gets the request has its blocks from then on, and those of its answer when
// it ends, if whoever finishes the ticket knows them, as the replay does. Why these two weights: docs/reference/policies.md.
//
// Cost: a match, 0.1 to 0.5 us, O(eligible), and a record, 3 to 8 ns per block. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "index/block_cache_tracker.h"
#include "policy/policy.h"

namespace vllm_router {

// What `cost` is made of; exposed for replay and tests.
struct AutoTerms {
  double queued = 0;       // q
  double uncached = 0;     // U
  double requests = 0;     // r
  double context = 0;      // c
  double mean_prompt = 0;  // L
  double weight = 1;       // s
};
double AutoCost(const AutoTerms& terms);
// The terms that a worker's load tells: all but uncached and mean_prompt.
AutoTerms LoadTerms(const Worker& worker);
// Over the open requests of the fleet's eligible workers; of the request itself where there are none.
double MeanPrompt(const FleetView& fleet, uint32_t prompt_tokens);

std::unique_ptr<Policy> MakeAuto(const BlockCacheTrackerOptions& tracker, uint64_t seed);

}  // namespace vllm_router
