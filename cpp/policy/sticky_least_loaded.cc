#include "policy/sticky_least_loaded.h"

#include <utility>

#include "base/clock.h"
#include "hashing/hash.h"
#include "index/stick_table.h"
#include "policy/keyed_policy.h"
#include "policy/load_order.h"

namespace vllm_router {
namespace {

struct PositionsPlan final : FleetPlan {
  using FleetPlan::FleetPlan;
  uint64_t membership = 0;
  absl::flat_hash_map<WorkerId, uint32_t> positions;
};

class StickyLeastLoaded final : public KeyedPolicy {
 public:
  StickyLeastLoaded(const StickyLeastLoadedOptions& options, std::unique_ptr<Policy> fallback)
      : KeyedPolicy(std::move(fallback)),
        sessions_({.max_entries = options.max_sessions, .ttl_ns = options.session_ttl_ns}) {}

  std::string_view name() const override { return "sticky_least_loaded"; }
  // No digest of the body: a request that names no session belongs to none.
  KeyParts Needs() const override { return KeyParts::kSession; }
  bool FinishSession(std::string_view key) override { return sessions_.Forget(key, clock_.NowNanos()); }
  std::optional<size_t> sessions() const override { return sessions_.size(); }

 protected:
  Owner ChooseOwner(const RoutingKey& key, const FleetView& fleet) override {
    Owner owner{};
    sessions_.FindOrStick(
        key.hash_key, clock_.NowNanos(),
        [&](std::optional<WorkerId> known, const StickTable::Counts& counts) {
          const std::optional<uint32_t> position = known ? PositionOf(*known, fleet) : std::nullopt;
          if (position && fleet.IsEligible(*position)) {
            owner = {*position, Reason::kSticky};
          } else {
            owner = {Fewest(key.hash_key, fleet, counts), known ? Reason::kFailover : Reason::kStickyNew};
          }
          return key.dry_run ? std::nullopt : std::optional(fleet.worker(owner.position).id);
        });
    return owner;
  }

  std::shared_ptr<const FleetPlan> PlanOwners(
      const FleetView& next, std::shared_ptr<const FleetPlan> inner) override {
    auto plan = std::make_shared<PositionsPlan>(this, std::move(inner));
    plan->membership = next.membership();
    for (uint32_t position = 0; position < next.members().size(); ++position) {
      plan->positions.emplace(next.worker(position).id, position);
    }
    return plan;
  }

 private:
  std::optional<uint32_t> PositionOf(WorkerId worker, const FleetView& fleet) const {
    const PositionsPlan* plan = FindPlan<PositionsPlan>(fleet, this);
    if (plan == nullptr || plan->membership != fleet.membership()) return fleet.Find(worker);
    const auto found = plan->positions.find(worker);
    if (found == plan->positions.end()) return std::nullopt;
    return found->second;
  }

  static uint32_t Fewest(std::string_view key, const FleetView& fleet, const StickTable::Counts& counts) {
    const auto count_of = [&counts](const Worker& worker) {
      const auto found = counts.find(worker.id);
      return found == counts.end() ? uint64_t{0} : found->second;
    };
    uint32_t best = fleet.eligible().front();
    uint64_t best_count = count_of(fleet.worker(best));
    std::optional<uint64_t> key_hash;
    const auto rank = [&](const Worker& worker) {
      if (!key_hash) key_hash = Xxh3(key);
      const uint64_t pair[2] = {*key_hash, Xxh3(worker.url.url)};
      return Xxh3(pair, sizeof(pair));
    };
    for (const uint32_t position : fleet.eligible().subspan(1)) {
      const Worker& worker = fleet.worker(position);
      const Worker& other = fleet.worker(best);
      const uint64_t count = count_of(worker);
      const uint64_t ours = count * other.load_weight();
      const uint64_t theirs = best_count * worker.load_weight();
      const int load = ours == theirs ? CompareLoad(worker, other) : 0;
      if (ours < theirs || (ours == theirs && (load < 0 || (load == 0 && rank(worker) > rank(other))))) {
        best = position;
        best_count = count;
      }
    }
    return best;
  }

  const SteadyClock clock_;
  StickTable sessions_;
};

}  // namespace

std::unique_ptr<Policy> MakeStickyLeastLoaded(
    const StickyLeastLoadedOptions& options, std::unique_ptr<Policy> fallback) {
  return std::make_unique<StickyLeastLoaded>(options, std::move(fallback));
}

}  // namespace vllm_router
