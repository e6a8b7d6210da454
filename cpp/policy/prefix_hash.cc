#include "policy/prefix_hash.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "hashing/hash.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"
#include "policy/ring_plan.h"

namespace vllm_router {
namespace {

constexpr size_t kBytesPerToken = 4;

// Wide enough for loads times weights times weights; the compiler's, which -Wpedantic wants marked.
__extension__ using Wide = unsigned __int128;

// r/s > max(a * factor, a + threshold) with a = (R + 1) / S, multiplied by both weights so that it stays
// whole.
class Overload {
 public:
  Overload(const FleetView& fleet, const PolicyOptions& options) : weight_(fleet.eligible_weight()) {
    Wide requests = 1;
    for (const uint32_t position : fleet.eligible()) {
      requests += static_cast<uint64_t>(fleet.load(position).requests());
    }
    bound_ = std::max<Wide>(
        requests * options.prefix_hash_load_factor,
        requests * 1000 + Wide{options.prefix_hash_balance_abs_threshold} * weight_);
  }

  bool Is(const Worker& worker) const {
    const auto open = static_cast<uint64_t>(worker.load.requests());
    return Wide{open} * 1000 * weight_ > bound_ * worker.weight;
  }

 private:
  const uint64_t weight_;  // of the eligible, in thousandths
  Wide bound_;
};

class PrefixHash final : public Policy {
 public:
  PrefixHash(const PolicyOptions& options, std::unique_ptr<Policy> fallback)
      : options_(options),
        fallback_(std::move(fallback)),
        rings_(options.virtual_nodes, HashFunction::kXxh3),
        random_(options.seed) {}

  std::string_view name() const override { return "prefix_hash"; }
  KeyParts Needs() const override { return KeyParts::kPrompt | fallback_->Needs(); }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    if (key.prompt.size() == 0) {
      std::optional<Decision> decision = fallback_->Choose(key, fleet);
      if (decision) decision->reason = Reason::kFallback;
      return decision;
    }
    std::optional<HashRing> built;
    const HashRing& ring = rings_.RingOf(this, fleet, &built);
    const uint32_t owner =
        ring.FindOwner(HashOf(key.prompt), [&](uint32_t position) { return fleet.IsEligible(position); });
    const Overload overload(fleet, options_);
    if (!overload.Is(fleet.worker(owner))) return DecisionFor(owner, Reason::kPrefixHash, fleet);
    thread_local std::vector<uint32_t> takers;
    takers.clear();
    for (const uint32_t position : fleet.eligible()) {
      if (!overload.Is(fleet.worker(position))) takers.push_back(position);
    }
    // The least loaded is never overloaded, unless loads grew meanwhile.
    const std::span<const uint32_t> among = takers.empty() ? fleet.eligible() : std::span(takers);
    return DecisionFor(
        LeastLoaded(fleet, among, *DecisionRandom(random_, key.dry_run)), Reason::kOverflow, fleet);
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    if (decision.reason == Reason::kFallback) fallback_->Observe(decision, outcome);
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    return rings_.Plan(this, next, fallback_->Plan(next));
  }

 private:
  // Of the first ids as little-endian u32, or of the first bytes, up to a whole character.
  uint64_t HashOf(const Prompt& prompt) const {
    if (prompt.kind == Prompt::Kind::kTokens) {
      const auto ids = prompt.tokens().subspan(prompt.scope);
      return Xxh3(ids.data(), std::min<size_t>(ids.size(), options_.prefix_token_count) * sizeof(uint32_t));
    }
    return Xxh3(
        CutAtCharacter(prompt.text().substr(prompt.scope), options_.prefix_token_count * kBytesPerToken));
  }

  static Decision DecisionFor(uint32_t position, Reason reason, const FleetView& fleet) {
    return {.position = position, .worker = fleet.worker(position).id, .reason = reason};
  }

  const PolicyOptions options_;
  const std::unique_ptr<Policy> fallback_;
  const RingPlanner rings_;
  Random random_;
};

}  // namespace

PolicyEntry PrefixHashEntry() {
  return {
      .name = "prefix_hash",
      .options =
          {"fallback_policy", "virtual_nodes", "prefix_token_count", "prefix_hash_load_factor",
           "prefix_hash_balance_abs_threshold"},
      .make = Make<PrefixHash>};
}

}  // namespace vllm_router
