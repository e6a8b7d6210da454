// EnginePoller asks each worker of a fleet with --kv-connector auto which engine it is, of which the connector follows.
//
//   GET /v1/models -> {"data": [{"id": "m", "owned_by": "vllm"}]}     vllm: nixl; sglang: sglang
//
// The first engine that is learned is the fleet's until none of its workers is left (worker/pair_state.h); a worker of
// the other one stays out of rotation. What is known holds while a worker does not respond. The rest is
// PairFactPoller's.
#pragma once

#include <optional>
#include <set>

#include "proxy/disaggregation/pair_fact_poller.h"

namespace vllm_router {

class EnginePoller final : public PairFactPoller {
 public:
  explicit EnginePoller(IoThread& thread) : PairFactPoller(thread, "/v1/models") {}

 private:
  std::optional<WorkerUrl> AddressOf(const Worker& worker) const override { return worker.url; }
  bool Learn(
      const WorkerUrl& address, const Workers& workers, const StatusOr<HttpResponse>& response, bool doubted,
      int failures) override;
  void Published(const FleetView& fleet) override;

  std::set<WorkerId> others_;  // of another engine than the fleet; the log says so
};

}  // namespace vllm_router
