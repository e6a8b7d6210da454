// ServerOptions: what an operator may set about the server; names, defaults and checks are those of
// python/vllm_router/router_args.py, times in milliseconds here. 0 means "no limit" where a time may be 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/limits.h"
#include "routing/retry_plan.h"
#include "worker/circuit_breaker.h"

namespace vllm_router {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 30000;  // 0: any free port
  uint32_t threads = 1;   // of threads that serve clients

  uint64_t max_payload_size = 512ull << 20;  // bytes
  uint32_t max_connections = 0;              // of all ports; 0: bounded by open files only

  uint32_t max_concurrent_requests = 32'768;  // under way at once; lowered to what open files allow
  uint32_t queue_size = 100;                  // more wait in line; 0: none does
  int64_t queue_timeout_ms = 60'000;          // for how long
  uint64_t body_memory_bytes = 256ull << 20;  // of bodies that are held whole, over all threads
  uint32_t rate_limit_per_second = 0;         // requests begun; 0: any number

  int64_t client_head_timeout_ms = 30'000;  // to a head's last byte; from accept, later from its first byte
  int64_t client_body_timeout_ms = 60'000;  // between bytes of a request body
  uint64_t client_min_body_rate = 1024;     // bytes per second of a request body that is waited for; 0: any
  int64_t body_rate_window_ms = kBodyRateWindowMs;  // over which that is an average; tests take a shorter one
  int64_t client_idle_timeout_ms = 620'000;         // between requests
  int64_t client_write_timeout_ms = 300'000;        // without progress
  bool serve_half_closed = false;                   // a client that sends no more still gets its response

  int64_t connect_timeout_ms = 5'000;
  int64_t upstream_write_timeout_ms = 60'000;  // without progress
  int64_t request_timeout_ms = 1'800'000;      // whole answer, unless it is an event stream
  int64_t first_byte_timeout_ms = 0;           // 0: as request_timeout_ms
  int64_t stream_idle_timeout_ms = 600'000;    // between bytes of an answer
  int64_t stream_total_timeout_ms = 0;         // whole event stream
  bool hold_stream_head = true;                // a stream's 200 head waits for its first body byte
  int64_t dead_worker_grace_ms = 10'000;  // for responses that have begun, once their worker is found dead

  uint32_t upstream_pool_size = 256;      // idle connections kept per worker and thread
  int64_t upstream_pool_idle_ms = 4'000;  // below the 5 s after which uvicorn closes

  RetryOptions retry;
  BreakerOptions breaker;

  std::string api_key;  // bearer token for workers when the client sends none
  bool preserve_host = false;
  bool trust_forwarded = true;
  std::vector<std::string> request_id_headers = {
      "x-request-id", "x-correlation-id", "x-trace-id", "request-id"};

  std::vector<std::string> fan_out_paths;  // that go to all workers, besides those of FanOutPaths

  std::string client_api_key_file;                   // empty: clients need no key
  std::vector<std::string> cors_allowed_origins;     // empty: none; "*": any
  std::vector<std::string> api_key_validation_urls;  // empty: nobody is asked
  int64_t api_key_validation_cache_ms = 300'000;
  int64_t api_key_validation_timeout_ms = 5'000;
  std::string admin_api_key_file;  // empty: admins need none
  std::string admin_host = "127.0.0.1";
  int32_t admin_port = -1;  // -1: admin endpoints are on `port`; 0: any free port

  std::string tls_cert_path;  // empty: clients come in plain
  std::string tls_key_path;
  std::string tls_client_ca_file;                           // empty: clients need no certificate
  std::string tls_min_version = "1.2";                      // or 1.3; of both sides
  std::string tls_ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20";  // of TLS 1.2, likewise
  std::string worker_ca_file;                               // empty: the system's authorities
  bool worker_tls_insecure = false;
  std::string worker_cert_path;  // empty: workers are shown none
  std::string worker_key_path;

  bool reuse_port = false;  // another router may be listening already, to be relieved by this one

  std::string prometheus_host = "127.0.0.1";
  int32_t prometheus_port = -1;  // -1: no metrics listener; 0: any free port

  int64_t worker_startup_timeout_ms = 600'000;
  int64_t worker_startup_check_ms = 30'000;
  int64_t load_poll_interval_ms = -1;         // 0: never; -1: as worker_startup_check_ms under power_of_two
  int64_t health_check_interval_ms = 10'000;  // 0: no checks
  int64_t health_check_timeout_ms = 5'000;
  uint32_t health_failure_threshold = 3;
  uint32_t health_success_threshold = 2;
  std::string health_check_endpoint = "/health";
  bool health_compat = false;      // /health answers as the reference router's
  int64_t slow_start_ms = 30'000;  // for a worker that has come back; 0: its whole share at once

  int64_t drain_timeout_ms = 300'000;  // of a worker, unless its drain says otherwise
  int64_t shutdown_settle_ms = 0;
  int64_t shutdown_grace_ms = 180'000;

  int64_t tokenize_timeout_ms = 100;  // that a request waits for its token ids; at least 1

  bool access_log = true;
  std::string record_log;            // empty: none
  std::string record_log_salt_file;  // empty: a secret that ends with the server
  bool decision_headers = false;     // answers say why their worker was asked
  bool sse_error_event = false;      // an event stream that is cut says why
};

}  // namespace vllm_router
