// Worker: one place that can answer a request, an engine or one data-parallel rank of it. What never changes is
// plain; what does change while requests run is its load and what its answers say of it. Health and draining belong to
// the fleet's snapshots (fleet_view.h), so that one look at a snapshot is consistent. Shared by snapshots and tickets;
// thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/limits.h"
#include "worker/bytes_per_token.h"
#include "worker/circuit_breaker.h"
#include "worker/outlier_detector.h"
#include "worker/retry_after_backoff.h"
#include "worker/worker_load.h"
#include "worker/worker_url.h"

namespace vllm_router {

// Dense and small; a worker added again gets a new one.
enum class WorkerId : uint32_t {};

struct Worker {
  Worker(WorkerId id, WorkerUrl url, uint32_t weight, std::shared_ptr<WorkerLoad> load)
      : id(id), url(std::move(url)), weight(weight), shared_load(std::move(load)), load(*shared_load) {}

  const WorkerId id;
  const WorkerUrl url;
  const uint32_t weight;                          // relative capacity in thousandths, kMinWeight..kMaxWeight
  const std::shared_ptr<WorkerLoad> shared_load;  // beside those of other workers (LoadPages)
  WorkerLoad& load;
  CircuitBreaker breaker;
  ResponseCounts responses;
  RetryAfterBackoff backoff;
  BytesPerToken bytes_per_token;  // of the prompts that it served; token ids count as four bytes
  std::atomic<uint32_t> slow_start_factor{
      kWeightOne};                        // thousandths; less while it comes back (slow_start_factor.h)
  std::atomic<bool> suspected{false};     // a health check has been asked for
  std::atomic<bool> health_known{false};  // one has ended, so that the fleet's `healthy` is more than a guess
  std::atomic<uint64_t> selections{0};    // decisions that chose this worker
  // Requests that wait for its response after another worker was lost with them: one of them may be what ends workers.
  std::atomic<uint32_t> lost_elsewhere{0};

  // What loads are compared with, and shares: the weight, or as much of it as the worker can take yet. What must not
  // move for a while, such as a ring's points, goes by the weight itself.
  uint32_t load_weight() const {
    const uint32_t share = slow_start_factor.load(std::memory_order_relaxed);
    return std::max<uint32_t>(1, weight * share / kWeightOne);
  }
};

}  // namespace vllm_router
