// PolicyOptions: what an operator sets of a policy, each with its default. settings/table.py in Python has the
// same names and checks them first; the checks here are for callers that do not use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hashing/hash.h"
#include "policy/auto.h"
#include "policy/cache_aware.h"
#include "policy/consistent_hash.h"
#include "policy/load_order.h"
#include "policy/vllm_cache_aware.h"

namespace vllm_router {

struct PolicyOptions {
  std::string policy = "auto";  // '-' and '_' are the same; docs/reference/policies.md has aliases
  std::string fallback_policy = "least_load";  // decides when the key part is missing
  uint64_t seed = 0;

  LeastLoadMetric least_load_metric = LeastLoadMetric::kRequests;

  // consistent_hash and rendezvous_hash
  uint32_t virtual_nodes = 160;  // points per weight 1; prefix_aware and prefix_hash too
  HashFunction hash_function = HashFunction::kFurc;
  HashFailover hash_failover = HashFailover::kNext;
  uint32_t hash_load_factor = 0;  // thousandths, 1000..10000; 0 = loads are ignored

  // vllm_cache_aware; the first three: auto too
  uint32_t block_size = 16;                  // tokens, 1..4096
  bool worker_block_sizes = false;           // of each worker's own, if it reports it
  uint64_t max_blocks_per_worker = 100'000;  // at least 1
  double cache_threshold = 0.3;              // share of the prompt, 0..1; cache_aware too
  uint32_t load_factor = 1250;               // thousandths, 1000..10000
  HolderBound load_bound = HolderBound::kRoom;

  AutoObjective auto_objective = AutoObjective::kBalanced;

  // prefix_aware
  uint32_t load_factor_epsilon = 250;  // thousandths, 10..10000
  uint32_t prefix_load_floor = 0;      // requests; vllm_cache_aware too, where settings/checks.py makes it 8

  // cache_aware, besides cache_threshold
  uint32_t balance_abs_threshold = 64;    // requests
  uint64_t balance_rel_threshold = 1500;  // thousandths, at least 1000
  uint32_t eviction_interval_secs = 120;  // at least 1
  uint64_t max_tree_size = 67'108'864;    // bytes, at least 1024
  EvictionOrder eviction_order = EvictionOrder::kLru;
  BalanceGate balance_gate = BalanceGate::kWorker;
  bool spread_new_conversations = true;
  MissChoice miss_choice = MissChoice::kLeastLoad;

  // sticky_least_loaded
  uint32_t session_ttl_secs = 7200;  // 1..31536000
  uint32_t max_sessions = 262'144;   // 1..16777216

  // prefix_hash
  uint32_t prefix_token_count = 256;        // 1..1000000
  uint32_t prefix_hash_load_factor = 1250;  // thousandths, 1000..10000
  uint32_t prefix_hash_balance_abs_threshold = 10;
};

// InvalidArgument names the option, its value, its range and its default.
Status CheckRanges(const PolicyOptions& options);

// Options that are words: InvalidArgument (Unimplemented for drain_time) names those that are accepted.
StatusOr<LeastLoadMetric> ParseLeastLoadMetric(std::string_view word);
StatusOr<HashFunction> ParseHashFunction(std::string_view word);
StatusOr<HashFailover> ParseHashFailover(std::string_view word);
StatusOr<HolderBound> ParseHolderBound(std::string_view word);
StatusOr<EvictionOrder> ParseEvictionOrder(std::string_view word);
StatusOr<BalanceGate> ParseBalanceGate(std::string_view word);
StatusOr<MissChoice> ParseMissChoice(std::string_view word);
StatusOr<AutoObjective> ParseAutoObjective(std::string_view word);

// `name` is `word`, which is none of `words`; and which of them it may have meant.
Status WordIsUnknown(std::string_view name, std::string_view word, std::span<const std::string_view> words);
std::string Listed(std::span<const std::string_view> names);

}  // namespace vllm_router
