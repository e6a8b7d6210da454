// The policies: one entry each, made in the policy's own file, so that its name, its aliases, the options
// it reads and how it is made stand beside its code.
//
//   PolicyEntry LeastLoadEntry();                               least_load.h, defined in least_load.cc
//   RandomEntry(), RoundRobinEntry(), LeastLoadEntry(), …       the list in policy_registry.cc
//
// The list is explicit, since a linker drops an object of a static library that nothing refers to, and with
// it an entry that would register itself.
//
// Cost: a search of a dozen entries, when a router is made. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "policy/policy_options.h"
#include "policy/pool.h"

namespace vllm_router {

struct PolicyEntry {
  std::string_view name;
  std::vector<std::string_view> aliases = {};
  bool may_be_fallback = false;                // it needs no part of the request
  bool reads_index = false;                    // of the blocks that workers' caches hold
  std::vector<std::string_view> options = {};  // names of those it reads; all may read `seed`
  // `index` is null unless it reads one, `fallback` unless `fallback_policy` is among its options.
  std::unique_ptr<Policy> (*make)(
      const PolicyOptions& options, std::shared_ptr<KvIndex> index, std::unique_ptr<Policy> fallback);
  // What ranges alone do not say; null: nothing.
  Status (*check)(const PolicyOptions& options) = nullptr;
};

// PolicyEntry::make of a class whose constructor takes the options and then what it needs of the others.
template <typename Made>
std::unique_ptr<Policy> Make(
    const PolicyOptions& options, std::shared_ptr<KvIndex> index, std::unique_ptr<Policy> fallback) {
  using Index = std::shared_ptr<KvIndex>;
  if constexpr (std::is_constructible_v<Made, const PolicyOptions&>) {
    return std::make_unique<Made>(options);
  } else if constexpr (std::is_constructible_v<Made, const PolicyOptions&, Index>) {
    return std::make_unique<Made>(options, std::move(index));
  } else if constexpr (std::is_constructible_v<Made, const PolicyOptions&, std::unique_ptr<Policy>>) {
    return std::make_unique<Made>(options, std::move(fallback));
  } else {
    return std::make_unique<Made>(options, std::move(index), std::move(fallback));
  }
}

// All that can be made, in the order of the documents.
std::span<const PolicyEntry> Policies();

// A policy of another router that is not offered, and the one here that comes nearest to it.
struct ForeignPolicy {
  std::string_view name;
  std::string_view nearest;
};
std::span<const ForeignPolicy> ForeignPolicies();

// InvalidArgument names the thing, its value, the limit and the remedy.
StatusOr<PolicyParts> MakePolicy(const PolicyOptions& options);

// The index that a policy with these options would read; of a policy that reads none, with the defaults of its options.
std::shared_ptr<KvIndex> MakeKvIndex(const PolicyOptions& options);

// Canonical names of Policies(), and of those of them that may be a fallback_policy.
std::vector<std::string_view> PolicyNames();
std::vector<std::string_view> FallbackPolicyNames();

// Canonical spelling of a name or alias, '-' and '_' and upper and lower case being the same.
// InvalidArgument with the nearest name for any other.
StatusOr<std::string_view> CanonicalPolicyName(std::string_view name);

}  // namespace vllm_router
