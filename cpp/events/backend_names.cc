#include "events/backend_names.h"

#include "base/text.h"

namespace vllm_router {

std::optional<WorkerId> BackendNames::Find(std::string_view backend, const FleetView& fleet) {
  if (membership_ != fleet.membership_version()) Read(fleet);
  const auto found = workers_.find(backend);
  return found != workers_.end() ? found->second : std::nullopt;
}

void BackendNames::Read(const FleetView& fleet) {
  membership_ = fleet.membership_version();
  workers_.clear();
  for (const FleetView::Member& member : fleet.members()) {
    const WorkerUrl& url = member.worker->url;
    Add(url.url, member.worker->id);
    if (url.is_name) continue;
    const bool v6 = url.host.find(':') != std::string::npos;
    const std::string host = v6 ? Concat("[", url.host, "]") : url.host;
    Add(host, member.worker->id);
    Add(Concat(host, ":", static_cast<uint32_t>(url.port)), member.worker->id);
  }
  for (const PrefixSource& source : sources_) {
    const StatusOr<uint32_t> position = FindWorkerOf(source, fleet);
    workers_[source.name] = position.ok() ? std::optional(fleet.worker(*position).id) : std::nullopt;
  }
}

void BackendNames::Add(std::string_view name, WorkerId worker) {
  const auto [entry, added] = workers_.try_emplace(std::string(name), worker);
  if (!added && entry->second != worker) entry->second = std::nullopt;
}

}  // namespace vllm_router
