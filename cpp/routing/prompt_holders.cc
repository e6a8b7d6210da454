#include "routing/prompt_holders.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "policy/policy.h"
#include "routing/router.h"

namespace vllm_router {

PromptHolders FindHolders(Router& router, RoutingKey* key, const FleetView& fleet) {
  const auto candidates = std::make_shared<Explanation>();
  for (const uint32_t position : fleet.eligible())
    candidates->candidates.push_back({.worker = fleet.worker(position).id});
  std::shared_ptr<Explanation> former = std::exchange(key->explanation, candidates);
  const bool was_dry_run = std::exchange(key->dry_run, true);
  const Stage stage = router.is_staged() ? fleet.stage() : Stage::kAll;
  const std::optional<Decision> decision = router.pool().policy_of(stage)->Choose(*key, fleet);
  key->dry_run = was_dry_run;
  key->explanation = std::move(former);

  PromptHolders holders;
  if (!decision || decision->total == 0) return holders;
  for (const Explanation::Candidate& candidate : candidates->candidates) {
    const uint64_t matched = std::min(candidate.matched.value_or(0), decision->total);
    PromptHolder held{candidate.worker, static_cast<float>(matched) / static_cast<float>(decision->total)};
    for (PromptHolder& other : holders) {
      if (held.share > other.share) std::swap(held, other);
    }
  }
  return holders;
}

}  // namespace vllm_router
