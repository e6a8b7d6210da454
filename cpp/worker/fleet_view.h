// FleetView: the fleet as one request sees it, an immutable snapshot. Policies read members() and
// eligible() and nothing else: health, draining and earlier attempts have been considered before they
// are called.
//
//   position       0      1      2      3          fleet order (declared_fleet.h)
//   members       w0     w1     w2     w3
//   eligible      [0,            2,     3]          w1 is unhealthy
//   Without({0})  [              2,     3]          a retry is the same decision with a smaller fleet
//
// `plan` is what the policy worked out for exactly this view (a hash ring, a schedule), so view and plan
// can never disagree. Cost: Without() copies O(members); everything else is O(1). A const view may be
// shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/worker.h"

namespace vllm_router {

struct ModelPools;
struct StageViews;

// Base of what a policy precomputes for a view. A policy may own another (its fallback), so plans form a
// chain, and each policy finds its own by the owner: FindPlan<RingPlan>(fleet, this).
struct FleetPlan {
  explicit FleetPlan(const void* owner, std::shared_ptr<const FleetPlan> inner = nullptr)
      : owner(owner), inner(std::move(inner)) {}
  virtual ~FleetPlan() = default;

  const void* const owner;                       // the policy that made it; compared, never dereferenced
  const std::shared_ptr<const FleetPlan> inner;  // of a policy that the owner owns
};

class FleetView {
 public:
  struct Member {
    std::shared_ptr<Worker> worker;
    bool healthy = true;
    bool draining = false;
    bool resting = false;                // its source says that it is not ready
    bool held = false;                   // its source leaves it out, and it stays for now
    bool open = false;                   // its circuit breaker
    bool in_doubt = false;               // it does not serve what it accepts (hang_detector.h)
    bool overloaded = false;             // as it was polled (overload.h)
    bool other_model = false;            // of a pool's view: it does not serve the pool's models
    bool other_stage = false;            // of a stage's view: it is of the other one
    PairState pair = PairState::kReady;  // whether all is known that its fleet's connector needs
    bool elsewhere() const { return other_model || other_stage; }
    bool in_rotation() const {
      return healthy && !draining && !resting && pair == PairState::kReady && !elsewhere();
    }
    bool serves() const { return in_rotation() && !open && !in_doubt; }
  };

  FleetView() = default;
  // `membership` changes exactly when a member joins, leaves, or gets another weight; equal numbers mean
  // equal members in equal order.
  FleetView(std::vector<Member> members, uint64_t membership, uint64_t pool = 0);

  std::span<const Member> members() const { return members_; }
  std::span<const uint32_t> eligible() const { return eligible_; }  // positions, ascending
  bool IsEligible(uint32_t position) const { return is_eligible_[position] != 0; }
  const Worker& worker(uint32_t position) const { return *members_[position].worker; }
  // worker(position).load, for code that reads the loads of a whole fleet: one step to its one cache
  // line.
  const WorkerLoad& load(uint32_t position) const { return *loads_[position]; }
  std::optional<uint32_t> Find(std::string_view url) const;  // O(members), as is the next one
  std::optional<uint32_t> Find(WorkerId id) const;

  // The workers of a host have passed a health check (Worker::health_known).
  void MarkChecked(std::string_view base) const;

  uint64_t membership_version() const { return membership_version_; }
  uint32_t in_rotation() const { return in_rotation_; }  // members that are healthy, ready and not draining
  uint32_t ejected() const { return ejected_; }  // those of them in doubt, or whose breaker is not closed
  // All breakers were closed, no worker was in back-off or in doubt.
  bool all_admitting() const { return all_admitting_; }
  bool any_in_doubt() const { return any_in_doubt_; }      // of those in rotation
  bool any_overloaded() const { return any_overloaded_; }  // of those that may be chosen
  bool any_prefix() const { return any_prefix_; }          // a member's URL has a path prefix
  // Of the workers that serve some models (model_catalog.h): a number of the set of these; 0: of all workers.
  uint64_t pool() const { return pool_; }
  bool equal_weights() const { return equal_weights_; }          // load_weight() of the eligible
  uint64_t eligible_weight() const { return eligible_weight_; }  // their sum, in thousandths

  const FleetPlan* plan() const { return plan_.get(); }
  const std::shared_ptr<const FleetPlan>& shared_plan() const { return plan_; }
  void set_plan(std::shared_ptr<const FleetPlan> plan) { plan_ = std::move(plan); }  // before it is published

  // Which worker serves which model; null in views that are not published, and in those of pools.
  const std::shared_ptr<const ModelPools>& models() const { return models_; }
  void set_models(std::shared_ptr<const ModelPools> models) { models_ = std::move(models); }
  // The same fleet with all others out of rotation. Positions, stage and plan stay; stages() are those of the pool.
  FleetView PoolOf(std::span<const uint32_t> positions, uint64_t pool) const;

  // kAll for the whole fleet and for pools of models; else the others are out of rotation.
  Stage stage() const { return stage_; }
  // Of the whole fleet as it was published, and of its pools; null for a fleet without stages, and in views of a stage.
  const StageViews* stages() const { return stages_.get(); }
  void set_stages(std::shared_ptr<const StageViews> stages) { stages_ = std::move(stages); }
  // The same fleet with all of the other stage out of rotation. Positions stay; there is no plan.
  FleetView StageOf(Stage stage) const;

  // Of requests for an adapter that any of these workers can load: 1 for those that have it, by position. Null: they
  // are alike.
  using Residents = std::vector<uint8_t>;
  const Residents* residents() const { return residents_.get(); }
  void set_residents(std::shared_ptr<const Residents> residents) { residents_ = std::move(residents); }
  // The same fleet with the others not eligible. REQUIRES: residents().
  FleetView OnlyResidents() const;
  // The same fleet with those that are overloaded not eligible.
  FleetView WithoutOverloaded() const;

  // The same fleet with some members not eligible. Positions and plan stay.
  FleetView Without(std::span<const uint32_t> positions) const;
  // Makes a member of this view not eligible; for a view of one's own.
  void Exclude(uint32_t position);
  // The same with one member eligible, whether it was or not.
  FleetView Only(uint32_t position) const;

 private:
  void FindEligible();

  std::vector<Member> members_;
  std::vector<const WorkerLoad*> loads_;  // by position
  std::vector<uint32_t> eligible_;
  std::vector<uint8_t> is_eligible_;  // by position
  uint64_t membership_version_ = 0;
  uint64_t pool_ = 0;
  uint64_t eligible_weight_ = 0;
  uint32_t in_rotation_ = 0;
  uint32_t ejected_ = 0;
  bool equal_weights_ = true;
  bool all_admitting_ = true;
  bool any_in_doubt_ = false;
  bool any_overloaded_ = false;
  bool any_prefix_ = false;
  std::shared_ptr<const FleetPlan> plan_;
  std::shared_ptr<const ModelPools> models_;
  std::shared_ptr<const Residents> residents_;
  Stage stage_ = Stage::kAll;
  std::shared_ptr<const StageViews> stages_;
};

// The two stages of a fleet, made with it: equal positions, each with the plan of its own policy.
struct StageViews {
  std::shared_ptr<const FleetView> prefill;
  std::shared_ptr<const FleetView> decode;
  EngineKind engine =
      EngineKind::kUnknown;  // of all workers that may be chosen; unknown without PairRule::one_engine

  // The part of each that is at these positions, with the plan of the stage.
  StageViews PoolOf(std::span<const uint32_t> positions) const;

  const std::shared_ptr<const FleetView>& of(Stage stage) const {
    return stage == Stage::kDecode ? decode : prefill;
  }
};

// The plan that `owner` made for this view (or, while planning, for the previous one); null if there is none. Of a
// whole fleet with stages: for its own stage, of which each has a policy.
template <typename Plan>
const Plan* FindPlan(const FleetView& fleet, const void* owner) {
  for (const FleetPlan* plan = fleet.plan(); plan != nullptr; plan = plan->inner.get()) {
    if (plan->owner == owner) return static_cast<const Plan*>(plan);
  }
  if (fleet.stages() == nullptr) return nullptr;
  const Plan* const prefill = FindPlan<Plan>(*fleet.stages()->prefill, owner);
  return prefill != nullptr ? prefill : FindPlan<Plan>(*fleet.stages()->decode, owner);
}

}  // namespace vllm_router
