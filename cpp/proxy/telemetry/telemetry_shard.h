// Telemetry::Shard: the counts of one thread. That thread writes, a scrape reads. metrics.cc maps each
// count to its metric, docs/reference/metrics.md says what it means.
//
//   counts of the thread    fixed arrays by route, end, reason; no allocation after a route's first request
//   counts of each worker   worker_counters.h
//   counts of pairs         stage_telemetry.h
#pragma once

#include <array>
#include <cstddef>

#include "policy/decision.h"
#include "proxy/api/routes.h"
#include "proxy/telemetry/buckets.h"
#include "proxy/telemetry/counters.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/telemetry/worker_counters.h"

namespace vllm_router {

// Responses by status code, 100 to 599.
class StatusCounters {
 public:
  static constexpr int kFirst = 100;
  static constexpr int kCount = 500;
  Counter& operator[](int status) { return counts_[static_cast<size_t>(status - kFirst)]; }
  const Counter& operator[](int status) const { return counts_[static_cast<size_t>(status - kFirst)]; }

 private:
  std::array<Counter, kCount> counts_;
};

struct Telemetry::Shard {
  // By route.
  std::array<std::array<Counter, kExchangeEndCount>, kRouteCount> ends;
  std::array<Lazy<StatusCounters>, kRouteCount> statuses;
  std::array<Counter, kRouteCount> successes;
  std::array<Lazy<LabeledCounters>, kRouteCount> errors;
  std::array<Lazy<DurationHistogram>, kRouteCount> durations;

  std::array<Counter, kRouteCount> retries;
  std::array<Counter, kRouteCount> retries_exhausted;

  static constexpr size_t kBackoffs = 8;  // the last one stands for all further retries
  std::array<Lazy<DurationHistogram>, kBackoffs> backoffs;

  DurationHistogram generate_durations;
  DurationHistogram embeddings_durations;
  std::array<Counter, kExchangeEndCount> embeddings_cut;  // without a response, or a good one that was cut
  OverheadHistogram overhead;
  std::array<Counter, kReasonCount> reasons;
  LabeledCounters bad_requests;
  LabeledCounters refusals;
  Counter undecided_demand;         // requests for models whose workers did not depend on the model
  WorkerWaitHistogram queue_waits;  // of requests that waited
  Counter stale_retries;
  Counter client_bytes_in, client_bytes_out;  // bodies
  Counter worker_bytes_in, worker_bytes_out;
  Counter client_stalls, worker_stalls;

  Lazy<LabeledCounters> cache_control;  // by result
  Counter sse_keepalives;

  WorkerCounterMap workers;
  StageTelemetry stages{workers};
};

}  // namespace vllm_router
