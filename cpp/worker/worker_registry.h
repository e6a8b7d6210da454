// WorkerRegistry: who belongs to the fleet, and who of them may serve. The one writer of FleetViews: every change
// builds the next view aside, lets the policy plan for it, and publishes it whole.
//
// Thread-safe: changes take one mutex, readers take snapshot() and never wait for a change.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/snapshot.h"
#include "base/status.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class WorkerRegistry {
 public:
  // Called under the registry's mutex with the next view (whose plan is still the previous one); returns its plan.
  // Must not call back into the registry.
  using Planner = std::function<std::shared_ptr<const FleetPlan>(const FleetView& next)>;

  explicit WorkerRegistry(Planner planner);

  // InvalidArgument for a bad URL or weight, AlreadyExists, ResourceExhausted at kMaxWorkers.
  Status Add(std::string_view url, double weight = 1.0);
  // A URL without @rank also means all its ranks. NotFound names the nearest known URL.
  Status Remove(std::string_view url);
  Status SetDraining(std::string_view url, bool draining);
  Status SetHealthy(std::string_view url, bool healthy);  // all ranks of a host share its health

  const Snapshot<FleetView>& snapshot() const { return snapshot_; }

 private:
  std::vector<uint32_t> Matching(std::string_view url) const;  // positions of `url` or of its ranks
  Status Change(std::string_view url, const std::function<void(FleetView::Member&)>& change);
  void PublishLocked();

  const Planner planner_;
  std::mutex mutex_;  // guards what follows; held while the policy plans
  std::vector<FleetView::Member> members_;
  uint32_t next_id_ = 0;
  uint64_t membership_ = 0;
  Snapshot<FleetView> snapshot_;
};

}  // namespace vllm_router
