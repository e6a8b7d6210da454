// Telemetry: reports exchanges to machines (metrics), to people (the access log) and for replays (the
// traffic log). One per thread, written by that thread only; Metrics reads all of them at a scrape.
//
//   Decided, Record --> counts in the Shard (telemetry_shard.h) --> Metrics, at a scrape
//                 `---> a line of each log in use: LogLines --Flush, at 64 KiB or after 100 ms--> LineWriter
//
//   lines              for the access log and the traffic log (log_lines.h)
//   stages()           what only requests to a fleet with stages count (stage_telemetry.h)
//   connections, …     counts of one part of the router each (event_counts.h)
//
// What a feature alone counts is the feature's (IoThread::features). Cost: about 0.05 us per exchange, 0.4 us with its line
// in the access log; no lock and no allocation in steady state.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "proxy/telemetry/event_counts.h"
#include "proxy/telemetry/log_lines.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

class StageTelemetry;

class Telemetry {
 public:
  // `policy`: its name, for the access log. The logs must outlive this.
  Telemetry(std::string_view policy, const Logs& logs);
  ~Telemetry();

  // At SELECT, once per decision.
  void Decided(const std::shared_ptr<Worker>& worker, const Decision& decision);
  // A request for a model was let in, and its workers do not depend on the model.
  void DemandedAny();
  // When an attempt has failed and another follows after `pause_ns`. `failures`: attempts of the
  // exchange so far.
  void Retried(const std::shared_ptr<Worker>& worker, uint32_t failures, int64_t pause_ns);
  // The result that a worker's circuit breaker recorded; a change of its state.
  void RecordResult(const std::shared_ptr<Worker>& worker, BreakerResult verdict);
  // What a 5xx of the worker was attributed to.
  void ServerError(const std::shared_ptr<Worker>& worker, ErrorBlame blame);
  void OnBreakerStateChange(const std::shared_ptr<Worker>& worker, BreakerChange change);
  // What became of a marker for the prompt cache of Anthropic's API; `result` lives forever.
  void CacheControl(std::string_view result);
  // At FINISH, once per exchange.
  void Record(const RequestInfo& record);

  // Relaxed, since a scrape may read them at any time.
  std::atomic<int64_t> in_flight{0};            // between HEAD and FINISH, on proxied routes
  std::atomic<uint64_t> steps_back{0};          // into the queue, when no worker had room
  std::atomic<uint64_t> panic_requests{0};      // attempts at a worker whose breaker did not admit them
  std::atomic<uint64_t> ejections_overflow{0};  // 5xx that opened no breaker, since half of them were open
  std::atomic<uint64_t> requests_moved{0};      // away from workers in doubt
  ConnectionCounts connections;
  TokenizeCounts tokenizing;
  KeyValidationCounts key_validations;
  ResultCounts load_polls;  // of hosts, by LoadPoller

  LogLines lines;
  StageTelemetry& stages();

  struct Shard;  // telemetry_shard.h
  const Shard& shard() const { return *shard_; }

 private:
  void Count(const RequestInfo& record);

  const std::unique_ptr<Shard> shard_;
};

}  // namespace vllm_router
