// Gates: what all lanes of a server share to keep it within its limits (docs/reference/limits.md).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "base/limits.h"
#include "proxy/api/server_options.h"
#include "proxy/thread/response_owners.h"
#include "proxy/thread/slow_uploads.h"
#include "routing/admission.h"
#include "routing/body_budget.h"
#include "routing/rate_limit.h"
#include "routing/request_quarantine.h"
#include "routing/retry_budget.h"

namespace vllm_router {

struct Gates {
  explicit Gates(const ServerOptions& options)
      : seats(options.max_concurrent_requests, options.queue_size),
        body_memory(options.body_memory_bytes),
        slow_uploads([this] { return seats.waiting(); }),
        slow_bodies([this] { return body_memory.waiting(); }),
        retries(options.retry.budget),
        quarantine({.suspect_pending = options.health_check_interval_ms > 0}) {
    if (options.rate_limit_per_second != 0) rate.emplace(options.rate_limit_per_second);
  }

  Admission seats;                     // of requests that are under way to a worker and back
  Admission fan_outs{kMaxFanOuts, 0};  // of requests that go to all workers
  BodyBudget body_memory;              // of bodies that are held whole
  SlowUploads slow_uploads;            // of requests that hold a permit and stream their bodies
  SlowUploads slow_bodies;             // of requests that hold some of the memory
  std::optional<RateLimit> rate;
  RetryBudget retries;
  RequestQuarantine quarantine;
  ResponseOwners responses;

  std::mutex ejecting;  // held while a 5xx may open a circuit breaker (worker/outlier_detector.h)
  std::atomic<bool> panicking{false};  // panic mode has begun: no circuit breaker admits requests
};

}  // namespace vllm_router
