#include "proxy/exchange/eligible_workers.h"

#include "proxy/exchange/worker_choice.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {

std::shared_ptr<const FleetView> EligibleWorkers::Now(IoThread& thread) const {
  return FleetFor(thread, model.get(), first_stage());
}

bool EligibleWorkers::AreFull(IoThread& thread) const {
  const auto is_full = [&](Stage stage) {
    std::shared_ptr<const FleetView> fleet = FleetFor(thread, model.get(), stage);
    if (!fleet->all_admitting()) {
      AdmitHalfOpen(thread, *fleet);
      fleet = FleetFor(thread, model.get(), stage);
    }
    return fleet->in_rotation() != 0 && thread.router->FreePlaces(*fleet) == 0;
  };
  return is_full(first_stage()) || (stages == Stages::kBoth && is_full(Stage::kDecode));
}

}  // namespace vllm_router
