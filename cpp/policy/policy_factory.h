// From a policy's name and options to a Policy. The names and defaults here are those of router_args.py, which
// checks them first; this check is for those who come without it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/dice.h"
#include "base/status.h"
#include "hashing/hash.h"
#include "policy/policy.h"

namespace vllm_router {

enum class LeastLoadMetric : uint8_t { kRequests, kTokens };
enum class HashFailover : uint8_t { kNext, kFirst };

struct PolicyOptions {
  std::string policy = "least_load";           // '-' and '_' are the same; aliases of policies.md are accepted
  std::string fallback_policy = "least_load";  // decides when the key part is missing
  uint64_t seed = 0;

  LeastLoadMetric least_load_metric = LeastLoadMetric::kRequests;

  // consistent_hash and rendezvous_hash
  uint32_t virtual_nodes = 160;  // points per weight 1
  HashFunction hash_function = HashFunction::kFurc;
  HashFailover hash_failover = HashFailover::kNext;
  uint32_t hash_load_factor = 0;  // thousandths, 1000..10000; 0 = loads are ignored
};

// InvalidArgument names what is wrong, the limit, and the nearest known name.
StatusOr<std::unique_ptr<Policy>> MakePolicy(const PolicyOptions& options);

std::span<const std::string_view> PolicyNames();  // canonical, in the order of the documents

// Canonical spelling of a name or alias; InvalidArgument with the nearest name otherwise.
StatusOr<std::string_view> CanonicalPolicyName(std::string_view name);

}  // namespace vllm_router
