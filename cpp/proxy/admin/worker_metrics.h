// Families of the workers: what the threads counted for each, and what the fleet's view says of its members.
//
// Series of a removed worker are shown for kRemovedNanos after the first scrape without it, so that Prometheus sees their
// final values, and then no more. When a worker comes back under the same URL, its series begin again at once. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace vllm_router {

class FleetView;
class MetricsPage;
class Router;
class TelemetrySums;
struct Worker;

// The workers that a scrape shows. It keeps them, and so their counters, alive (worker_counters.h).
class ShownWorkers {
 public:
  static constexpr int64_t kRemovedNanos = 60'000'000'000;

  // Members of the fleet, then recently removed workers whose URL is not back.
  std::vector<std::shared_ptr<const Worker>> Of(const FleetView& fleet, int64_t now_ns);

 private:
  struct Shown {
    std::shared_ptr<const Worker> worker;
    int64_t gone_ns = kServes;  // first scrape without it
    static constexpr int64_t kServes = -1;
  };

  Mutex mutex_;  // leaf
  std::vector<Shown> shown_ ABSL_GUARDED_BY(mutex_);
};

void WriteWorkers(
    const TelemetrySums& threads, const Router& router, const FleetView& fleet,
    const std::vector<std::shared_ptr<const Worker>>& workers, int64_t now_ns, MetricsPage* page);

// Of the members alone.
void WriteFleet(const TelemetrySums& threads, const FleetView& fleet, MetricsPage* page);

}  // namespace vllm_router
