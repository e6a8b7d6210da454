// ScaleService works out once a second how many replicas each model wants (routing/scale_signals.h), for metrics and
// GET /scale.
//
//   requests, prompts that wait    the workers' loads, of all routers, as policies read them
//   slots                          --max-worker-requests of each live router; else not known
//   prefill rate                   learned from streams (routing/prefill_pace.h); else not known
//   KV use                         what load polls hear of it, from half of the ready workers at least; else not known
//   demand                         requests for the model, whether it had workers or not
//
// By base model: an adapter's requests are at its base model's workers, and its demand is theirs. A worker that serves
// several models counts for each. Where no models are known there is one row, of the whole fleet. Rows are kept of the
// names that are labels of metrics (kMaxModelLabels). Cost: 5 ns per model and worker. On the control thread; Report()
// on any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/scale_report.h"
#include "proxy/control/service.h"
#include "proxy/telemetry/telemetry.h"
#include "routing/prefill_pace.h"
#include "routing/scale_signals.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class OtherRouters;
struct IoThread;

class ScaleService final : public Service {
 public:
  static constexpr int64_t kTickNanos = 1'000'000'000;
  static constexpr size_t kMostRemovable =
      64;  // URLs that are named, since anyone may ask with --scale-public

  // The telemetries of all threads; `peers` may be null. They outlive it.
  ScaleService(IoThread& control, std::vector<const Telemetry*> telemetries, const OtherRouters* peers);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !runs_; }

  std::shared_ptr<const ScaleReport> Report() const;
  void WriteMetrics(MetricsPage* page) const override;

 private:
  struct Asked {  // of a model
    std::string_view name;
    std::span<const uint32_t> positions;
    std::span<const uint32_t> known = {};  // of them, those that list it or are declared to have it
    uint64_t demand = 0;
    int64_t waiting = 0;
  };
  struct Pending {  // a host that is not checked yet
    std::string base;
    std::vector<std::string> models;  // as its source declares; empty: not known
  };
  struct Host {
    uint32_t ready = 0;     // ranks
    uint32_t draining = 0;  // likewise
    int64_t requests = 0;
    uint64_t turn = 0;   // that it is of
    bool known = false;  // to be of the model
  };

  Task<void> Run();
  void Tick();
  void FollowFleet(const FleetView& fleet);
  void FollowPending();
  void FollowPaces(const FleetView& fleet, int64_t passed_ns);
  std::vector<Asked> Models(const FleetView& fleet, int64_t now_ns);
  ScaleReport::Model Look(const FleetView& fleet, const Asked& asked, bool is_only, int64_t now_ns);

  IoThread& thread_;
  const std::vector<const Telemetry*> telemetries_;
  const OtherRouters* const peers_;
  Delay delay_;
  bool runs_ = false;
  bool stopped_ = false;
  bool begun_ = false;
  int64_t ticked_ns_ = 0;

  // Of the fleet as it was at the last tick.
  uint64_t membership_ = ~uint64_t{0};
  std::vector<uint32_t> all_;      // positions
  std::vector<uint32_t> host_of_;  // by position
  std::vector<Host> hosts_;
  uint64_t turn_ = 0;
  uint64_t rows_version_ = 0;
  std::vector<Pending> pending_;
  std::map<WorkerId, PrefillPace> paces_;
  bool hears_routers_ = true;
  uint32_t routers_ = 1;

  std::map<std::string, ScaleSignals, std::less<>> signals_;  // by model

  mutable Mutex mutex_;  // leaf
  std::shared_ptr<const ScaleReport> report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
