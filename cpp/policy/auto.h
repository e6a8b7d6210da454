// auto: the worker where this request has the lowest total cost. One sum in prefill tokens, lower wins;
// no thresholds and no tuning.
//
//   cost(w) = (q + k * Um / 2 + U * (1 + 0.7 * k) + 0.01 * L * r * r / (rm + 1)) / s
//             + 0.125 * U * r + 0.02 * (c + r * L) + l
//
//   q   prompt tokens sent to w that still wait for their first token       w's own wait
//   k   requests on w without a first token; Um what one of them lately     their share of the wait that q does not tell
//       had to compute, on average
//   U   tokens of this prompt that w would compute: all but what it holds    this request's wait; those k share the step
//   r   open requests on w; rm their mean over the fleet                     that it lengthens, those r pay for it later;
//                                                                            places and memory run out as r * r
//   c   prompt tokens of w's open requests; L their mean over the fleet      decoding beside many and long ones is slow
//       (of requests that only a poll tells of, q and c are not known: each counts as Um, if it waits, and as L)
//   l   --lora-load-tokens for w that would have to load the request's adapter where others have it; else 0
//   s   weight of w. It divides the work that waits, for computation or a slot. Running work reflects the
//       speed already: a faster worker has fewer open requests for the same rate of arrivals, and dividing
//       those too would count its speed twice.
//
//   P 4096, L 8000, Um 1000, rm 3    q   k      U      r    c            cost
//   A holds 3584 of it            2000   2    512     6   48000         4229 +  720 +  384 + 1920 = 7253
//   B holds nothing                  0   0   4096     1    4000         4096 +   20 +  512 +  240 = 4868
//   C holds half of it               0   0   2048     2   16000         2048 +   80 +  512 +  640 = 3280   <- C
//
// Ties go to a worker that has the adapter, then by the least-loaded order. The worker that gets the request holds its blocks from then on,
// and those of a mean response. The origin of the weights: docs/reference/policies.md.
//
// Cost: a match, 0.1 to 0.5 us, O(eligible), and a record, 3 to 8 ns per block. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "policy/kv_index.h"
#include "policy/policy.h"

namespace vllm_router {

struct PolicyEntry;

// The terms of `cost`; exposed for replay and tests.
struct AutoTerms {
  double queued = 0;         // q
  double waiting = 0;        // k
  double uncached = 0;       // U
  double requests = 0;       // r
  double context = 0;        // c
  double mean_uncached = 0;  // Um
  double mean_prompt = 0;    // L
  double mean_requests = 0;  // rm
  double weight = 1;         // s
};

// The weight of each of them.
struct AutoWeights {
  double ahead;    // of a mean uncached prompt, for each request that waits
  double waiting;  // of this prompt's uncached tokens, for each request that waits
  double running;  // the same, for each open request
  double context;  // a token of context, against one of prefill
  double crowd;    // a mean prompt, for each open request and as many others as a mean worker has
};
// For the first token and the whole response; and for the first token alone.
inline constexpr AutoWeights kAutoBalanced{0.5, 0.7, 0.125, 0.02, 0.01};
inline constexpr AutoWeights kAutoTtft{0.5, 1, 0.08, 0.005, 0.015};

inline double AutoCost(const AutoTerms& terms, const AutoWeights& weights) {
  const double ahead = terms.queued + weights.ahead * terms.waiting * terms.mean_uncached;
  const double own = terms.uncached * (1 + weights.waiting * terms.waiting);
  const double place = weights.crowd * terms.mean_prompt / (terms.mean_requests + 1);
  const double waits = ahead + own + place * terms.requests * terms.requests;
  const double later = weights.running * terms.uncached * terms.requests;
  const double decoding = weights.context * (terms.context + terms.requests * terms.mean_prompt);
  return waits / terms.weight + later + decoding;
}

// Over the eligible workers.
struct FleetMeans {
  double prompt;    // tokens per open request; of the request itself where there are none
  double requests;  // open, per worker
};

struct LoadSums {
  void Add(const WorkerLoad::Reading& load) {
    context += load.context;
    polled += load.polled;
    requests += load.requests;
    ++workers;
  }
  FleetMeans Means(uint32_t prompt_tokens) const;

  int64_t context = 0;
  int64_t polled = 0;
  int64_t requests = 0;
  size_t workers = 0;
};

FleetMeans MeansOf(const FleetView& fleet, uint32_t prompt_tokens);
// The terms that follow from the fleet and a worker's load: all but uncached. `weight` in thousandths.
inline AutoTerms LoadTerms(
    const WorkerLoad& load, uint32_t weight, const FleetMeans& means, double mean_uncached) {
  const WorkerLoad::Reading read = load.ReadForDecision();
  return {
      .queued = static_cast<double>(read.queued) + static_cast<double>(read.polled_waiting) * mean_uncached,
      .waiting = static_cast<double>(read.waiting),
      .requests = static_cast<double>(read.requests),
      .context = static_cast<double>(read.context) + static_cast<double>(read.polled) * means.prompt,
      .mean_uncached = mean_uncached,
      .mean_prompt = means.prompt,
      .mean_requests = means.requests,
      .weight = static_cast<double>(weight) / kWeightOne};
}

enum class AutoObjective : uint8_t {
  kBalanced,  // time to the first token and to the last
  kTtft,      // time to the first token
};

PolicyEntry AutoEntry();

}  // namespace vllm_router
