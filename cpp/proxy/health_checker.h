// HealthChecker: asks every host of the fleet, at an interval, whether it serves. Concurrently, each with its own
// deadline; ranks of one host are asked once; down or up, a host is asked for ever. Changes of verdict go to the
// registry, hence into the next fleet snapshot. On the control lane.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "net/task.h"
#include "proxy/lane.h"
#include "worker/health.h"

namespace vllm_router {

class HealthChecker {
 public:
  explicit HealthChecker(Lane& lane);

  void Start();
  // Ends in one of the loop's next turns, probes under way when they do.
  void Stop();
  bool ended() const { return open_ == 0; }

 private:
  Task<void> Run();
  Task<void> Probe(WorkerUrl url);

  Lane& lane_;
  Delay delay_;
  bool stopped_ = false;
  int open_ = 0;                                   // coroutines of ours
  std::map<std::string, HealthTracker> trackers_;  // by base URL
};

}  // namespace vllm_router
