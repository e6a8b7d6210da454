// WorkerRegistry: the members of the fleet, and which of them may serve. The one writer of FleetViews:
// every change of the declared fleet (declared_fleet.h) builds the next view aside, lets the policy plan
// for it, and publishes it whole and once.
//
// Thread-safe: changes take one mutex, readers take snapshot() and never wait for a change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "worker/declared_fleet.h"
#include "worker/fleet_view.h"
#include "worker/model_catalog.h"
#include "worker/worker_declaration.h"

namespace vllm_router {

class WorkerRegistry {
 public:
  // Called under the registry's mutex with the next view (whose plan is still the previous one); returns
  // its plan. Must not call back into the registry.
  using Planner = std::function<std::shared_ptr<const FleetPlan>(const FleetView& next)>;

  // `is_staged`: each worker is of one of the two stages, which are planned each for itself instead of the whole
  // (FleetView::stages); otherwise none is.
  explicit WorkerRegistry(Planner planner, const GuardOptions& guard = {}, bool is_staged = false);

  // Here and below each worker that is declared is one: its ranks are declared one by one.
  //
  // Many at once, planned and published once: all of them or, when one is rejected, none. InvalidArgument
  // for a bad weight or role, AlreadyExists, ResourceExhausted at kMaxWorkers.
  Status AddAll(std::vector<WorkerDeclaration> workers, std::string_view source = DeclaredFleet::kApi);
  Status Add(std::string_view url, double weight = 1.0, bool receives_api_key = true);
  // The result that AddAll would have; adds nothing.
  Status MayAdd(std::vector<WorkerDeclaration> workers);

  // From now on every worker must have an address: names (WorkerUrl::is_name) are rejected.
  // InvalidArgument, without any change, when one is in the fleet.
  Status RequireAddresses();

  // Here and below a URL without @rank also means all its ranks, and the spelling of a known URL may
  // differ in case of the host, in ":80" and in a trailing slash. NotFound names the nearest known URL.
  // PermissionDenied if a source declares it.
  Status Remove(std::string_view url);
  Status SetDraining(std::string_view url, bool draining);
  Status SetHealthy(std::string_view url, bool healthy);  // of the host: all its ranks share it

  StatusOr<std::vector<std::shared_ptr<Worker>>> Named(std::string_view url);

  // The lists of sources; see DeclaredFleet.
  StatusOr<Difference> Reconcile(
      std::string_view source, std::vector<WorkerDeclaration> list, bool complete,
      std::span<const std::string> deleted, int64_t now_ns);
  // What Reconcile would return; changes nothing.
  StatusOr<Difference> WouldReconcile(
      std::string_view source, std::vector<WorkerDeclaration> list, bool complete, int64_t now_ns) const;
  StatusOr<Difference> ReconcileAgain(std::string_view source, int64_t now_ns);
  StatusOr<std::vector<std::string>> Adopt(std::string_view source, int64_t now_ns);
  // The sources that have not declared a list yet: "dns, kubernetes"; empty: there is none.
  std::string Awaited() const;
  void SetGuard(const GuardOptions& guard);  // of lists from now on
  Status ReportError(std::string_view source, std::string_view kind, std::string_view message);

  // A server manages the fleet: it checks pending workers and watches draining ones. `changed` is called
  // after lists that leave something of that to do, from any thread, and must not call back. The id ends it.
  uint64_t Manage(std::function<void()> changed);
  void EndManaging(uint64_t id);
  std::vector<std::string> Admit(std::span<const uint64_t> rows, int64_t now_ns);
  // To be called again and again: workers that wait for others to join leave when the time is over.
  void EndHolds(int64_t now_ns);
  void Drained(std::span<const WorkerId> workers, int64_t now_ns);

  // What a host, by its base URL, says that it serves (model_catalog.h). `refused`: names that are not kept. Published
  // by the next change of the fleet or PublishModels(), so that many lists cost one publication. True if there is
  // something to publish.
  bool SetModels(
      std::string_view base, std::span<const ModelCard> cards, int64_t now_ns, size_t* refused = nullptr);
  // Nothing is known of it any more. `if_awaited`: only if it did not respond before.
  bool ForgetModels(std::string_view base, bool if_awaited = false);
  // It does not respond.
  bool AwaitModels(std::string_view base, int64_t now_ns);
  void PublishModels();
  void ExpectModels(std::span<const std::string> names, int64_t memory_ns, bool spread = false);

  // What must be known of workers before they are in rotation.
  void SetPairRule(const PairRule& rule);

  // Publishes what has changed in the workers themselves: breakers, slow-start factors, and what pairs need.
  void Refresh();

  // Copies of all rows; and what rows_version() was then.
  std::vector<DeclaredFleet::Row> Rows(uint64_t* version = nullptr) const;
  uint64_t rows_version() const;
  std::vector<SourceReport> Sources() const;
  const Snapshot<FleetView>& snapshot() const { return snapshot_; }
  bool is_staged() const { return is_staged_; }

 private:
  // Rounds their weights to thousandths.
  Status CheckAll(std::vector<WorkerDeclaration>* workers) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Positions of the rows of `url` or of its ranks that are `wanted`.
  StatusOr<std::vector<size_t>> Find(
      std::string_view url, const std::function<bool(const DeclaredFleet::Row&)>& wanted) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PublishIfChanged(uint64_t before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallManagers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The engine of the fleet's workers under PairRule::one_engine.
  EngineKind EngineOfFleet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PairState PairStateOf(const Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The view of a stage of `next`, with its plan; `last`: the stages before.
  std::shared_ptr<const FleetView> PlannedStage(
      const FleetView& next, Stage stage, const StageViews* last) const;

  const Planner planner_;
  const bool is_staged_;
  mutable Mutex mutex_;  // held while the policy plans
  DeclaredFleet fleet_ ABSL_GUARDED_BY(mutex_);
  ModelCatalog models_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<WorkerId, uint32_t>> published_ ABSL_GUARDED_BY(mutex_);  // members, and weights
  uint64_t membership_version_ ABSL_GUARDED_BY(mutex_) = 0;
  PairRule pair_rule_ ABSL_GUARDED_BY(mutex_);
  EngineKind engine_ ABSL_GUARDED_BY(mutex_) = EngineKind::kUnknown;
  bool requires_addresses_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, std::function<void()>> managers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_manager_ ABSL_GUARDED_BY(mutex_) = 1;
  Snapshot<FleetView> snapshot_;
};

}  // namespace vllm_router
