// Telemetry::Shard: the counts of one thread. That thread writes, a scrape reads. metrics.cc maps each
// count to its metric, docs/reference/metrics.md says what it means.
//
//   counts of the thread    fixed arrays by route, end, reason; no allocation after a route's first request
//   counts of each worker   one WorkerCounters per worker, in a map
//
// The map needs a mutex: the thread takes it only to add a worker that it meets for the first time, a
// scrape takes it while it reads. The thread's look-ups need no lock, since only the thread changes the
// map. Workers may come and go for months. So counters of workers without any other reference are freed
// whenever another worker is added; Metrics references a removed worker for as long as it shows its
// series.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "policy/decision.h"
#include "proxy/api/routes.h"
#include "proxy/telemetry/counters.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/telemetry.h"
#include "worker/response_code.h"

namespace vllm_router {

namespace buckets {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kUs = 1'000;

// The reference router's buckets, for every name that ends in duration_seconds.
inline constexpr std::array<int64_t, 20> kDuration = {
    1 * kMs,      5 * kMs,      10 * kMs,     25 * kMs,      50 * kMs,      100 * kMs,    250 * kMs,
    500 * kMs,    1'000 * kMs,  2'500 * kMs,  5'000 * kMs,   10'000 * kMs,  15'000 * kMs, 30'000 * kMs,
    45'000 * kMs, 60'000 * kMs, 90'000 * kMs, 120'000 * kMs, 180'000 * kMs, 240'000 * kMs};

// The same, finer at the bottom and longer at the top: waits for a worker.
inline constexpr std::array<int64_t, 23> kWorkerWait = {
    1 * kMs,       2'500 * kUs,   5 * kMs,       10 * kMs,      25 * kMs,       50 * kMs,
    100 * kMs,     250 * kMs,     500 * kMs,     1'000 * kMs,   2'500 * kMs,    5'000 * kMs,
    10'000 * kMs,  15'000 * kMs,  30'000 * kMs,  45'000 * kMs,  60'000 * kMs,   90'000 * kMs,
    120'000 * kMs, 180'000 * kMs, 240'000 * kMs, 480'000 * kMs, 1'800'000 * kMs};

// 1, 2.5 and 5 of every decade from 10 us to 100 ms: our own work.
inline constexpr std::array<int64_t, 13> kOverhead = {10 * kUs,  25 * kUs, 50 * kUs,    100 * kUs, 250 * kUs,
                                                      500 * kUs, 1 * kMs,  2'500 * kUs, 5 * kMs,   10 * kMs,
                                                      25 * kMs,  50 * kMs, 100 * kMs};

// Shares in millionths, and numbers of blocks.
inline constexpr std::array<int64_t, 11> kShare = {0,       100'000, 200'000, 300'000, 400'000,  500'000,
                                                   600'000, 700'000, 800'000, 900'000, 1'000'000};
inline constexpr int64_t kShareOne = 1'000'000;
inline constexpr std::array<int64_t, 15> kBlocks = {0,   1,   2,   4,     8,     16,    32,   64,
                                                    128, 256, 512, 1'024, 2'048, 4'096, 8'192};

}  // namespace buckets

using DurationHistogram = Histogram<buckets::kDuration>;
using WorkerWaitHistogram = Histogram<buckets::kWorkerWait>;
using OverheadHistogram = Histogram<buckets::kOverhead>;

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

struct WorkerCounters {
  explicit WorkerCounters(std::weak_ptr<const Worker> worker) : worker(std::move(worker)) {}

  const std::weak_ptr<const Worker> worker;
  Counter decisions;
  Counter processed;
  Counter failed_attempts;                            // after which there was another attempt
  std::array<Counter, kResponseCodeCount> responses;  // to attempts, by ResponseCode
  Counter breaker_successes, breaker_failures;
  std::array<Counter, kErrorBlameCount> server_errors;  // by ErrorBlame
  std::array<std::array<Counter, kBreakerStateCount>, kBreakerStateCount> breaker_transitions;  // [from][to]
  std::array<Counter, kBootstrapResultCount> bootstrap_queries;  // by BootstrapResult
  Counter prompt_tokens;
  Counter completion_tokens;
  Counter cached_tokens;
  struct Prefill {  // as PrefillPace::Counts
    Counter alone, alone_tokens, alone_micros;
    Counter streamed_wait, whole_wait;
  };
  Prefill prefill;
  struct Pair {  // of one of the two requests that a prefill and a decode worker get
    Counter requests;
    Counter errors;         // before a first byte for the client
    Counter stream_errors;  // behind it
  };
  Lazy<Pair> pair;
  struct Times {
    WorkerWaitHistogram first_token;
    WorkerWaitHistogram head;
  };
  std::array<Lazy<Times>, kNamedRoutes> times;  // by route
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
  Counter access_lines_dropped, record_lines_dropped;

  struct SharedCache {
    Histogram<buckets::kShare> hit_rates;
    Histogram<buckets::kBlocks> beyond_blocks;
    OverheadHistogram queries;
    std::array<Counter, kSharedCacheErrorCount> errors;  // by SharedCacheError
    std::array<Counter, kSharedCacheKeyCount> keys;      // by SharedCacheKey
  };
  Lazy<SharedCache> shared_cache;

  struct Pd {                // of fleets with stages
    LabeledCounters plans;   // by kind
    LabeledCounters local;   // by reason
    LabeledCounters claims;  // by end
    Counter bypass_saved_tokens;
    std::array<Counter, kNamedRoutes> requests;  // that a pair was chosen for
    std::array<Lazy<DurationHistogram>, kNamedRoutes> durations;
    LabeledCounters errors;     // by error type
    LabeledCounters retries;    // by what had failed
    LabeledCounters cancelled;  // by state
    WorkerWaitHistogram prefills;
    OverheadHistogram handoffs;
  };
  Lazy<Pd> pd;
  Lazy<LabeledCounters> removed_members;  // by name
  Lazy<LabeledCounters> cache_control;    // by result
  Counter sse_keepalives;

  // For the thread.
  WorkerCounters& Of(const std::shared_ptr<Worker>& worker);
  // For a scrape; null if this thread has never met the worker. Hold `mutex` meanwhile.
  const WorkerCounters* Find(WorkerId worker) const;

  mutable Mutex mutex;  // leaf; guards the shape of `workers` against readers
  std::unordered_map<uint32_t, std::unique_ptr<WorkerCounters>> workers;  // by id
};

}  // namespace vllm_router
