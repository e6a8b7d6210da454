#include "policy/policy_options.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/text.h"
#include "index/hash_ring.h"

namespace vllm_router {
namespace {

constexpr uint32_t kMaxPolicyBlockSize = 4096;
constexpr uint64_t kMinTreeSize = 1024;
constexpr uint32_t kMaxPrefixTokens = 1'000'000;
constexpr uint32_t kMaxSessionTtlSecs = 31'536'000;
constexpr uint32_t kMaxSessions = 16'777'216;

// 1250 is 1.25.
std::string Thousandths(uint32_t value) {
  std::string text = std::to_string(value / 1000) + "." + std::to_string(1000 + value % 1000).substr(1);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string Listed(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

Status WordIsUnknown(std::string_view thing, std::string_view word, std::span<const std::string_view> words) {
  const std::string_view nearest = NearestName(word, words);
  std::string sentence = std::string(thing) + " is " + Quoted(word) + "; it must be one of " + Listed(words);
  if (!nearest.empty()) sentence += " (did you mean " + std::string(nearest) + "?)";
  return absl::InvalidArgumentError(sentence);
}

Status CheckRanges(const PolicyOptions& options) {
  if (options.virtual_nodes < 1 || options.virtual_nodes > kMaxVirtualNodes) {
    return absl::InvalidArgumentError(
        "virtual_nodes is " + std::to_string(options.virtual_nodes) +
        "; it is the number of ring points per weight 1 and must be between 1 and " +
        std::to_string(kMaxVirtualNodes) + " (default 160)");
  }
  if (options.block_size < 1 || options.block_size > kMaxPolicyBlockSize) {
    return absl::InvalidArgumentError(
        "block_size is " + std::to_string(options.block_size) +
        "; it is the number of tokens in a block of the engines' caches and must be between 1 and " +
        std::to_string(kMaxPolicyBlockSize) + " (default 16)");
  }
  if (options.max_blocks_per_worker < 1) {
    return absl::InvalidArgumentError(
        "max_blocks_per_worker is 0; it is the number of blocks in a worker's cache and must be at least 1 "
        "(default "
        "100000)");
  }
  if (!(options.cache_threshold >= 0 && options.cache_threshold <= 1)) {
    return absl::InvalidArgumentError(
        "cache_threshold is " + std::to_string(options.cache_threshold) +
        "; it is a share of the prompt and must be between 0 and 1 (default 0.3)");
  }
  if (options.load_factor < 1000 || options.load_factor > 10'000) {
    return absl::InvalidArgumentError(
        "load_factor is " + Thousandths(options.load_factor) +
        "; it is a multiple of the mean load and must be between 1 and 10 (default 1.25)");
  }
  if (options.balance_rel_threshold < 1000) {
    return absl::InvalidArgumentError(
        "balance_rel_threshold is " + Thousandths(static_cast<uint32_t>(options.balance_rel_threshold)) +
        "; it is a ratio of loads and must be at least 1 (default 1.5)");
  }
  if (options.max_tree_size < kMinTreeSize) {
    return absl::InvalidArgumentError(
        "max_tree_size is " + std::to_string(options.max_tree_size) +
        "; it is the limit of remembered prompts in bytes and must be at least " +
        std::to_string(kMinTreeSize) + " (default 67108864)");
  }
  if (options.eviction_interval_secs < 1) {
    return absl::InvalidArgumentError(
        "eviction_interval_secs is 0; it is the interval between background evictions in seconds and must be "
        "at least 1 (default 120)");
  }
  const uint32_t factor = options.hash_load_factor;
  if (factor != 0 && (factor < 1000 || factor > 10'000)) {
    return absl::InvalidArgumentError(
        "hash_load_factor is " + Thousandths(factor) +
        "; it is a multiple of the mean load and must be between 1 and 10, or 0 to ignore "
        "loads (default 0)");
  }
  if (options.prefix_token_count < 1 || options.prefix_token_count > kMaxPrefixTokens) {
    return absl::InvalidArgumentError(
        "prefix_token_count is " + std::to_string(options.prefix_token_count) +
        "; it is the length of a prefix in tokens and must be between 1 and " +
        std::to_string(kMaxPrefixTokens) + " (default 256)");
  }
  if (options.prefix_hash_load_factor < 1000 || options.prefix_hash_load_factor > 10'000) {
    return absl::InvalidArgumentError(
        "prefix_hash_load_factor is " + Thousandths(options.prefix_hash_load_factor) +
        "; it is a multiple of the mean load and must be between 1 and 10 (default 1.25)");
  }
  if (options.session_ttl_secs < 1 || options.session_ttl_secs > kMaxSessionTtlSecs) {
    return absl::InvalidArgumentError(
        "session_ttl_secs is " + std::to_string(options.session_ttl_secs) +
        "; it is the time in seconds after its last request for which a session is remembered and must be "
        "between 1 and " +
        std::to_string(kMaxSessionTtlSecs) + " (default 7200)");
  }
  if (options.max_sessions < 1 || options.max_sessions > kMaxSessions) {
    return absl::InvalidArgumentError(
        "max_sessions is " + std::to_string(options.max_sessions) +
        "; it is the maximum number of sessions remembered and must be between 1 and " +
        std::to_string(kMaxSessions) + " (default 262144)");
  }
  const uint32_t epsilon = options.load_factor_epsilon;
  if (epsilon < 10 || epsilon > 10'000) {
    return absl::InvalidArgumentError(
        "load_factor_epsilon is " + std::to_string(epsilon) +
        " thousandths; it is the share by which a load may exceed the mean and must be between 0.01 and 10 "
        "(default 0.25)");
  }
  return absl::OkStatus();
}

StatusOr<LeastLoadMetric> ParseLeastLoadMetric(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"requests", "tokens"};
  if (word == "requests") return LeastLoadMetric::kRequests;
  if (word == "tokens") return LeastLoadMetric::kTokens;
  if (word == "drain_time") {
    return absl::UnimplementedError(
        "least_load_metric is \"drain_time\", which needs the throughput that engines report, and these "
        "reports are not read yet; use requests or tokens");
  }
  return WordIsUnknown("least_load_metric", word, kWords);
}

StatusOr<HashFunction> ParseHashFunction(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"furc", "xxh3"};
  if (const std::optional<HashFunction> function = HashFunctionByName(word)) return *function;
  return WordIsUnknown("hash_function", word, kWords);
}

StatusOr<HashFailover> ParseHashFailover(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"next", "first"};
  if (word == "next") return HashFailover::kNext;
  if (word == "first") return HashFailover::kFirst;
  return WordIsUnknown("hash_failover", word, kWords);
}

StatusOr<HolderBound> ParseHolderBound(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"room", "average"};
  if (word == "room") return HolderBound::kRoom;
  if (word == "average") return HolderBound::kAverage;
  return WordIsUnknown("load_bound", word, kWords);
}

StatusOr<EvictionOrder> ParseEvictionOrder(std::string_view word) {
  constexpr std::array<std::string_view, 6> kWords = {"lru", "lfu", "fifo", "mru", "filo", "priority"};
  constexpr std::array<EvictionOrder, 6> kOrders = {EvictionOrder::kLru,  EvictionOrder::kLfu,
                                                    EvictionOrder::kFifo, EvictionOrder::kMru,
                                                    EvictionOrder::kFilo, EvictionOrder::kPriority};
  const auto found = std::find(kWords.begin(), kWords.end(), word);
  if (found == kWords.end()) return WordIsUnknown("eviction_policy", word, kWords);
  return kOrders[static_cast<size_t>(found - kWords.begin())];
}

StatusOr<BalanceGate> ParseBalanceGate(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"worker", "fleet"};
  if (word == "worker") return BalanceGate::kWorker;
  if (word == "fleet") return BalanceGate::kFleet;
  return WordIsUnknown("balance_gate", word, kWords);
}

StatusOr<MissChoice> ParseMissChoice(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"least_load", "smallest_tree"};
  if (word == "least_load") return MissChoice::kLeastLoad;
  if (word == "smallest_tree") return MissChoice::kSmallestTree;
  return WordIsUnknown("miss_choice", word, kWords);
}

StatusOr<AutoObjective> ParseAutoObjective(std::string_view word) {
  constexpr std::array<std::string_view, 2> kWords = {"balanced", "ttft"};
  if (word == "balanced") return AutoObjective::kBalanced;
  if (word == "ttft") return AutoObjective::kTtft;
  return WordIsUnknown("auto_objective", word, kWords);
}

}  // namespace vllm_router
