// FleetManager carries out what sources of workers declared (worker/declared_fleet.h): it checks pending
// workers and lets them in, hands those that leave to the Drainer, has those checked at once that are held, and
// ends holds in time.
//
//   pending  --- GET --health-check-endpoint: 2xx --->  serving       asked at once, then after 0.25, 0.5,
//                                                                     1, 2 and each further 5 s
//            then GET /v1/models (model_service.h)
//   draining, by its sources                      --->  Drainer
//   held                                          --->  HealthChecker, which lets it go if it is down
//
// Without health checks (--health-check-interval-secs 0) pending workers serve at once. On the control
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "net/task.h"
#include "proxy/control/drainer.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/host_poller.h"
#include "proxy/control/model_service.h"
#include "worker/declared_fleet.h"

namespace vllm_router {

class FleetManager final : public HostPoller {
 public:
  FleetManager(IoThread& thread, HealthChecker& health, Drainer& drainer, ModelService& models);
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
    int unanswered = 0;  // queries for its models
    bool checking = false;
    bool warned = false;
    std::string failure = {};  // of its last check
  };

  int64_t Pass(const FleetView& fleet) override;
  void FollowRows();
  void LogHeld(
      const std::string& source, const std::vector<std::string>& urls, bool are_replaced, int64_t now);
  void StartChecks(const std::map<std::string_view, std::vector<uint64_t>>& due);
  // Of the host, for these of its rows; `again`: each was checked before.
  Task<void> Check(std::vector<uint64_t> rows, WorkerUrl url, bool again);
  void Admit();
  void Release();

  HealthChecker& health_;
  Drainer& drainer_;
  ModelService& models_;
  uint64_t manager_ = 0;                 // 0: released
  uint64_t version_ = 0;                 // of the rows that are followed
  std::map<uint64_t, Pending> pending_;  // by row
  std::set<uint64_t> held_;              // rows
  std::set<uint64_t> replaced_;          // of them, until others have joined
  std::vector<uint64_t> passed_;         // rows, not admitted yet
  int64_t admitted_ns_ = INT64_MIN / 2;
  std::map<std::string, int64_t, std::less<>> told_ns_;  // of a held list in the log, by source
  int checking_ = 0;                                     // hosts
  int checking_again_ = 0;                               // of them, that were checked before
};

}  // namespace vllm_router
