#include "policy/sticky_least_loaded.h"

#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "hashing/hash.h"
#include "index/stick_table.h"
#include "policy/keyed_policy.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

struct PositionsPlan final : FleetPlan {
  using FleetPlan::FleetPlan;
  uint64_t membership = 0;
  absl::flat_hash_map<WorkerId, uint32_t> positions;
  std::vector<uint64_t> url_hashes;  // by position
};

class StickyLeastLoaded final : public KeyedPolicy {
 public:
  StickyLeastLoaded(const PolicyOptions& options, std::unique_ptr<Policy> fallback)
      : KeyedPolicy(std::move(fallback)),
        sessions_(
            {.max_entries = options.max_sessions,
             .ttl_ns = int64_t{options.session_ttl_secs} * 1'000'000'000}) {}

  std::string_view name() const override { return "sticky_least_loaded"; }
  // No digest of the body: a request without a session key belongs to no session.
  KeyParts Needs() const override { return KeyParts::kSession; }
  bool FinishSession(std::string_view key) override { return sessions_.Forget(key, clock_.NowNanos()); }
  std::optional<size_t> sessions() const override { return sessions_.size(); }

 protected:
  Owner ChooseOwner(const RoutingKey& key, const FleetView& fleet) override {
    Owner owner{};
    const PositionsPlan* plan = FindPlan<PositionsPlan>(fleet, this);
    std::shared_ptr<const PositionsPlan> own_plan;
    if (plan == nullptr || plan->membership != fleet.membership_version()) {  // a view without a plan
      own_plan = MakePlan(fleet, nullptr);
      plan = own_plan.get();
    }
    sessions_.FindOrStick(
        key.hash_key, clock_.NowNanos(),
        [&](std::optional<WorkerId> known, const StickTable::Counts& counts) {
          const std::optional<uint32_t> position = known ? PositionOf(*known, *plan) : std::nullopt;
          if (position && fleet.IsEligible(*position)) {
            owner = {*position, Reason::kSticky};
          } else {
            owner = {
                Fewest(key.hash_key, fleet, *plan, counts), known ? Reason::kFailover : Reason::kStickyNew};
          }
          return key.dry_run ? std::nullopt : std::optional(fleet.worker(owner.position).id);
        });
    return owner;
  }

  std::shared_ptr<const FleetPlan> PlanOwners(
      const FleetView& next, std::shared_ptr<const FleetPlan> inner) override {
    return MakePlan(next, std::move(inner));
  }

 private:
  std::shared_ptr<const PositionsPlan> MakePlan(
      const FleetView& fleet, std::shared_ptr<const FleetPlan> inner) const {
    auto plan = std::make_shared<PositionsPlan>(this, std::move(inner));
    plan->membership = fleet.membership_version();
    for (uint32_t position = 0; position < fleet.members().size(); ++position) {
      plan->positions.emplace(fleet.worker(position).id, position);
      plan->url_hashes.push_back(Xxh3(fleet.worker(position).url.url));
    }
    return plan;
  }

  static std::optional<uint32_t> PositionOf(WorkerId worker, const PositionsPlan& plan) {
    const auto found = plan.positions.find(worker);
    if (found == plan.positions.end()) return std::nullopt;
    return found->second;
  }

  static uint32_t Fewest(
      std::string_view key, const FleetView& fleet, const PositionsPlan& plan,
      const StickTable::Counts& counts) {
    thread_local Scratch own_scratch;
    Scratch& scratch = own_scratch;  // each access to a thread-local variable is a call
    scratch.sessions.assign(fleet.members().size(), 0);
    for (const auto& [worker, count] : counts) {
      const std::optional<uint32_t> position = PositionOf(worker, plan);
      if (position) scratch.sessions[*position] = static_cast<int64_t>(count);
    }
    std::vector<uint32_t>& best = scratch.best;
    KeepLeastShare(
        fleet, fleet.eligible(), &best, [&](uint32_t position) { return scratch.sessions[position]; });
    FindLeastLoaded(fleet, best, &best);
    if (best.size() == 1) return best.front();
    const uint64_t key_hash = Xxh3(key);
    const auto rank = [&](uint32_t position) {
      const uint64_t pair[2] = {key_hash, plan.url_hashes[position]};
      return Xxh3(pair, sizeof(pair));
    };
    uint32_t first = best.front();
    uint64_t first_rank = rank(first);
    for (const uint32_t position : std::span(best).subspan(1)) {
      const uint64_t other = rank(position);
      if (other <= first_rank) continue;
      first = position;
      first_rank = other;
    }
    return first;
  }

  // One per thread, reused.
  struct Scratch {
    std::vector<int64_t> sessions;  // by position
    std::vector<uint32_t> best;
  };

  const SteadyClock clock_;
  StickTable sessions_;
};

}  // namespace

PolicyEntry StickyLeastLoadedEntry() {
  return {
      .name = "sticky_least_loaded",
      .aliases = {"manual"},
      .options = {"fallback_policy", "session_ttl_secs", "max_sessions"},
      .make = Make<StickyLeastLoaded>};
}

}  // namespace vllm_router
