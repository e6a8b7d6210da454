// Pool: workers, the policy that chooses among them, and what is known of their caches.
//
//   registry   who is there, healthy, draining       publishes a FleetView per change, with plans made for it
//   policy     Choose(key, view), Observe(decision)
//   index      which blocks each worker's cache holds; null if the policy matches no blocks
//
// Whatever learns of a worker's cache (a poll of its capacity, an admin request, a response) says it
// here, and it reaches the index and a policy with a memory of its own alike.
//
//   Pool pool(MakePolicy({.policy = "auto"}).value());
//   pool.registry().Add("http://a:8000");
//   pool.policy().Choose(key, *pool.fleet());
//
// Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "policy/kv_index.h"
#include "policy/policy.h"
#include "worker/worker_registry.h"

namespace vllm_router {

// A policy, and the index that it reads: null if it matches no blocks.
struct PolicyParts {
  std::shared_ptr<Policy> policy;
  std::shared_ptr<KvIndex> index;
};

class Pool {
 public:
  explicit Pool(PolicyParts parts, const GuardOptions& guard = {})
      : policy_(std::move(parts.policy)),
        index_(std::move(parts.index)),
        registry_(
            [policy = policy_, index = index_](const FleetView& next) {
              std::shared_ptr<const FleetPlan> plan = policy->Plan(next);
              return index != nullptr ? index->MakePlan(std::move(plan), next) : plan;
            },
            guard) {}

  Policy& policy() const { return *policy_; }
  const std::shared_ptr<Policy>& shared_policy() const { return policy_; }
  KvIndex* index() const { return index_.get(); }
  WorkerRegistry& registry() { return registry_; }
  const Snapshot<FleetView>& fleet_snapshot() const { return registry_.snapshot(); }
  std::shared_ptr<const FleetView> fleet() const { return registry_.snapshot().Load(); }

  // True if it can use the capacity of the workers' caches.
  bool models_caches() const { return index_ != nullptr || policy_->remembers_prompts(); }
  // An unknown size changes nothing.
  void SetCacheSize(WorkerId worker, const CacheSize& size);
  // The worker holds a prompt of these blocks, as became known after the decision.
  void RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks);
  // The worker's cache is empty now.
  void ForgetCache(WorkerId worker);

  // The figures of the policy and of the index, for the workers of `fleet`.
  void Report(const FleetView& fleet, StatsWriter* writer) const;

 private:
  const std::shared_ptr<Policy> policy_;
  const std::shared_ptr<KvIndex> index_;
  WorkerRegistry registry_;
};

}  // namespace vllm_router
