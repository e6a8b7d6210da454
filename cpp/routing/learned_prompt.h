// LearnedPrompt: the policy of one ticket whose prompt is remembered in a second index too, beside what the policy
// that decided remembers: of a decode worker, whose cache is matched to bypass prefill (routing/pd_bypass.h).
// What a policy is told of the request, both are told.
//
// Thread-safe, as Policy::Observe() is.
#pragma once

#include <memory>
#include <utility>

#include "policy/kv_index.h"
#include "policy/policy.h"

namespace vllm_router {

class LearnedPrompt final : public Policy {
 public:
  // `told`: the policy's own decision. `learned`: the same, for the index.
  LearnedPrompt(
      std::shared_ptr<Policy> policy, Decision told, std::shared_ptr<KvIndex> index, Decision learned)
      : policy_(std::move(policy)),
        told_(std::move(told)),
        index_(std::move(index)),
        learned_(std::move(learned)) {}

  std::string_view name() const override { return policy_->name(); }
  KeyParts Needs() const override { return policy_->Needs(); }
  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    return policy_->Choose(key, fleet);
  }
  void Observe(const Decision& /*decision*/, const Outcome& outcome) override {
    policy_->Observe(told_, outcome);
    index_->Settle(learned_, outcome);
  }
  void ObserveFirstToken(const Decision& /*decision*/, int64_t now_ns) override {
    policy_->ObserveFirstToken(told_, now_ns);
    index_->EndWait(learned_);
  }

 private:
  const std::shared_ptr<Policy> policy_;
  const Decision told_;
  const std::shared_ptr<KvIndex> index_;
  const Decision learned_;
};

}  // namespace vllm_router
