// FleetManager carries out what sources of workers declared (worker/declared_fleet.h): it checks pending
// workers and lets them in, hands those that leave to the Drainer, and has those checked at once that the
// guard holds.
//
//   pending  --- GET --health-check-endpoint: 2xx --->  serving       asked at once, then after 0.25, 0.5,
//                                                                     1, 2 and each further 5 s
//   draining, by its sources                      --->  Drainer
//   held                                          --->  HealthChecker, which lets it go if it is down
//
// Without health checks (--health-check-interval-secs 0) pending workers serve at once. On the control
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "net/task.h"
#include "proxy/control/drainer.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/host_poller.h"
#include "worker/declared_fleet.h"

namespace vllm_router {

class FleetManager final : public HostPoller {
 public:
  FleetManager(IoThread& thread, HealthChecker& health, Drainer& drainer);
  ~FleetManager() override;

  void Start() override { Begin(); }
  void Stop() override;

 private:
  struct Pending {
    WorkerUrl url;
    std::string source;
    int64_t since_ns = 0;
    int64_t due_ns = 0;
    size_t checks = 0;
    bool checking = false;
    bool warned = false;
  };

  int64_t Pass(const FleetView& fleet) override;
  void FollowRows();
  Task<void> Check(uint64_t id, WorkerUrl url);
  void Admit();
  void Release();

  HealthChecker& health_;
  Drainer& drainer_;
  uint64_t manager_ = 0;                 // 0: released
  uint64_t version_ = 0;                 // of the rows that are followed
  std::map<uint64_t, Pending> pending_;  // by row
  std::set<uint64_t> held_;              // rows
  std::vector<uint64_t> passed_;         // rows, not admitted yet
  int64_t admitted_ns_ = INT64_MIN / 2;
  int checking_ = 0;
};

}  // namespace vllm_router
