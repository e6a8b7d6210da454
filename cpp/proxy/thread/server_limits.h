// ServerLimits: limits, and a few other things, that all threads of a server share
// (docs/reference/limits.md).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/limits.h"
#include "base/mutex.h"
#include "base/type_map.h"
#include "proxy/api/server_options.h"
#include "proxy/thread/aborted_responses.h"
#include "proxy/thread/response_owners.h"
#include "proxy/thread/slow_uploads.h"
#include "routing/body_budget.h"
#include "routing/concurrency_limiter.h"
#include "routing/rate_limit.h"
#include "routing/request_quarantine.h"
#include "routing/retry_budget.h"

namespace vllm_router {

struct ServerLimits {
  // Other settings than at the start. Any thread.
  void Follow(const Settings& settings) {
    concurrency.SetLimits(settings.max_concurrent_requests, settings.queue_size);
    model_waits.SetLimits(std::max(settings.queue_size, uint32_t{1}), 0);
    rate.SetRate(settings.rate_limit_per_second);
    retries.SetShare(settings.retry.budget);
  }

  explicit ServerLimits(const ServerOptions& options)
      : concurrency(options.max_concurrent_requests, options.queue_size),
        model_waits(std::max(options.queue_size, uint32_t{1}), 0),
        body_memory(options.body_memory_bytes),
        slow_uploads([this] { return concurrency.waiting(); }),
        slow_bodies([this] { return body_memory.waiting(); }),
        rate(options.rate_limit_per_second),
        retries(options.retry.budget),
        quarantine({.suspect_pending = options.health_check_interval_ms > 0}) {}

  ConcurrencyLimiter concurrency;               // of requests between the router and a worker
  ConcurrencyLimiter model_waits;               // of requests that wait for a worker of their model
  ConcurrencyLimiter fan_outs{kMaxFanOuts, 0};  // of requests that go to all workers
  BodyBudget body_memory;                       // of bodies that are held whole
  SlowUploads slow_uploads;                     // of requests that hold a permit and stream their bodies
  SlowUploads slow_bodies;                      // of requests that hold some of the memory
  RateLimit rate;
  RetryBudget retries;
  RequestQuarantine quarantine;
  ResponseOwners responses;
  TypeMap features;  // what features share between threads; added before these run

  Mutex ejecting;  // held while a 5xx may open a circuit breaker (worker/outlier_detector.h)
  std::atomic<bool> panicking{false};  // panic mode has begun: no circuit breaker admits requests
  AbortedResponses aborted;
  // Some names of models were learnt with clients' keys (GuardedHosts): no list and no error shows them to others.
  std::atomic<bool> models_are_private{false};
};

}  // namespace vllm_router
