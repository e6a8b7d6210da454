#include "proxy/telemetry/worker_counters.h"

namespace vllm_router {

WorkerCounters& WorkerCounterMap::Of(const std::shared_ptr<Worker>& worker) {
  const auto id = static_cast<uint32_t>(worker->id);
  const auto found = counters_.find(id);
  if (found != counters_.end()) return *found->second;
  auto counters = std::make_unique<WorkerCounters>(worker);
  WorkerCounters& added = *counters;
  MutexLock lock(mutex);
  std::erase_if(counters_, [](const auto& entry) { return entry.second->worker.expired(); });
  counters_.emplace(id, std::move(counters));
  return added;
}

const WorkerCounters* WorkerCounterMap::Find(WorkerId worker) const {
  const auto found = counters_.find(static_cast<uint32_t>(worker));
  return found == counters_.end() ? nullptr : found->second.get();
}

}  // namespace vllm_router
