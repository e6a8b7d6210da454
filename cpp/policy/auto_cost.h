// AutoCost: what a request costs on a worker under the policy auto, itself and all others. One sum in prefill tokens.
//
//   cost(w) = ((first + share + place) / s + later + whole + even + evict) * slow + l
//
//   first   q + U + 1.5 * S                          its own first token: what waits there, its prompt, a step and a half
//   share   k * U + min(1, p * G) * Um * k           those that wait share the step that it lengthens
//   place   0.01 * L * r * r / (rm + 1)              places and memory run out
//   later   rate * G * x * x / 4                     requests that come while it is computed
//           + 1.5 * M * r * G                        and while it decodes
//   whole   0.03 * (O * (S + M * r) + U * r)         whole responses: its own, and those that it slows down
//   even    (O * M + U) * min(4, sent)               a placed chat stays: what was sent is balanced, not what is open now
//   evict   min(8, 10 * v) * (U - U')                a second copy of a prefix drives out another one
//
//   of the worker w
//   q     prompt tokens sent to w that still wait for their first token
//   k     requests on w without a first token
//   U     tokens of this prompt that w would compute: all but what it holds
//   r, c  open requests on w, and their prompt tokens
//   S     D * r + E * c                              what decoding adds to a step of w
//   s     weight of w. It divides the work that waits. Running work reflects the speed already
//   sent  work that w was sent, by the mean of all; a worker that is new: 0. At the only holder of a prompt that nobody
//         else has open, without what the conversation sent there itself, which is no reason to leave: at most
//         H * (1 + O * M / max(Um, O)) / s, for the H tokens that no other worker holds
//   slow  times of w by those expected, compared with the other workers that were measured; 1 where weights tell
//         workers apart
//   l     --lora-load-tokens for w that would have to load the request's adapter where others have it; else 0
//
//   of the fleet and the request
//   U'    the least U
//   x     U' + (U - U') / (1 + 3 * n)                n open requests share the known part of this prompt, so a copy pays
//   Um, O mean uncached tokens and output tokens of a request
//   rm, cm, L  means of r and c, and of prompt tokens per open request
//   M     D + E * P                                  what this request of P tokens will add to a step
//   rate  requests per worker in the time of one prefill token
//   p     min(0.95, rate * Um)                       share of their time that workers compute prompts
//   G     min(20, (A + D * rm + E * cm) / A / (1 - p))   how much longer everything takes than in an idle fleet
//   v     share of repeated blocks that no worker has any more
//
// A, D, E: a step, a request and a token of context in it, in prefill tokens (AutoEngine). (Of requests that only a poll
// tells of, q and c are not known: each counts as Um, if it waits, and as L.)
//
// The origin of the terms: docs/reference/policies.md. Cost: a few ns per worker; a loop over workers is vector code.
// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policy/auto.h"
#include "worker/worker_load.h"

namespace vllm_router {

// What an engine's step takes, in the time of a prefill token; the engine model's preset h200_32b.
struct AutoEngine {
  double token_s = 80e-6;
  double step = 150;
  double request = 0.625;
  double context = 0.0009125;  // per token
};
inline constexpr AutoEngine kAutoEngine;
inline constexpr double kAutoMostBusy = 0.95;  // p at most

// Of a worker; exposed for tests.
struct AutoTerms {
  double queued = 0;    // q
  double waiting = 0;   // k
  double uncached = 0;  // U
  double requests = 0;  // r
  double context = 0;   // c
  double sent = 0;
  double slow = 1;
  double weight = 1;  // s
};

// Of the fleet and the request.
struct AutoMeans {
  double prompt = 0;          // P
  double least_uncached = 0;  // U'
  double sharers = 0;         // n
  double mean_uncached = 0;   // Um
  double mean_output = 0;     // O
  double mean_prompt = 0;     // L
  double mean_requests = 0;   // rm
  double mean_context = 0;    // cm
  double rate = 0;            // requests per worker and second
  double lost = 0;            // v
};

// What may differ from the formula above in a comparison.
struct AutoWeights {
  double most_sent = 4;  // `even` at most
  double sharers = 3;    // of n
  double later = 0.25;   // of x squared
  bool speeds = true;    // false: `slow` is 1
};

// The loads of the eligible workers.
struct AutoLoads {
  int64_t requests = 0;  // all
  int64_t polled = 0;    // of them, those whose tokens are not known
  int64_t context = 0;   // tokens of the others

  void Add(const WorkerLoad::Reading& load) {
    requests += load.requests;
    polled += load.polled;
    context += load.context;
  }
  // L; of requests that none is open beside: their own prompt.
  double MeanPrompt(uint32_t own_tokens) const {
    const int64_t told = requests - polled;
    return told > 0 ? static_cast<double>(context) / static_cast<double>(told)
                    : static_cast<double>(own_tokens);
  }
};

// What a term costs, computed once for all workers.
struct AutoPrices {
  AutoPrices(const AutoMeans& means, AutoObjective objective, const AutoWeights& weights = {});

  double least_uncached;
  double copied;   // of U - U': 1 / (1 + 3 n)
  double more;     // M
  double later;    // of x squared
  double decode;   // of r
  double waiting;  // of k
  double place;    // of r squared
  double output;   // O
  double whole;
  double work;   // O * M, which sent multiplies with U
  double evict;  // of U - U'
  double own;    // of tokens that one worker alone holds: what their conversation has sent there, at most
  double most_sent;
};

inline double AutoCost(const AutoTerms& terms, const AutoPrices& prices) {
  const double step = kAutoEngine.request * terms.requests + kAutoEngine.context * terms.context;
  const double beyond = terms.uncached - prices.least_uncached;
  const double delays = prices.least_uncached + beyond * prices.copied;
  const double first = terms.queued + terms.uncached + 1.5 * step;
  const double share = (terms.uncached + prices.waiting) * terms.waiting;
  const double place = prices.place * terms.requests * terms.requests;
  const double later = prices.later * delays * delays + prices.decode * terms.requests;
  const double whole = prices.whole * (prices.output * (step + prices.more * terms.requests) +
                                       terms.uncached * terms.requests);
  const double even = (prices.work + terms.uncached) * std::min(prices.most_sent, terms.sent);
  const double evict = prices.evict * beyond;
  return ((first + share + place) / terms.weight + later + whole + even + evict) * terms.slow;
}

}  // namespace vllm_router
