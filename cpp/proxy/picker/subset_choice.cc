#include "proxy/picker/subset_choice.h"

#include <utility>

#include <absl/container/inlined_vector.h>

#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

FleetView PartOf(const FleetView& fleet, const WorkerFilter& passes, bool with_backoff) {
  absl::InlinedVector<uint32_t, 16> left_out;
  for (const uint32_t position : fleet.eligible()) {
    const Worker& worker = fleet.worker(position);
    const bool fits = passes(worker) && worker.breaker.Admits() && (with_backoff || !worker.backoff.active());
    if (!fits) left_out.push_back(position);
  }
  return fleet.Without(left_out);
}

// Of those that pass, whatever their breakers say; a worker in doubt last.
std::optional<uint32_t> FirstOpened(const FleetView& fleet, const WorkerFilter& passes) {
  std::optional<uint32_t> first;
  const auto order = [&fleet](uint32_t position) {
    return std::pair(fleet.members()[position].in_doubt, fleet.worker(position).breaker.opened_ns());
  };
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    if (!fleet.members()[position].in_rotation() || !passes(fleet.worker(position))) continue;
    if (!first || order(position) < order(*first)) first = position;
  }
  return first;
}

}  // namespace

SubsetChoice ChooseAmong(
    IoThread& thread, const RoutingKey& key, const BreakerOptions& breaker, const FleetView& fleet,
    const WorkerFilter& passes) {
  Router& router = *thread.router;
  FleetView rest = PartOf(fleet, passes, /*with_backoff=*/false);
  if (rest.eligible().empty()) rest = PartOf(fleet, passes, /*with_backoff=*/true);
  const bool any = !rest.eligible().empty();
  while (!rest.eligible().empty()) {
    StatusOr<Ticket> ticket = router.Select(key, rest);
    if (!ticket.ok()) {
      return {
          .selected = {},
          .all_full = router.options().max_worker_requests != 0,
          .message = std::string(ticket.status().message())};
    }
    std::optional<BreakerPass> pass = ticket->shared_worker()->breaker.TryPass(breaker);
    if (pass) return {.selected = WorkerChoice::Selected{*std::move(ticket), std::move(pass)}};
    // Another thread's request got the probe.
    const std::optional<uint32_t> refused = rest.Find(ticket->worker().id);
    if (!refused) break;
    rest.Exclude(*refused);
  }
  const std::optional<uint32_t> last = any ? std::nullopt : FirstOpened(fleet, passes);
  if (last) {
    StatusOr<Ticket> ticket = router.Select(key, fleet.Only(*last));
    if (ticket.ok()) {
      BeginPanic(thread, fleet);
      BreakerPass pass = ticket->shared_worker()->breaker.PassInPanic();
      return {.selected = WorkerChoice::Selected{*std::move(ticket), std::move(pass)}};
    }
  }
  return {.message = "No worker of those that the gateway lists for this request may be chosen now."};
}

}  // namespace vllm_router
