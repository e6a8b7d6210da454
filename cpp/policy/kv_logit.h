// kv_logit: the worker with the lowest logit, which is NVIDIA Dynamo's cost in blocks. What its cache
// holds counts by the tier it is on.
//
//   logit(w) = (overlap_weight * prefill / B + decode) / s
//   prefill  = max(0, q + P - B * (gpu + host_credit * host + disk_credit * disk + multiplier * shared))
//
//   B      tokens per block                        gpu    blocks of the prompt without a gap on the GPU
//   P      tokens of the prompt                    host   those beyond, that are in the host's memory
//   q      prompt tokens on w without first token  disk   those beyond, on w's own storage
//   decode distinct blocks of w's open requests    s      weight of w
//          and this one
//   shared blocks beyond all these that any worker can load from a shared pool
//
//   P 640, B 16           q     gpu   decode   logit
//   A                  3200      30      500   (3200 + 640 - 480) / 16 + 500 = 710
//   B                     0       0      100              640 / 16 + 100 = 140   <- B
//
// With a temperature T above 0 it draws, with the weight exp(-(logit / (largest - smallest)) / T).
//
// kv_aware is the same policy with the names and defaults of vllm-project/router: router_temperature,
// kv_penalty_host and kv_penalty_disk, which are credits in spite of their names.
//
// Cost: a match, 0.1 to 0.5 us, O(eligible), and a record, 3 to 8 ns per block; counting distinct blocks
// 40 ns per block. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "policy/policy.h"

namespace vllm_router {

struct PolicyEntry;

// Of the tokens of a prompt, what is counted as work ahead of it.
enum class LogitPrefill : uint8_t {
  kUncached,  // what its worker has to compute
  kPrompt,    // all of it, whatever is on the GPU
};

// The open requests that a worker decodes for.
enum class LogitDecode : uint8_t {
  kActive,     // those that it has
  kPotential,  // and this one
};

struct LogitTerms {
  double queued = 0;  // tokens
  double prompt = 0;
  double gpu = 0;  // tokens of the prompt that are cached there; each token counts once
  double host = 0;
  double disk = 0;
  double shared = 0;
  double decode = 0;  // blocks
  double block = 16;  // tokens
  double weight = 1;
};

struct LogitWeights {
  double overlap = 1;
  double host_credit = 0.75;
  double disk_credit = 0.25;
  double shared_credit = 0;
  LogitPrefill prefill = LogitPrefill::kUncached;
};

double LogitCost(const LogitTerms& terms, const LogitWeights& weights);

// The weights of a draw among `costs` at a temperature above 0, the largest of them 1: all equal if the
// costs are. REQUIRES: not empty, all finite. `weights` may be the same memory.
void SoftmaxOfCosts(std::span<const double> costs, double temperature, std::span<double> weights);

PolicyEntry KvLogitEntry();
PolicyEntry KvAwareEntry();

}  // namespace vllm_router
