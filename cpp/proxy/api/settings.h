// Settings: those of an operator's options that may change while the server runs. A request takes them once,
// as it begins, and keeps them for its life; a change is published as a whole, which the next request sees.
// Limits that requests share, and periodic services, follow a change at once.
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
// An option that an object is made from as the server starts (a port, an index) is in FixedOptions
// (server_options.h). A worker's circuit breaker is shared: until older requests have ended, each goes by its
// own options there.
//
// Names, defaults and checks are those of python/vllm_router/settings/table.py; times are in milliseconds
// here. 0 means "no limit" where a time may be 0. Immutable once published, so any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/time_units.h"
#include "proxy/api/continue_settings.h"
#include "proxy/api/cors.h"
#include "proxy/api/pd_settings.h"
#include "proxy/api/response_cache_settings.h"
#include "routing/model_alias.h"
#include "routing/retry_plan.h"
#include "worker/circuit_breaker.h"

namespace vllm_router {

struct Settings {
  uint64_t max_payload_size = 512ull << 20;  // bytes
  uint32_t max_connections = 0;              // of all ports; 0: limited by open files only

  uint32_t max_concurrent_requests = 32'768;  // in flight at once; lowered to what open files allow
  uint32_t queue_size = 100;                  // further requests that may queue; 0: none
  int64_t queue_timeout_ms = 60'000;          // maximum time in the queue
  uint32_t rate_limit_per_second = 0;         // requests per second; 0: unlimited
  std::string admission_classes;  // the lines of admission/admission_settings.h; empty: no priority classes
  std::string program_admission = "off";  // the line of admission/program_settings.h
  bool has_programs() const { return !program_admission.starts_with("off"); }

  uint32_t upstream_pool_size = 256;      // idle connections kept per worker and thread
  int64_t upstream_pool_idle_ms = 4'000;  // below the 5 s after which uvicorn closes

  Cors cors{{}};  // of cors_allowed_origins: empty: none; "*": any

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
  PdSettings pd;
  ResponseCacheSettings response_cache;
  ContinueSettings continuation;

  bool preserve_host = false;
  bool trust_forwarded = true;
  std::vector<std::string> request_id_headers = {
      "x-request-id", "x-correlation-id", "x-trace-id", "request-id"};

  int64_t worker_startup_timeout_ms = 600'000;
  int64_t worker_startup_check_ms = 30'000;
  bool health_compat = false;  // /health responds as the reference router's does

  int64_t load_poll_interval_ms = -1;  // 0: never; -1: where something needs it (server.cc)
  // Workers whose load poll tells more are passed over (worker/overload.h); 0: none are.
  uint32_t exclude_waiting_above = 0;  // requests
  double exclude_kv_above = 0;         // share of the KV cache
  bool excludes_overloaded() const { return exclude_waiting_above != 0 || exclude_kv_above > 0; }

  double hang_detection_factor = 5;       // of worker/hang_detector.h; 0: none
  int64_t hang_detection_min_ms = 5'000;  // minimum of its limits; tests use a shorter one
  bool detects_hangs() const { return hang_detection_factor > 0; }

  int64_t health_check_interval_ms = 10'000;  // 0: no checks, from the start to the end
  int64_t health_check_timeout_ms = 5'000;
  uint32_t health_failure_threshold = 3;
  uint32_t health_success_threshold = 2;
  std::string health_check_endpoint = "/health";
  int64_t slow_start_ms = 30'000;  // for a recovered worker; 0: its whole share at once

  int64_t kv_predict_ttl_ms = 300;

  int64_t model_refresh_ms = 30'000;  // between queries of a worker for its models; 0: none are made
  std::vector<std::string> models;    // that are known even while no worker serves them
  double model_memory_hours = 24;     // for which others are
  int64_t model_wait_ms = 0;          // maximum wait for a worker of such a model; 0: none
  int64_t model_memory_ns() const {
    return static_cast<int64_t>(model_memory_hours * 3600 * static_cast<double>(kNanosPerSecond));
  }
  bool forward_unknown_models = false;
  std::string default_model;  // of requests that name none; empty: the only one
  ModelAliases model_aliases;
  bool lora_spread = false;  // workers load adapters that they do not list, if they serve the parent

  double scale_target = 0.8;  // of these routing/scale_signals.h
  int64_t scale_target_wait_ms = 1'000;
  uint32_t scale_min = 0;
  uint32_t scale_max = 0;     // 0: none
  bool scale_public = false;  // GET /scale takes no key

  int64_t drain_timeout_ms = 300'000;  // of a worker, unless its drain sets another
  int64_t shutdown_settle_ms = 0;
  int64_t shutdown_grace_ms = 180'000;

  int64_t tokenize_timeout_ms = 100;  // maximum time a request waits for its token IDs; minimum 1

  // Requests to /v1/messages get a marker (routing/cache_control.h).
  bool anthropic_cache_control_injection = false;
  // And lose the block of Claude Code that says who pays (routing/billing_header.h).
  bool strip_anthropic_billing_header = false;
  bool allow_request_overrides = false;  // see proxy/exchange/cost_override_header.h
  bool decision_headers = false;         // responses carry the reason for choosing their worker
  bool sse_error_event = false;          // an event stream that is cut ends with its reason
  int64_t sse_keepalive_ms = 0;          // between comments to a client that waits for its stream; 0: none
};

}  // namespace vllm_router
