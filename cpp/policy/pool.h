// Pool: workers, the policy that chooses among them, and what is known of their caches.
//
//   registry   who is there, healthy, draining       publishes a FleetView per change, with plans made for it
//   policy     Choose(key, view), Observe(decision)
//   index      which blocks each worker's cache holds; null if the policy matches no blocks
//
// A fleet with stages (worker/stage.h) has a second policy, for its decode workers; `policy` and `index` are then
// those of its prefill workers. The decode policy may have an index too, of what this router sent: what engines
// and other routers tell goes to index() only.
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
  // `decode`: of decode workers; without its policy the fleet has no stages.
  explicit Pool(PolicyParts parts, const GuardOptions& guard = {}, PolicyParts decode = {})
      : main_(std::move(parts)),
        decode_(std::move(decode)),
        registry_(
            [main = main_, decode = decode_](const FleetView& next) {
              const PolicyParts& own = next.stage() == Stage::kDecode ? decode : main;
              std::shared_ptr<const FleetPlan> plan = own.policy->Plan(next);
              return own.index != nullptr ? own.index->MakePlan(std::move(plan), next) : plan;
            },
            guard, /*is_staged=*/decode_.policy != nullptr) {}

  Policy& policy() const { return *main_.policy; }
  KvIndex* index() const { return main_.index.get(); }
  bool is_staged() const { return decode_.policy != nullptr; }
  // The one that chooses in views of that stage. REQUIRES for kDecode: is_staged().
  const std::shared_ptr<Policy>& policy_of(Stage stage) const {
    return stage == Stage::kDecode ? decode_.policy : main_.policy;
  }
  WorkerRegistry& registry() { return registry_; }
  const Snapshot<FleetView>& fleet_snapshot() const { return registry_.snapshot(); }
  std::shared_ptr<const FleetView> fleet() const { return registry_.snapshot().Load(); }

  // True if it can use the capacity of the workers' caches.
  bool models_caches() const { return ModelsCaches(main_) || (is_staged() && ModelsCaches(decode_)); }
  // An unknown size changes nothing.
  void SetCacheSize(WorkerId worker, const CacheSize& size);
  // The worker holds a prompt of these blocks, as became known after the decision.
  void RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks);
  // The worker's cache is empty now.
  void ForgetCache(WorkerId worker);

  // The figures of the policy and of the index, for the workers of `fleet`. Of two policies, those that both have
  // are sums, and those by worker are of the policy of the worker's stage.
  void Report(const FleetView& fleet, StatsWriter* writer) const;

 private:
  static bool ModelsCaches(const PolicyParts& parts) {
    return parts.index != nullptr || parts.policy->remembers_prompts();
  }

  const PolicyParts main_;
  const PolicyParts decode_;  // empty in a fleet without stages
  WorkerRegistry registry_;
};

}  // namespace vllm_router
