// WorkerCounters: what one thread counts at one worker. WorkerCounterMap: those of all workers that the thread has met.
//
// The map needs a mutex: the thread takes it only to add a worker that it meets for the first time, a
// scrape takes it while it reads. The thread's look-ups need no lock, since only the thread changes the
// map. Workers may come and go for months. So counters of workers without any other reference are freed
// whenever another worker is added; Metrics references a removed worker for as long as it shows its
// series.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "proxy/api/routes.h"
#include "proxy/telemetry/buckets.h"
#include "proxy/telemetry/counters.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "worker/response_code.h"
#include "worker/worker.h"

namespace vllm_router {

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

class WorkerCounterMap {
 public:
  // For the thread.
  WorkerCounters& Of(const std::shared_ptr<Worker>& worker);

  // For a scrape. Hold `mutex` meanwhile; Find() is null if this thread has never met the worker.
  const WorkerCounters* Find(WorkerId worker) const;
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [id, counters] : counters_) visit(*counters);
  }
  size_t size() const { return counters_.size(); }
  mutable Mutex mutex;  // leaf; guards the shape of the map against readers

 private:
  std::unordered_map<uint32_t, std::unique_ptr<WorkerCounters>> counters_;  // by id
};

}  // namespace vllm_router
