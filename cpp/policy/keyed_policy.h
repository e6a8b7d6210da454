// KeyedPolicy: the common part of policies that need a hash key. A request without a key goes to the
// fallback policy, which it owns; the fallback also gets its own plan and the outcomes of its own
// decisions.
#pragma once

#include <memory>

#include "policy/policy.h"

namespace vllm_router {

class KeyedPolicy : public Policy {
 public:
  explicit KeyedPolicy(std::unique_ptr<Policy> fallback) : fallback_(std::move(fallback)) {}

  KeyParts Needs() const override { return KeyParts::kSession | KeyParts::kBodyDigest; }
  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) final;
  void Observe(const Decision& decision, const Outcome& outcome) final;
  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) final;

 protected:
  struct Owner {
    uint32_t position;
    // kSessionHash stands for "its home"; the key's source makes it kBodyHash where that is true.
    Reason reason;
  };

  // Called with a key, and with at least one eligible worker.
  virtual Owner ChooseOwner(const RoutingKey& key, const FleetView& fleet) = 0;
  // As Policy::Plan, keeping the fallback's plan as the inner one.
  virtual std::shared_ptr<const FleetPlan> PlanOwners(
      const FleetView& next, std::shared_ptr<const FleetPlan> inner) = 0;

 private:
  const std::unique_ptr<Policy> fallback_;
};

}  // namespace vllm_router
