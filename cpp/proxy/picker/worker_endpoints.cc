#include "proxy/picker/worker_endpoints.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "net/socket.h"
#include "picker/endpoint_subset.h"
#include "worker/fleet_view.h"

namespace vllm_router {

bool WorkerEndpoints::AreLiteral(const FleetView& fleet) {
  return std::ranges::all_of(fleet.members(), [](const FleetView::Member& member) {
    return ParseAddress(member.worker->url.host).has_value();
  });
}

Task<void> WorkerEndpoints::Resolve(
    std::shared_ptr<const FleetView> fleet, Resolver& resolver, EventLoop& loop) {
  for (const FleetView::Member& member : fleet->members()) {
    const std::string& host = member.worker->url.host;
    if (cancelled_) break;
    if (ParseAddress(host).has_value() || addresses_.contains(host)) continue;
    waiter_ = std::make_shared<Resolver::Waiter>(loop);
    const Resolver::Answer found = co_await resolver.Resolve(host, waiter_);
    waiter_.reset();
    if (found.ok() && !found->empty()) addresses_.emplace(host, FormatAddress(found->front()));
  }
}

void WorkerEndpoints::Cancel() {
  cancelled_ = true;
  if (waiter_ != nullptr) Resolver::Waiter::Cancel(waiter_);
}

std::string WorkerEndpoints::HostOf(const Worker& worker) const {
  if (!worker.url.prefix.empty()) return {};
  if (const std::optional<Address> literal = ParseAddress(worker.url.host)) return FormatAddress(*literal);
  const auto found = addresses_.find(worker.url.host);
  return found == addresses_.end() ? std::string() : found->second;
}

std::string WorkerEndpoints::Of(const Worker& worker) const {
  const std::string host = HostOf(worker);
  return host.empty() ? host : EndpointText(host, worker.url.port);
}

}  // namespace vllm_router
