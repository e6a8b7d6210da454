// Fetch: one small request of our own to a worker, answer and all: for health checks and the merged model list.
//
//   StatusOr<Fetched> models = co_await Fetch(lane, worker.url, "/v1/models", 5'000);
//
// Never touches load, metrics of requests, or the pool of connections. One lane.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct Lane;
class Connector;
class Socket;

struct Fetched {
  int status = 0;
  std::string body;
};

// GET with the workers' key. DeadlineExceeded, Unavailable, or FailedPrecondition for an answer that is not HTTP or
// longer than 8 MiB. Parameters by value: the task outlives its caller's temporaries.
Task<StatusOr<Fetched>> Fetch(Lane& lane, WorkerUrl url, std::string target, int64_t timeout_ms);

// What ends a fetch before its time, whichever step it is in.
struct FetchDeadline {
  explicit FetchDeadline(Lane& lane);
  ~FetchDeadline();
  static void Pass(void* deadline);

  Lane& lane;
  bool passed = false;
  Connector* connector = nullptr;
  Socket* socket = nullptr;
  Timer timer;
};

}  // namespace vllm_router
