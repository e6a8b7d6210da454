// Settings: those of an operator's options that a request reads. A request takes them once, as it begins,
// and keeps them for its life; a change is published as a whole, which the next request sees.
//
//   server   Publish(settings) ---> Snapshot<Settings>            base/snapshot.h
//                                        |
//   thread   IoThread::settings ---------+     one number is compared per request
//                                        |
//   client   Connection::settings -------´     a reference is counted only if they are new
//
//   Settings changed = *server->settings();
//   changed.max_payload_size = 1 << 20;
//   server->Publish(std::move(changed));
//
// An option that an object is made from as the server starts (a port, a pool, a limiter) or that a periodic
// service reads is in FixedOptions (server_options.h); so is, in effect, `retry.budget`. A worker's circuit
// breaker is shared: until older requests have ended, each goes by its own options there.
//
// Names, defaults and checks are those of python/vllm_router/settings/table.py; times are in milliseconds
// here. 0 means "no limit" where a time may be 0. Immutable once published, so any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"
#include "routing/retry_plan.h"
#include "worker/circuit_breaker.h"

namespace vllm_router {

struct Settings {
  uint64_t max_payload_size = 512ull << 20;  // bytes

  int64_t queue_timeout_ms = 60'000;  // maximum time in the queue

  int64_t client_head_timeout_ms = 30'000;  // to a head's last byte; from accept, later from its first byte
  int64_t client_body_timeout_ms = 60'000;  // between bytes of a request body
  uint64_t client_min_body_rate = 1024;  // minimum bytes per second while a request body is awaited; 0: any
  int64_t body_rate_window_ms = kBodyRateWindowMs;  // averaging window of that rate; tests use a shorter one
  int64_t client_idle_timeout_ms = 620'000;         // between requests
  int64_t client_write_timeout_ms = 300'000;        // without progress
  bool serve_half_closed = false;  // a client that has shut down its sending side is still served

  int64_t connect_timeout_ms = 5'000;
  int64_t upstream_write_timeout_ms = 60'000;  // without progress
  int64_t request_timeout_ms = 1'800'000;      // whole response, unless it is an event stream
  int64_t first_byte_timeout_ms = 0;           // 0: as request_timeout_ms
  int64_t stream_idle_timeout_ms = 600'000;    // between bytes of a response
  int64_t stream_total_timeout_ms = 0;         // whole event stream
  bool hold_stream_head = true;                // a stream's 200 head waits for its first body byte
  int64_t dead_worker_grace_ms = 10'000;  // for responses that have begun when their worker is found dead

  RetryOptions retry;
  BreakerOptions breaker;

  bool preserve_host = false;
  bool trust_forwarded = true;
  std::vector<std::string> request_id_headers = {
      "x-request-id", "x-correlation-id", "x-trace-id", "request-id"};

  int64_t worker_startup_timeout_ms = 600'000;
  int64_t worker_startup_check_ms = 30'000;
  bool health_compat = false;  // /health responds as the reference router's does

  int64_t drain_timeout_ms = 300'000;  // of a worker, unless its drain sets another

  int64_t tokenize_timeout_ms = 100;  // maximum time a request waits for its token IDs; minimum 1

  bool allow_request_overrides = false;  // see proxy/exchange/cost_override_header.h
  bool decision_headers = false;         // responses carry the reason for choosing their worker
  bool sse_error_event = false;          // an event stream that is cut ends with its reason
};

}  // namespace vllm_router
