// auto: the worker where this request has the lowest total cost, for itself and for all others
// (policy/auto_cost.h). No thresholds and no tuning.
//
// Ties go to a worker that has the adapter, then by the least-loaded order. The worker that gets the request holds its
// blocks from then on, and those of a mean response.
//
// Cost: a match, 0.1 to 0.5 us, O(eligible), and a record, 3 to 8 ns per block. Some 400 KiB. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

namespace vllm_router {

class KvIndex;
class Policy;
struct AutoWeights;
struct PolicyEntry;
struct PolicyOptions;

enum class AutoObjective : uint8_t {
  kBalanced,  // time to the first token and to the last
  kTtft,      // time to the first token
};

PolicyEntry AutoEntry();

// With other weights than the policy has, for comparison.
std::unique_ptr<Policy> MakeAuto(
    const PolicyOptions& options, std::shared_ptr<KvIndex> index, const AutoWeights& weights);

}  // namespace vllm_router
