// HealthChecker: asks every host of the fleet, at an interval, whether it serves. Concurrently, each with its own
// deadline and the workers' key; ranks of one host are asked once; down or up, a host is asked for ever. When each is due
// is worker/health.h's affair. Changes of verdict go to the registry, hence into the next fleet snapshot.
//
// It also hears from requests: a worker that could not be reached is asked at once (ReportPassiveFailure), and one that came back
// gets its share of the load back over --slow-start-secs (Recovered). On the control thread; what other threads may call
// says so.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/task.h"
#include "proxy/control/host_poller.h"
#include "proxy/thread/io_thread.h"
#include "worker/health.h"

namespace vllm_router {

class HealthChecker final : public HostPoller {
 public:
  explicit HealthChecker(IoThread& thread);

  // `on_dead`: called on the control thread once a worker is down and cannot even be connected to, so that what it was
  // asked for goes elsewhere. Before Start().
  void set_on_dead(std::function<void(std::shared_ptr<const Worker>)> on_dead) {
    on_dead_ = std::move(on_dead);
  }

  void Start() override;
  void Stop() override;

  // Any thread.
  void ReportPassiveFailure(const std::shared_ptr<Worker>& worker);
  void Recovered(const std::shared_ptr<Worker>& worker);
  bool checks() const { return thread_.options.health_check_interval_ms > 0; }
  bool any_responded() const { return any_responded_.load(std::memory_order_relaxed); }

 private:
  struct SlowStart {
    std::shared_ptr<Worker> worker;
    int64_t since_ns;
  };

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Probe(WorkerUrl url);
  void FollowFleet(const FleetView& fleet);
  Task<void> RunSlowStarts();

  Delay slow_start_delay_;
  int polling_ = 0;                             // probes under way
  std::map<std::string, HealthWatch> watches_;  // by base URL
  std::map<std::string, WorkerUrl> hosts_;
  uint64_t membership_ = ~uint64_t{0};  // of the fleet that hosts_ is of
  std::set<std::string> dead_;          // by base URL: out of reach since its verdict, or before
  std::function<void(std::shared_ptr<const Worker>)> on_dead_;
  std::vector<SlowStart> slow_starts_;
  bool slow_starting_ = false;
  std::atomic<bool> any_responded_{false};
};

}  // namespace vllm_router
