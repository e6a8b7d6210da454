// LoadPoller polls every worker at an interval for its number of requests, ours and those of others, so
// that policies see what other routers send it (docs/reference/policies.md, "Reported load").
//
//   reported 9, of which 4 are ours   ->   5 of others   ->   WorkerLoad::requests() = open requests + 5
//
// The same for waiting requests, if the worker reports them separately, and for the use of its KV cache, which
// ScaleService reads. By these two a worker may count as overloaded (worker/overload.h). LoadSource finds the endpoint
// that a worker has. A load not reported for kForgottenPolls polls counts as none. The counters that
// tickets write are only read. On the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "net/task.h"
#include "proxy/client/load_report.h"
#include "proxy/control/host_poller.h"

namespace vllm_router {

class LoadPoller final : public HostPoller {
 public:
  static constexpr int kForgottenPolls = 3;
  static constexpr int64_t kAloneMs = 1'000;

  explicit LoadPoller(IoThread& thread);

  void Start() override;  // the first poll comes after one interval
  void Stop() override;
  void FollowSettings() override { PassNow(); }
  // Other routers cannot be heard, so workers are polled even if the settings do not say so. On the control thread.
  void SetAlone(bool alone);

 private:
  struct Host {
    LoadSource source;
    bool polling = false;
    int missed = 0;  // polls in a row
    bool warned = false;
  };

  int64_t IntervalMs() const;  // 0: nothing is polled
  int64_t NextPassNs();
  void Forget(const FleetView& fleet);
  void SetOverloaded(Worker* worker, bool overloaded);
  void SetNotKnown(Worker* worker);
  Task<void> PublishSoon();
  int64_t Pass(const FleetView& fleet) override;
  Task<void> Poll(std::shared_ptr<Host> host, Workers workers);

  bool alone_ = false;
  bool publishing_ = false;
  Delay publish_delay_;
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
};

}  // namespace vllm_router
