// PickedWorker: the worker of a request at a data plane: its load, its circuit breaker's pass and what the response tells,
// from the choice to the end of the response.
//
//   Choose(selected, "10.0.0.1:8000")      the load is at the worker; its pass is, until the time for a first byte is over
//   Respond({200, served}, search)         its breaker learns; the load moves if the data plane sent the request elsewhere
//   TakeBody(piece)                        of data planes that send it: the first token, and at the end the usage
//   Finish(Outcome::End::kFinished)        the load is returned, with what is known of the tokens
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/stream_tail.h"
#include "net/timer_wheel.h"
#include "policy/decision.h"
#include "proxy/exchange/server_errors.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/telemetry/request_info.h"
#include "routing/ticket.h"
#include "worker/circuit_breaker.h"

namespace vllm_router {

class WorkerSearch;
struct IoThread;
struct Settings;

class PickedWorker {
 public:
  // All outlive it.
  PickedWorker(IoThread& thread, const Settings& settings, RequestInfo& info);

  // Once. `endpoint`: as the data plane is told.
  void Choose(WorkerChoice::Selected selected, std::string endpoint);
  bool is_chosen() const { return info_.worker != nullptr; }
  const std::string& endpoint() const { return endpoint_; }
  bool has_load() const { return !ticket_.finished(); }

  // The head of a response.
  struct Response {
    int status = 0;
    std::string_view served = {};       // the endpoint that it came from; empty: the data plane does not say
    std::string_view retry_after = {};  // the header's value; empty: there is none
  };
  // True: another worker served than the chosen one, whether or not it is known. No effect without a load.
  bool Respond(const Response& response, WorkerSearch& search);
  void TakeBody(std::string_view data);
  // The first call counts.
  void Finish(Outcome::End end);

 private:
  static void OnTimeout(void* worker);
  void Settle(int status, bool has_retry_after);
  void BeginBackoff(int64_t retry_after_ms);
  bool Follow(std::string_view served, WorkerSearch& search);

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  Ticket ticket_;
  std::optional<BreakerPass> pass_;
  Timer timer_;  // of the pass
  ServerErrors server_errors_;
  std::string endpoint_;
  std::unique_ptr<StreamTail> tail_;  // null: no body has come
};

}  // namespace vllm_router
