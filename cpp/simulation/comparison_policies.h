// Comparison policies: the policies of other routers, as literally as a replay needs them, for
// comparison with our own. Only replay offers them, no server does, and their weaknesses are kept.
//
// | name                           | origin and rule                                                                       |
// |--------------------------------|---------------------------------------------------------------------------------------|
// | compare_cache_aware_reference  | vllm-project/router, its code's defaults 0.3 / 64 / 1.5: one tree, a node belongs to  |
// |                                |   its creator; balance by load while the fleet is uneven; ties to the first           |
// | compare_cache_aware_documented | the same with its documents' defaults 0.5 / 32 / 1.1                                  |
// | compare_smg                    | SMG: all holders of the longest match, the least loaded; its load alone is checked    |
// | compare_dynamo                 | Dynamo: queued prefill and what is new, in blocks, and active blocks                  |
// | compare_lmetric                | LMetric: (queued prefill + uncached) * (requests + 1)                                 |
// | compare_auto_v2                | auto's second version, below                                                          |
// | compare_auto_v1                | its first version: (q + U * (1 + r / 10)) / s + 0.05 * (c + r * L)                    |
// | compare_auto_b0                | the second one without the price of later work, U * r: a control, since it collapses  |
// | compare_auto_one_speed         | auto, for which all workers are equally fast; a control, as the next three            |
// | compare_auto_no_balance        | auto without its balance of what was sent                                             |
// | compare_auto_no_copies         | auto, for which open requests share no prefix                                         |
// | compare_auto_dear_moves        | auto with four times its price of the work that later requests wait for               |
// | compare_seed_000               | longest match above 0.3 unless its load is above 1.25 times the mean, else least load |
// | compare_seed_004               | 0.6 * match / longest match + 0.3 * (1 - load / greatest load)                        |
//
// The second version, in the terms of policy/auto.h:
//
//   (q + k * Um / 2 + U * (1 + 0.7 * k) + 0.01 * L * r * r / (rm + 1)) / s + 0.125 * U * r + 0.02 * (c + r * L)
//
// Those that score every worker read the caches from a KnownCaches if there is one (KV events, with
// their delay), and else learn from what they sent, as ours do. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "policy/policy_options.h"
#include "policy/pool.h"

namespace vllm_router {

// The workers' cache contents, from another source than a policy's own decisions.
class KnownCaches {
 public:
  virtual ~KnownCaches() = default;
  // Leading blocks that the worker is known to hold.
  virtual uint32_t Held(const Worker& worker, std::span<const BlockHash> blocks) const = 0;
};

std::span<const std::string_view> ComparisonPolicyNames();
bool IsComparisonPolicy(std::string_view name);

// Uses the options block_size, max_blocks_per_worker and seed; those that differ from auto in a weight read a pool's
// index, as auto does, the others `caches`. REQUIRES: IsComparisonPolicy(options.policy).
PolicyParts MakeComparisonPolicy(const PolicyOptions& options, const KnownCaches* caches);

}  // namespace vllm_router
