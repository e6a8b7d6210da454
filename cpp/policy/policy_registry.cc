#include "policy/policy_registry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/text.h"
#include "base/time_units.h"
#include "policy/auto.h"
#include "policy/cache_aware.h"
#include "policy/consistent_hash.h"
#include "policy/kv_logit.h"
#include "policy/kv_overlap.h"
#include "policy/least_load.h"
#include "policy/power_of_two.h"
#include "policy/prefix_aware.h"
#include "policy/prefix_hash.h"
#include "policy/random.h"
#include "policy/rendezvous_hash.h"
#include "policy/round_robin.h"
#include "policy/sticky_least_loaded.h"
#include "policy/vllm_cache_aware.h"

namespace vllm_router {
namespace {

constexpr std::array<ForeignPolicy, 5> kForeign = {
    {{"passthrough", "random"},
     {"bucket", "least_load"},
     {"ttft_aware", "auto"},
     {"smetric", "auto"},
     {"precise_cache_aware", "kv_overlap"}}};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// By name or alias, in canonical spelling; null if there is none.
const PolicyEntry* Find(std::string_view name) {
  const std::span<const PolicyEntry> all = Policies();
  const auto found = std::find_if(all.begin(), all.end(), [&](const PolicyEntry& entry) {
    return entry.name == name || Contains(entry.aliases, name);
  });
  return found == all.end() ? nullptr : &*found;
}

std::string WithUnderscores(std::string_view name) {
  std::string spelled = AsciiLower(name);
  std::replace(spelled.begin(), spelled.end(), '-', '_');
  return spelled;
}

// Over every name with a meaning.
std::string_view NearestPolicyName(std::string_view name) {
  std::vector<std::string_view> known = PolicyNames();
  for (const PolicyEntry& entry : Policies())
    known.insert(known.end(), entry.aliases.begin(), entry.aliases.end());
  return NearestName(name, known);
}

// The reason why no policy has this name.
Status NotAPolicy(std::string_view name) {
  const std::string wanted = WithUnderscores(name);
  const std::string built = Listed(PolicyNames());
  const auto foreign = std::ranges::find(kForeign, wanted, &ForeignPolicy::name);
  if (foreign != kForeign.end()) {
    return absl::InvalidArgumentError(
        "policy " + Quoted(name) + " is not offered; the nearest to it is " + std::string(foreign->nearest) +
        "; policies that are: " + built);
  }
  const std::string_view nearest = NearestPolicyName(wanted);
  return absl::InvalidArgumentError(
      "policy " + Quoted(name) + " is unknown" +
      (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?") +
      (nearest.empty() ? "; known " : " Known ") + "policies: " + built);
}

}  // namespace

std::span<const PolicyEntry> Policies() {
  static const auto* all = new std::vector<PolicyEntry>{
      RandomEntry(),         RoundRobinEntry(),     LeastLoadEntry(),      PowerOfTwoEntry(),
      ConsistentHashEntry(), RendezvousHashEntry(), VllmCacheAwareEntry(), PrefixAwareEntry(),
      PrefixHashEntry(),     CacheAwareEntry(),     AutoEntry(),           StickyLeastLoadedEntry(),
      KvLogitEntry(),        KvAwareEntry(),        KvOverlapEntry(),
  };
  return *all;
}

std::span<const ForeignPolicy> ForeignPolicies() { return kForeign; }

std::vector<std::string_view> PolicyNames() {
  std::vector<std::string_view> names;
  for (const PolicyEntry& entry : Policies()) names.push_back(entry.name);
  return names;
}

std::vector<std::string_view> FallbackPolicyNames() {
  std::vector<std::string_view> names;
  for (const PolicyEntry& entry : Policies()) {
    if (entry.may_be_fallback) names.push_back(entry.name);
  }
  return names;
}

StatusOr<std::string_view> CanonicalPolicyName(std::string_view name) {
  const PolicyEntry* const entry = Find(WithUnderscores(name));
  if (entry == nullptr) return NotAPolicy(name);
  return entry->name;
}

std::shared_ptr<KvIndex> MakeKvIndex(const PolicyOptions& options) {
  const PolicyEntry* const entry = Find(WithUnderscores(options.policy));
  std::optional<PrefixTableOptions> prefixes;
  if (entry != nullptr && options.kv_index_max_entries != 0 &&
      Contains(entry->options, "kv_index_max_entries")) {
    prefixes = {
        .max_entries = options.kv_index_max_entries,
        .ttl_ns = options.kv_index_ttl_secs * kNanosPerSecond,
        .tokens_if_untold = options.block_size,
        .offloading = options.kv_storage_offloading};
  }
  return std::make_shared<KvIndex>(KvIndexOptions{
      .tracker = {.block_size = options.block_size, .max_blocks_per_worker = options.max_blocks_per_worker},
      .worker_block_sizes = options.worker_block_sizes,
      .prefixes = prefixes,
      .coarse_stride_blocks = options.peer_sync_stride_tokens == 0
                                  ? 0
                                  : std::max(1u, options.peer_sync_stride_tokens / options.block_size)});
}

StatusOr<PolicyParts> MakePolicy(const PolicyOptions& options) {
  const PolicyEntry* const entry = Find(WithUnderscores(options.policy));
  if (entry == nullptr) return NotAPolicy(options.policy);
  ROUTER_RETURN_IF_ERROR(CheckRanges(PolicyOptionTable(), options));
  if (entry->check != nullptr) ROUTER_RETURN_IF_ERROR(entry->check(options));
  const PolicyEntry* const fallback = Find(WithUnderscores(options.fallback_policy));
  if (fallback == nullptr || !fallback->may_be_fallback) {
    return WordIsUnknown("fallback_policy", options.fallback_policy, FallbackPolicyNames());
  }
  const bool falls_back = Contains(entry->options, "fallback_policy");
  const std::shared_ptr<KvIndex> index = entry->reads_index ? MakeKvIndex(options) : nullptr;
  return PolicyParts{
      .policy = entry->make(options, index, falls_back ? fallback->make(options, nullptr, nullptr) : nullptr),
      .index = index};
}

}  // namespace vllm_router
