// HostPoller: the common part of services that poll the hosts of the fleet: health, load, cache
// capacity. It looks at the fleet repeatedly and starts the polls that are due. Each poll is a coroutine
// of its own, and ended() waits for all of them.
//
//   Start -> Begin -> Pass(fleet) --- ns until the next one, or PassNow() ---> Pass(fleet) --- … -> Stop
//                        |
//                        `-> Spawn(poll of a host): const UnderWay under_way(*this);
//                                                   co_await thread_.http.Get(…)
//
// A host is a base URL: its ranks (worker_url.h) are polled once. On the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct IoThread;

class HostPoller : public Service {
 public:
  void Stop() override;
  bool ended() const override { return under_way_ == 0; }

 protected:
  using Workers = std::vector<std::shared_ptr<Worker>>;
  using Hosts = std::map<std::string, Workers>;  // by base URL

  // Counts a coroutine of the service while this is in scope.
  class UnderWay {
   public:
    explicit UnderWay(HostPoller& poller) : poller_(poller) { ++poller_.under_way_; }
    ~UnderWay() { --poller_.under_way_; }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;

   private:
    HostPoller& poller_;
  };

  explicit HostPoller(IoThread& thread);

  // Starts the passes after `first_ns`; they continue until Stop().
  void Begin(int64_t first_ns = 0);
  // Starts the polls that are due. Returns the nanoseconds until the next pass.
  virtual int64_t Pass(const FleetView& fleet) = 0;
  void PassNow() { delay_.Cancel(); }
  // +-10 %, so that routers do not poll in step.
  int64_t Jittered(int64_t interval_ns);
  bool stopped() const { return stopped_; }

  enum class Which : uint8_t { kAll, kHealthy };
  static Hosts HostsOf(const FleetView& fleet, Which which = Which::kAll);

  IoThread& thread_;

 private:
  Task<void> Run(int64_t first_ns);

  Delay delay_;
  bool stopped_ = false;
  int under_way_ = 0;
};

}  // namespace vllm_router
