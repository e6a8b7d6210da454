// Worker: one place that can answer a request, an engine or one data-parallel rank of it. What never changes is
// plain; what does change while requests run is its load. Health and draining belong to the fleet's snapshots
// (fleet_view.h), so that one look at a snapshot is consistent. Shared by snapshots and tickets; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/limits.h"
#include "worker/worker_load.h"
#include "worker/worker_url.h"

namespace vllm_router {

// Dense and small; a worker added again gets a new one.
enum class WorkerId : uint32_t {};

struct Worker {
  Worker(WorkerId id, WorkerUrl url, uint32_t weight) : id(id), url(std::move(url)), weight(weight) {}

  const WorkerId id;
  const WorkerUrl url;
  const uint32_t weight;  // relative capacity in thousandths, kMinWeight..kMaxWeight
  WorkerLoad load;
  std::atomic<uint64_t> selections{0};  // decisions that chose this worker
};

}  // namespace vllm_router
