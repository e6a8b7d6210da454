#include "policy/policy_options.h"

#include "index/hash_ring.h"

namespace vllm_router {
namespace {

// "auto", or a number of tokens.
constexpr OptionMember<PolicyOptions> kBlockSize = {
    .kind = OptionKind::kCount,
    .scale = 1,
    .largest = std::numeric_limits<uint32_t>::max(),
    .get = [](const PolicyOptions& options) -> OptionValue { return uint64_t{options.block_size}; },
    .set =
        [](PolicyOptions& options, const OptionValue& value) {
          const auto* const word = std::get_if<std::string>(&value);
          options.worker_block_sizes = word != nullptr && *word == "auto";
          return options.worker_block_sizes || Member<&PolicyOptions::block_size>().set(options, value);
        }};

constexpr OptionRange kCredit = {.max = 1, .what = "the share of a cached token's computation that is saved"};
constexpr OptionRange kScoreWeight = {.max = 1, .what = "a share of the score"};

}  // namespace

const OptionTable<PolicyOptions>& PolicyOptionTable() {
  using O = PolicyOptions;
  static const auto* table = new OptionTable<O>{
      {.name = "policy", .member = Member<&O::policy>()},
      {.name = "fallback_policy", .member = Member<&O::fallback_policy>()},
      {.name = "seed", .member = Member<&O::seed>()},
      {.name = "least_load_metric",
       .member = Word<&O::least_load_metric>(),
       .words =
           {{"requests", LeastLoadMetric::kRequests},
            {"tokens", LeastLoadMetric::kTokens},
            OptionWord::NotBuilt(
                "drain_time",
                "which needs the throughput that engines report, and these reports are not read yet; use "
                "requests or tokens")}},
      {.name = "virtual_nodes",
       .member = Member<&O::virtual_nodes>(),
       .range = {.min = 1, .max = kMaxVirtualNodes, .what = "the number of ring points per weight 1"}},
      {.name = "hash_function",
       .member = Word<&O::hash_function>(),
       .words =
           {{HashFunctionName(HashFunction::kFurc), HashFunction::kFurc},
            {HashFunctionName(HashFunction::kXxh3), HashFunction::kXxh3}}},
      {.name = "hash_failover",
       .member = Word<&O::hash_failover>(),
       .words = {{"next", HashFailover::kNext}, {"first", HashFailover::kFirst}}},
      {.name = "block_size",
       .member = kBlockSize,
       .range = {.min = 1, .max = 4096, .what = "the number of tokens in a block of the engines' caches"}},
      {.name = "max_blocks_per_worker",
       .member = Member<&O::max_blocks_per_worker>(),
       .range = {.min = 1, .what = "the number of blocks in a worker's cache"}},
      {.name = "peer_sync_stride_tokens",
       .member = Member<&O::peer_sync_stride_tokens>(),
       .range =
           {.min = 1,
            .max = 4096,
            .what = "the number of tokens for which routers tell each other one hash of a prompt",
            .zero = "tell each other no decisions"}},
      {.name = "cache_threshold",
       .member = Member<&O::cache_threshold>(),
       .range = {.max = 1, .what = "a share of the prompt"}},
      {.name = "load_factor",
       .member = Thousandths<&O::load_factor>(),
       .range = {.min = 1, .max = 10, .what = "a multiple of the mean load"}},
      {.name = "load_bound",
       .member = Word<&O::load_bound>(),
       .words = {{"room", HolderBound::kRoom}, {"average", HolderBound::kAverage}}},
      {.name = "kv_index_max_entries",
       .member = Member<&O::kv_index_max_entries>(),
       .range =
           {.min = 100,
            .max = 10'000'000,
            .what = "the maximum number of entries of the prefix index, one for each worker of a prefix",
            .zero = "keep none"}},
      {.name = "kv_index_ttl_secs",
       .member = Member<&O::kv_index_ttl_secs>(),
       .range =
           {.min = 1,
            .max = 86'400,
            .what =
                "the time in seconds after its last event for which an entry of the prefix index counts"}},
      {.name = "kv_storage_offloading",
       .member = Word<&O::kv_storage_offloading>(),
       .words =
           {{"off", StorageOffloading::kOff},
            {"offloads", StorageOffloading::kOffloads},
            {"evictions", StorageOffloading::kEvictions}}},
      {.name = "auto_objective",
       .member = Word<&O::auto_objective>(),
       .words = {{"balanced", AutoObjective::kBalanced}, {"ttft", AutoObjective::kTtft}}},
      {.name = "lora_load_tokens",
       .member = Member<&O::lora_load_tokens>(),
       .range =
           {.max = 10'000'000,
            .what = "the prompt tokens whose computation costs as much as loading an adapter"}},
      {.name = "overlap_weight",
       .member = Member<&O::overlap_weight>(),
       .range = {.max = 1000, .what = "the weight of a block to compute against one being decoded"}},
      {.name = "router_temperature",
       .member = Member<&O::router_temperature>(),
       .range = {.max = 100, .what = "the temperature of the draw among costs"}},
      {.name = "host_cache_hit_weight", .member = Member<&O::host_cache_hit_weight>(), .range = kCredit},
      {.name = "disk_cache_hit_weight", .member = Member<&O::disk_cache_hit_weight>(), .range = kCredit},
      {.name = "shared_cache_multiplier", .member = Member<&O::shared_cache_multiplier>(), .range = kCredit},
      {.name = "logit_prefill_tokens",
       .member = Word<&O::logit_prefill_tokens>(),
       .words = {{"uncached", LogitPrefill::kUncached}, {"prompt", LogitPrefill::kPrompt}}},
      {.name = "logit_decode_blocks",
       .member = Word<&O::logit_decode_blocks>(),
       .words = {{"active", LogitDecode::kActive}, {"potential", LogitDecode::kPotential}}},
      {.name = "kv_penalty_host", .member = Member<&O::kv_penalty_host>(), .range = kCredit},
      {.name = "kv_penalty_disk", .member = Member<&O::kv_penalty_disk>(), .range = kCredit},
      {.name = "kv_overlap_weight", .member = Member<&O::kv_overlap_weight>(), .range = kScoreWeight},
      {.name = "kv_load_weight", .member = Member<&O::kv_load_weight>(), .range = kScoreWeight},
      {.name = "kv_health_weight", .member = Member<&O::kv_health_weight>(), .range = kScoreWeight},
      {.name = "kv_gpu_tier_weight", .member = Member<&O::kv_gpu_tier_weight>(), .range = kCredit},
      {.name = "kv_storage_tier_weight", .member = Member<&O::kv_storage_tier_weight>(), .range = kCredit},
      {.name = "kv_min_overlap_threshold",
       .member = Member<&O::kv_min_overlap_threshold>(),
       .range = {.max = 1, .what = "a share of the prompt"}},
      {.name = "kv_overlap_basis",
       .member = Word<&O::kv_overlap_basis>(),
       .words = {{"prompt", OverlapBasis::kPrompt}, {"fleet_max", OverlapBasis::kFleetMax}}},
      {.name = "kv_load_factor",
       .member = Thousandths<&O::kv_load_factor>(),
       .range = {.min = 1, .max = 10, .what = "a multiple of the mean load", .zero = "ignore loads"}},
      {.name = "balance_abs_threshold", .member = Member<&O::balance_abs_threshold>()},
      {.name = "balance_rel_threshold",
       .member = Thousandths<&O::balance_rel_threshold>(),
       .range = {.min = 1, .what = "a ratio of loads"}},
      {.name = "max_tree_size",
       .member = Member<&O::max_tree_size>(),
       .range = {.min = 1024, .what = "the limit of remembered prompts in bytes"}},
      {.name = "eviction_interval_secs",
       .member = Member<&O::eviction_interval_secs>(),
       .range = {.min = 1, .what = "the interval between background evictions in seconds"}},
      {.name = "eviction_policy",
       .member = Word<&O::eviction_order>(),
       .words =
           {{"lru", EvictionOrder::kLru},
            {"lfu", EvictionOrder::kLfu},
            {"fifo", EvictionOrder::kFifo},
            {"mru", EvictionOrder::kMru},
            {"filo", EvictionOrder::kFilo},
            {"priority", EvictionOrder::kPriority}}},
      {.name = "balance_gate",
       .member = Word<&O::balance_gate>(),
       .words = {{"worker", BalanceGate::kWorker}, {"fleet", BalanceGate::kFleet}}},
      {.name = "spread_new_conversations", .member = Member<&O::spread_new_conversations>()},
      {.name = "miss_choice",
       .member = Word<&O::miss_choice>(),
       .words = {{"least_load", MissChoice::kLeastLoad}, {"smallest_tree", MissChoice::kSmallestTree}}},
      {.name = "hash_load_factor",
       .member = Thousandths<&O::hash_load_factor>(),
       .range = {.min = 1, .max = 10, .what = "a multiple of the mean load", .zero = "ignore loads"}},
      {.name = "prefix_token_count",
       .member = Member<&O::prefix_token_count>(),
       .range = {.min = 1, .max = 1'000'000, .what = "the length of a prefix in tokens"}},
      {.name = "prefix_hash_load_factor",
       .member = Thousandths<&O::prefix_hash_load_factor>(),
       .range = {.min = 1, .max = 10, .what = "a multiple of the mean load"}},
      {.name = "prefix_hash_balance_abs_threshold",
       .member = Member<&O::prefix_hash_balance_abs_threshold>()},
      {.name = "session_ttl_secs",
       .member = Member<&O::session_ttl_secs>(),
       .range =
           {.min = 1,
            .max = 31'536'000,
            .what = "the time in seconds after its last request for which a session is remembered"}},
      {.name = "max_sessions",
       .member = Member<&O::max_sessions>(),
       .range = {.min = 1, .max = 16'777'216, .what = "the maximum number of sessions remembered"}},
      {.name = "load_factor_epsilon",
       .member = Thousandths<&O::load_factor_epsilon>(),
       .range =
           {.min = 0.01,
            .max = 10,
            .what = "the share by which a load may exceed the mean",
            .in_parts = true}},
      {.name = "prefix_load_floor", .member = Member<&O::prefix_load_floor>()},
  };
  return *table;
}

}  // namespace vllm_router
