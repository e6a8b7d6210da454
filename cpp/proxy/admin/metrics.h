// Metrics: the page of a scrape, as Prometheus text. Threads count in their own shards without locks; a scrape sums these
// and adds the families of everything that was added here:
//
//   exchange_metrics, stage_metrics         what the threads counted at requests
//   worker_metrics, fleet_metrics           the fleet
//   Add(): services, configuration, pages   each writes its own families (Service::WriteMetrics)
//   process_metrics                         limits, files, the process
//
// Labels come from small fixed sets, and `worker` from the fleet. Names and meanings: docs/reference/metrics.md.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proxy/admin/process_metrics.h"
#include "proxy/admin/telemetry_sums.h"
#include "proxy/admin/worker_metrics.h"

namespace vllm_router {

class Metrics {
 public:
  using Write = std::function<void(MetricsPage*)>;

  // The telemetries, the limits, the clock and the files must outlive this.
  Metrics(
      std::shared_ptr<Router> router, std::vector<const Telemetry*> telemetries, const ServerLimits& limits,
      const Clock& clock, ServerFiles files = {});
  ~Metrics();

  // Before the threads run: what writes families of its own, in the order of the page. Any thread calls it.
  void Add(Write write) { more_.push_back(std::move(write)); }

  // Prometheus text format 0.0.4. Any thread.
  std::string Text() const;

 private:
  const std::shared_ptr<Router> router_;
  const TelemetrySums threads_;
  const ServerLimits& limits_;
  const Clock& clock_;
  const ServerFiles files_;
  const double started_;  // Unix time
  std::vector<Write> more_;
  mutable ShownWorkers shown_workers_;
};

}  // namespace vllm_router
