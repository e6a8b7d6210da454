// Comparison policies: what other routers do, as literally as a replay needs it, so that anyone can put our own policies
// beside them. They are reachable in replay alone: no server offers them, and none of their weaknesses is mended here.
//
// | name                                | whose, and what                                                                   |
// |-------------------------------------|-----------------------------------------------------------------------------------|
// | compare_cache_aware_reference       | vllm-project/router, its code's defaults 0.3 / 64 / 1.5: one tree, a node belongs to |
// |                                     |   whoever created it; balance by load while the fleet is uneven; ties to the first |
// | compare_cache_aware_documented      | the same with its documents' defaults 0.5 / 32 / 1.1                              |
// | compare_smg                         | SMG: all holders of the longest match, the least loaded; gate on that worker only |
// | compare_dynamo                      | Dynamo: queued prefill and what is new, in blocks, and active blocks              |
// | compare_lmetric                     | LMetric: (queued prefill + uncached) * (requests + 1)                             |
// | compare_auto                        | our own auto, for what KV events are worth to it: ask for it with events          |
// | compare_auto_v1                     | auto's first version: (q + U * (1 + r / 10)) / s + 0.05 * (c + r * L)             |
// | compare_auto_b0                     | auto without the price of later work, U * r: a control, since it collapses        |
// | compare_seed_000                    | longest match above 0.3 unless its load is above 1.25 times the mean, else least load |
// | compare_seed_004                    | 0.6 * match / longest match + 0.3 * (1 - load / greatest load)                    |
//
// Those that score every worker take what is known of the caches from a KnownCaches where there is one (KV events, late as
// they are), and else learn it from what they sent, as ours do. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "policy/policy.h"
#include "policy/policy_factory.h"

namespace vllm_router {

// Who holds how much of a prompt, by other means than one's own decisions.
class KnownCaches {
 public:
  virtual ~KnownCaches() = default;
  // Leading blocks that the worker is known to hold.
  virtual uint32_t Held(const Worker& worker, std::span<const BlockHash> blocks) const = 0;
};

std::span<const std::string_view> ComparisonPolicyNames();
bool IsComparisonPolicy(std::string_view name);

// Of the options block_size, max_blocks_per_worker and seed are read. REQUIRES: IsComparisonPolicy(options.policy).
std::unique_ptr<Policy> MakeComparisonPolicy(const PolicyOptions& options, const KnownCaches* caches);

}  // namespace vllm_router
