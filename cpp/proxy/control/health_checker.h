// HealthChecker checks every host of the fleet at an interval. Checks run concurrently, each with its
// own deadline and the workers' key. Ranks of one host are checked once. A host is checked forever, up
// or down. worker/health.h decides when each is due. Changes of health go to the registry, hence into
// the next fleet snapshot.
//
// Requests report to it as well: an unreachable worker is checked at once (ReportPassiveFailure), and a
// recovered one gets its share of the load back over --slow-start-secs (Recovered). On the control
// thread, except where a comment says any thread.
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
  // Called on the control thread: `on_dead` once a worker is down and not even connectable, so that its requests go
  // elsewhere; `on_change` after a host has become healthy or unhealthy. OnChange() before Start().
  using OnDead = std::function<void(std::shared_ptr<const Worker>)>;
  HealthChecker(IoThread& thread, OnDead on_dead);
  void OnChange(std::function<void()> on_change) { on_change_.push_back(std::move(on_change)); }

  void Start() override;
  void Stop() override;
  void FollowSettings() override;

  // Any thread.
  void ReportPassiveFailure(const std::shared_ptr<Worker>& worker);
  void Recovered(const std::shared_ptr<Worker>& worker);
  void CheckNewHosts() { PassNow(); }  // on the control thread
  bool checks() const { return checks_; }
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

  const OnDead on_dead_;
  std::vector<std::function<void()>> on_change_;
  const bool checks_;
  Delay slow_start_delay_;
  int polling_ = 0;                             // checks in flight
  std::map<std::string, HealthWatch> watches_;  // by base URL
  struct Host {
    WorkerUrl url;
    std::set<WorkerId> workers = {};
  };
  std::map<std::string, Host> hosts_;           // by base URL
  uint64_t membership_version_ = ~uint64_t{0};  // of the fleet that hosts_ reflects
  std::set<std::string> dead_;                  // by base URL: unreachable when, or since, it was found down
  std::vector<SlowStart> slow_starts_;
  bool slow_starting_ = false;
  std::atomic<bool> any_responded_{false};
};

}  // namespace vllm_router
