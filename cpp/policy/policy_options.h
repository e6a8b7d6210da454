// PolicyOptions: what an operator sets of a policy. The default of an option is its initializer here; its
// name, range and words are its row in policy_options.cc. RouterArgs in Python has the same and checks
// them first; tests/unit/python/test_option_tables.py compares the two. Thread-safe: the table is immutable.
//
//   PolicyOptions options{.policy = "cache_aware"};
//   SetOption(*FindOption(PolicyOptionTable(), "miss_choice"), "smallest_tree", &options);
//   CheckRanges(PolicyOptionTable(), options);
#pragma once

#include <cstdint>
#include <string>

#include "base/option_spec.h"
#include "hashing/hash.h"
#include "index/prefix_table.h"
#include "policy/auto.h"
#include "policy/cache_aware.h"
#include "policy/consistent_hash.h"
#include "policy/kv_logit.h"
#include "policy/kv_overlap.h"
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
  uint32_t hash_load_factor = 0;  // thousandths; 0 = loads are ignored

  // vllm_cache_aware; the first three: all policies that match blocks
  uint32_t block_size = 16;         // tokens
  bool worker_block_sizes = false;  // of each worker's own, if it reports it
  uint64_t max_blocks_per_worker = 100'000;
  double cache_threshold = 0.3;  // share of the prompt; cache_aware too
  uint32_t load_factor = 1250;   // thousandths
  HolderBound load_bound = HolderBound::kRoom;

  // Of what routers tell each other of their decisions, of all policies that match blocks; 0: they tell nothing.
  uint32_t peer_sync_stride_tokens = 0;

  // the table of prefixes that workers report
  uint64_t kv_index_max_entries = 0;  // 0: none
  uint32_t kv_index_ttl_secs = 600;
  StorageOffloading kv_storage_offloading = StorageOffloading::kOff;

  AutoObjective auto_objective = AutoObjective::kBalanced;
  uint32_t lora_load_tokens = 2000;  // prefill that costs as much as to load an adapter

  // kv_logit; the temperature: kv_aware too
  double overlap_weight = 1;
  double router_temperature = 0;
  double host_cache_hit_weight = 0.75;
  double disk_cache_hit_weight = 0.25;
  double shared_cache_multiplier = 0;
  LogitPrefill logit_prefill_tokens = LogitPrefill::kUncached;
  LogitDecode logit_decode_blocks = LogitDecode::kPotential;

  // kv_aware
  double kv_penalty_host = 0.8;
  double kv_penalty_disk = 0.3;

  // kv_overlap, besides those of prefix_aware; the three weights sum to 1
  double kv_overlap_weight = 0.6;
  double kv_load_weight = 0.3;
  double kv_health_weight = 0.1;
  double kv_gpu_tier_weight = 1;
  double kv_storage_tier_weight = 0.6;
  double kv_min_overlap_threshold = 0.3;  // share of kv_overlap_basis
  OverlapBasis kv_overlap_basis = OverlapBasis::kPrompt;
  uint32_t kv_load_factor = 2000;  // thousandths; 0 = no bound

  // prefix_aware
  uint32_t load_factor_epsilon = 250;  // thousandths
  uint32_t prefix_load_floor = 0;      // requests; settings/checks.py has the default of each policy

  // cache_aware, besides cache_threshold
  uint32_t balance_abs_threshold = 64;    // requests
  uint64_t balance_rel_threshold = 1500;  // thousandths
  uint32_t eviction_interval_secs = 120;
  uint64_t max_tree_size = 67'108'864;  // bytes
  EvictionOrder eviction_order = EvictionOrder::kLru;
  BalanceGate balance_gate = BalanceGate::kWorker;
  bool spread_new_conversations = true;
  MissChoice miss_choice = MissChoice::kLeastLoad;

  // sticky_least_loaded
  uint32_t session_ttl_secs = 7200;
  uint32_t max_sessions = 262'144;

  // prefix_hash
  uint32_t prefix_token_count = 256;
  uint32_t prefix_hash_load_factor = 1250;  // thousandths
  uint32_t prefix_hash_balance_abs_threshold = 10;
};

// What messages, bindings and tests know of each of them (base/option_spec.h).
const OptionTable<PolicyOptions>& PolicyOptionTable();

}  // namespace vllm_router
