// RequestInfo: all that is remembered of one exchange: the lines of the logs and the metrics' increments are all
// made from it, at FINISH, by Telemetry. Times are nanoseconds of the steady clock, 0 where the step was not reached.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "policy/decision.h"
#include "proxy/api/routes.h"
#include "routing/prompt_reading.h"
#include "worker/worker.h"

namespace vllm_router {

// How an exchange ended; a metric label and a field of the log.
enum class ExchangeEnd : uint8_t {
  kDone,         // a complete answer, ours or a worker's, whatever its status
  kNoDone,       // complete, but an event stream without its [DONE]
  kClientGone,   // the client left first
  kSlowClient,   // the client took nothing for too long
  kWorkerGone,   // the worker broke off in the middle of its answer
  kWorkerError,  // an event stream, complete, but its last event says that the worker failed
  kTimeout,      // the answer was cut by a deadline
  kDrain,        // cut by our shutdown
};
inline constexpr int kExchangeEndCount = static_cast<int>(ExchangeEnd::kDrain) + 1;
std::string_view ExchangeEndName(ExchangeEnd end);

struct RequestInfo {
  int64_t wall_us = 0;        // Unix time of the head, microseconds
  int64_t head_ns = 0;        // request head complete
  int64_t body_ns = 0;        // request body complete, or streaming began
  int64_t queue_ns = 0;       // how long it stood in line for its turn (a duration)
  int64_t chosen_ns = 0;      // decision made
  int64_t connected_ns = 0;   // connection to the worker at hand
  int64_t sent_ns = 0;        // first byte to the worker
  int64_t responded_ns = 0;   // the worker's final head complete
  int64_t first_body_ns = 0;  // its first body byte
  int64_t end_ns = 0;

  std::string request_id;
  std::string client;
  std::string method;
  std::string path;  // without query
  Route route = Route::kOther;
  std::string model;
  bool stream = false;  // the answer is an event stream

  int status = 0;  // sent to the client; 0: none
  ExchangeEnd end = ExchangeEnd::kDone;
  std::string_view error;    // code of our own error answer, or why the exchange was cut; empty if neither
  std::string_view refusal;  // why admission refused it; usually empty
  std::string_view bad_request_rule;  // label of the rule that refused the request; usually empty

  std::shared_ptr<Worker> worker;  // null: no worker was asked
  std::optional<Decision> decision;
  uint32_t attempts = 0;           // sends to a worker
  uint32_t retries = 0;            // tries after the first, which may have been other workers'
  bool retries_exhausted = false;  // the last failure was passed on for want of tries
  bool reused = false;             // the connection to the worker had served before
  bool stale_retry = false;        // a kept connection turned out closed; sent again on a fresh one

  uint32_t client_stalls = 0;  // waits for the client to take more of the answer
  uint32_t worker_stalls = 0;  // waits for the worker to take more of the request
  uint64_t bytes_in = 0;       // request body
  uint64_t bytes_out = 0;      // response body
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> completion_tokens;
  std::optional<uint64_t> cached_tokens;

  // For the record log; null and 0 where it is not to be in it.
  std::unique_ptr<PromptReading> prompt;
  uint64_t events = 0;  // of a stream that does not say how many tokens it has, about
};

}  // namespace vllm_router
