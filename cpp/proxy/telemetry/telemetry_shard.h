// Recorder::Shard: what one lane has counted. Its lane writes, a scrape reads; metrics.cc says which metric each count
// becomes, docs/reference/metrics.md what it means.
//
//   counts of the lane      fixed arrays by route, end, reason; nothing is allocated after the first request of a route
//   counts of each worker   one WorkerTallies per worker, in a map
//
// The map is why there is a mutex: the lane takes it only to add a worker that it meets for the first time, a scrape
// takes it while it reads. The lane's look-ups need no lock, since only the lane changes the map. Where workers come
// and go for months, tallies of workers that nobody holds any more are given up whenever another worker is added;
// Metrics holds on to a removed worker for as long as it shows its series.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "policy/decision.h"
#include "proxy/api/routes.h"
#include "proxy/telemetry/counters.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/telemetry.h"

namespace vllm_router {

namespace buckets {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kUs = 1'000;

// The reference router's, for every name that ends in duration_seconds.
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

}  // namespace buckets

using DurationTally = TimeTally<buckets::kDuration>;
using WorkerWaitTally = TimeTally<buckets::kWorkerWait>;
using OverheadTally = TimeTally<buckets::kOverhead>;

// Answers by status code, 100 to 599.
class StatusTallies {
 public:
  static constexpr int kFirst = 100;
  static constexpr int kCount = 500;
  Tally& operator[](int status) { return counts_[static_cast<size_t>(status - kFirst)]; }
  const Tally& operator[](int status) const { return counts_[static_cast<size_t>(status - kFirst)]; }

 private:
  std::array<Tally, kCount> counts_;
};

struct WorkerTallies {
  explicit WorkerTallies(std::weak_ptr<const Worker> worker) : worker(std::move(worker)) {}

  const std::weak_ptr<const Worker> worker;
  Tally decisions;
  Tally processed;
  Tally failed_tries;  // after which the request was tried again
  Tally breaker_successes, breaker_failures;
  std::array<Tally, kErrorBlameCount> server_errors;                                    // by ErrorBlame
  std::array<std::array<Tally, kBreakerStateCount>, kBreakerStateCount> breaker_moves;  // [from][to]
  Tally prompt_tokens;
  Tally completion_tokens;
  Tally cached_tokens;
  struct Times {
    WorkerWaitTally first_token;
    WorkerWaitTally head;
  };
  std::array<MadeAtNeed<Times>, kRouteCount> times;  // by route
};

struct Recorder::Shard {
  // By route.
  std::array<std::array<Tally, kExchangeEndCount>, kRouteCount> ends;
  std::array<MadeAtNeed<StatusTallies>, kRouteCount> statuses;
  std::array<Tally, kRouteCount> successes;
  std::array<MadeAtNeed<NameTallies>, kRouteCount> errors;
  std::array<MadeAtNeed<DurationTally>, kRouteCount> durations;

  std::array<Tally, kRouteCount> retries;
  std::array<Tally, kRouteCount> retries_exhausted;

  static constexpr size_t kBackoffs = 8;  // the last one stands for all further retries
  std::array<MadeAtNeed<DurationTally>, kBackoffs> backoffs;

  DurationTally generate_durations;
  DurationTally embeddings_durations;
  std::array<Tally, kExchangeEndCount> embeddings_cut;  // without an answer, or a good one that was cut
  OverheadTally overhead;
  std::array<Tally, kReasonCount> reasons;
  NameTallies bad_requests;
  NameTallies refusals;
  WorkerWaitTally queue_waits;  // of those who waited
  Tally stale_retries;
  Tally client_bytes_in, client_bytes_out;  // bodies
  Tally worker_bytes_in, worker_bytes_out;
  Tally client_stalls, worker_stalls;
  Tally access_lines_dropped, record_lines_dropped;

  // For the lane.
  WorkerTallies& Of(const std::shared_ptr<Worker>& worker);
  // For a scrape; null when the worker was never met. Hold `mutex` meanwhile.
  const WorkerTallies* Find(WorkerId worker) const;

  mutable std::mutex mutex;  // leaf; guards the shape of `workers` against readers
  std::unordered_map<uint32_t, std::unique_ptr<WorkerTallies>> workers;  // by id
};

}  // namespace vllm_router
