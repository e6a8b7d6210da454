// WorkerRegistry: the members of the fleet, and which of them may serve. The one writer of FleetViews:
// every change builds the next view aside, lets the policy plan for it, and publishes it whole.
//
// Thread-safe: changes take one mutex, readers take snapshot() and never wait for a change.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class WorkerRegistry {
 public:
  // Called under the registry's mutex with the next view (whose plan is still the previous one); returns
  // its plan. Must not call back into the registry.
  using Planner = std::function<std::shared_ptr<const FleetPlan>(const FleetView& next)>;

  explicit WorkerRegistry(Planner planner);

  // InvalidArgument for a bad URL or weight, AlreadyExists, ResourceExhausted at kMaxWorkers.
  Status Add(std::string_view url, double weight = 1.0, bool receives_api_key = true);

  // Many at once, planned and published once: all of them or, when one is rejected, none.
  struct NewWorker {
    std::string_view url;
    double weight = 1.0;
    bool receives_api_key = true;  // false: a third party may have added it
  };
  Status AddAll(std::span<const NewWorker> workers);
  // The result that AddAll would have; adds nothing.
  Status MayAdd(std::span<const NewWorker> workers);

  // From now on every worker must have an address: names (WorkerUrl::is_name) are rejected.
  // InvalidArgument, without any change, when one is in the fleet.
  Status RequireAddresses();

  // Here and below a URL without @rank also means all its ranks, and the spelling of a known URL may
  // differ in case of the host, in ":80" and in a trailing slash. NotFound names the nearest known URL.
  Status Remove(std::string_view url);
  Status SetDraining(std::string_view url, bool draining);
  Status SetHealthy(std::string_view url, bool healthy);  // of the host: all its ranks share it

  StatusOr<std::vector<std::shared_ptr<Worker>>> Named(std::string_view url);

  // Publishes what has changed in the workers themselves: breakers and slow-start factors.
  void Refresh();

  const Snapshot<FleetView>& snapshot() const { return snapshot_; }

 private:
  // The fleet with them.
  StatusOr<std::vector<FleetView::Member>> Joined(std::span<const NewWorker> workers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Positions of `url` or of its ranks.
  StatusOr<std::vector<uint32_t>> Find(std::string_view url) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Planner planner_;
  Mutex mutex_;  // held while the policy plans
  std::vector<FleetView::Member> members_ ABSL_GUARDED_BY(mutex_);
  LoadPages loads_ ABSL_GUARDED_BY(mutex_);
  uint32_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t membership_version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool requires_addresses_ ABSL_GUARDED_BY(mutex_) = false;
  Snapshot<FleetView> snapshot_;
};

}  // namespace vllm_router
