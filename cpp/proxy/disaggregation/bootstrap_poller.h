// BootstrapPoller asks the bootstrap server of each Mooncake prefill worker for the ids of its engines, which decode
// workers have to be told. A worker whose rank has none is not in rotation.
//
//   http://p0:8000@1, bootstrap port 8998   GET http://p0:8998/query -> {"0": {"engine_id": "e0"}, "1": {"engine_id": "e1"}}
//                                                                                                            Worker::engine_id
//
// An engine that starts anew has another id. So what was known is dropped when the worker becomes unhealthy, or if a
// transfer has failed and its server does not respond; a server that only fails does not take an id away. The workers'
// key is not sent. The rest is PairFactPoller's.
#pragma once

#include <optional>

#include "proxy/disaggregation/pair_fact_poller.h"
#include "proxy/telemetry/stage_telemetry.h"

namespace vllm_router {

class BootstrapPoller final : public PairFactPoller {
 public:
  explicit BootstrapPoller(IoThread& thread) : PairFactPoller(thread, "/query") {}

 private:
  std::optional<WorkerUrl> AddressOf(const Worker& worker) const override;
  bool Learn(
      const WorkerUrl& address, const Workers& workers, const StatusOr<HttpResponse>& response, bool doubted,
      int failures) override;
  void IsDown(Worker& worker) override;

  BootstrapResult LearnOne(Worker& worker, const std::string* id);
};

}  // namespace vllm_router
