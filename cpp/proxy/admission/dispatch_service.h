// DispatchService: a look at all pools with waiters every 100 ms. Requests dispatch others when they get their first token and
// when they end; what no request tells is found here: a load report, a change of the fleet, an engine's queue that empties, a
// higher class that has had no request for half a minute.
//
// While there are no classes it sleeps. On the control thread.
#pragma once

#include <cstdint>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"

namespace vllm_router {

class ClassPools;
struct IoThread;

class DispatchService final : public Service {
 public:
  static constexpr int64_t kTickNs = 100'000'000;

  // `pools` outlives it.
  DispatchService(IoThread& control, ClassPools& pools);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !running_; }
  void FollowSettings() override { delay_.Cancel(); }

 private:
  Task<void> Run();

  IoThread& thread_;
  ClassPools& pools_;
  Delay delay_;
  bool stopped_ = false;
  bool running_ = false;
};

}  // namespace vllm_router
