// ServerOptions: an operator's options of the server: Settings, which may change while it runs, and
// FixedOptions, which hold from its start. server_option_table.h has the flags' names; names, defaults and
// checks are those of python/vllm_router/settings/table.py. Times are in milliseconds here; 0 means "no
// limit" where a time may be 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proxy/api/settings.h"

namespace vllm_router {

enum class KvEventsMode : uint8_t { kAuto, kOn, kOff };
enum class KvEventsEngine : uint8_t { kAuto, kTrtllm };
enum class KvIndexBackend : uint8_t { kMemory, kRedis };
enum class RateLimitScope : uint8_t { kFleet, kRouter };
enum class ResponseCacheBackend : uint8_t { kMemory, kRedis };
enum class SharedCacheType : uint8_t { kNone, kHicache };

struct FixedOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 30000;  // 0: any free port
  uint32_t threads = 1;   // threads that serve clients

  uint64_t body_memory_bytes = 256ull << 20;  // of bodies that are held whole, over all threads

  std::string api_key;  // bearer token for workers if the client sends none

  std::vector<std::string> fan_out_paths;  // sent to all workers, besides those of FanOutPaths

  std::string client_api_key_file;                   // empty: clients need no key
  std::vector<std::string> api_key_validation_urls;  // empty: keys are not validated externally
  int64_t api_key_validation_cache_ms = 300'000;
  int64_t api_key_validation_timeout_ms = 5'000;
  std::string tenant_header;                     // empty: no header names tenants
  std::vector<std::string> trusted_addresses;    // IP addresses and CIDR ranges of peers whose headers count
  std::vector<std::string> model_alias_classes;  // ALIAS=CLASS
  uint32_t max_tenants = 65'536;                 // that are told apart at a time
  uint32_t max_programs = 65'536;                // likewise
  std::string admin_api_key_file;                // empty: admins need none
  std::string admin_host = "127.0.0.1";
  int32_t admin_port = -1;  // -1: admin endpoints are on `port`; 0: any free port

  std::string tls_cert_path;  // empty: clients connect without TLS
  std::string tls_key_path;
  std::string tls_client_ca_file;                           // empty: clients need no certificate
  std::string tls_min_version = "1.2";                      // or 1.3; of both sides
  std::string tls_ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20";  // of TLS 1.2, both sides
  std::string worker_ca_file;                               // empty: the system CAs
  bool worker_tls_insecure = false;
  std::string worker_cert_path;  // empty: workers get no client certificate
  std::string worker_key_path;

  bool reuse_port = false;  // another router may be listening already, to be replaced by this one

  std::string prometheus_host = "127.0.0.1";
  int32_t prometheus_port = -1;  // -1: no metrics listener; 0: any free port

  std::string epp_host = "0.0.0.0";
  int32_t epp_port = -1;                            // -1: no endpoint picker; 0: any free port
  int32_t epp_health_port = -1;                     // -1: its health is on epp_port alone
  std::string epp_metadata_namespace = "envoy.lb";  // of the choice, and of the endpoint that served
  std::string epp_subset_namespace = "envoy.lb.subset_hint";
  uint32_t epp_fallbacks = 0;  // endpoints that are named besides the choice, for attempts after the first
  bool epp_tls = false;        // epp_port speaks TLS, with the certificate for clients
  bool epp_only = false;       // requests for workers are rejected where they would be proxied

  KvEventsMode kv_events = KvEventsMode::kAuto;
  KvEventsEngine kv_events_engine = KvEventsEngine::kAuto;  // kTrtllm: workers are polled for their events
  std::vector<std::string> kv_event_sources;         // worker=endpoint[,endpoint...] (events/kv_source.h)
  std::vector<std::string> kv_event_replay_sources;  // likewise
  std::vector<std::string> kv_events_bind;     // endpoints to which publishers connect (events/dial_in.h)
  std::string kv_event_model;                  // empty: as the worker reports it
  bool kv_events_push = false;                 // POST /admin/kv-events/push takes events
  std::vector<std::string> kv_prefix_sources;  // name=URL[,…] (events/prefix_source.h)
  KvIndexBackend kv_index_backend = KvIndexBackend::kMemory;
  int64_t kv_lookup_timeout_ms = 5;  // of a request's look-up in Redis

  std::string redis_url;            // empty: none; redis/redis_url.h
  std::string redis_password_file;  // empty: the URL's password, if it has one
  std::string redis_ca_file;        // empty: the system CAs
  std::string redis_cert_path;      // presented to Redis; empty: none
  std::string redis_key_path;
  uint32_t redis_pool_size = 8;  // connections over all threads that serve clients
  int64_t redis_connect_timeout_ms = 3'000;
  int64_t redis_command_timeout_ms = 1'000;

  // Where the response cache keeps responses; all else of it is in ResponseCacheSettings. kRedis: at redis_url, over the
  // connections that the prefix index has, too.
  ResponseCacheBackend response_cache_backend = ResponseCacheBackend::kMemory;
  std::string response_cache_redis_key_prefix = "cr:resp:";
  uint64_t response_cache_fallback_capacity = 1'000;        // entries in memory while Redis is down
  int64_t response_cache_fallback_ttl_ms = 300'000;         // of these
  bool response_cache_fallback_to_memory = true;            // false: requests bypass the cache meanwhile
  int64_t response_cache_lookup_budget_ms = 100;            // of a request's look-up in Redis
  uint64_t response_cache_store_queue_bytes = 16ull << 20;  // per thread, of responses that wait for Redis
  std::string response_cache_integrity_key_file;            // empty: responses in Redis are not signed
  int64_t response_cache_health_interval_ms = 30'000;       // between probes of a Redis that stays down

  std::string peer_sync;  // URL of the Redis where routers meet; empty: this one shares nothing
  std::string peer_sync_fleet = "default";
  std::string router_name;  // empty: the host's
  uint32_t peer_sync_interval_ms = 250;
  std::string peer_sync_secret_file;    // empty: what routers tell is not sealed
  std::string peer_sync_password_file;  // as redis_password_file
  std::string peer_sync_ca_file;        // empty: the system CAs
  std::string peer_sync_cert_path;      // presented to Redis; empty: none
  std::string peer_sync_key_path;
  uint32_t peer_sync_max_mbps = 200;  // of decisions
  bool peer_sync_admin = false;       // workers that admins add, remove and drain
  RateLimitScope rate_limit_scope = RateLimitScope::kFleet;

  std::string kv_connector = "nixl";   // which the server copies to PdSettings
  std::string vllm_discovery_address;  // HOST:PORT at which workers of stages register; empty: they do not
  std::vector<std::string> vllm_discovery_allow;  // IP addresses and CIDR ranges of these; empty: any
  int64_t discovery_forget_ms = 60'000;           // silence after which one that has registered is removed

  SharedCacheType shared_cache_type = SharedCacheType::kNone;
  std::vector<std::string> shared_cache_urls;  // of the masters; empty: as the workers tell
  std::string shared_cache_layout;             // JSON (shared_pool/pool_report.h); empty: as the workers tell
  int64_t shared_cache_timeout_ms = 5;
  bool shared_cache_verifies_all = false;  // every object of every page is queried

  uint32_t receipt_detail_every = 16;  // one request in so many has a receipt with candidates; 0: none has

  double holdout_percent = 0;  // of conversations, whose workers holdout_policy chooses; 0: none (holdout/)
  std::string holdout_policy = "least_load";
  std::string holdout_secret_file;  // that decides which; empty: a random secret that ends with the server

  uint64_t continue_memory_bytes = 256ull << 20;  // of the streams that may go on at another worker

  bool enable_trace = false;
  bool dashboard = true;  // GET /dashboard and its events
  std::string
      otlp_traces_endpoint;  // of a collector (tracing/otlp_settings.h); empty: as the environment says
  double otel_sampling_ratio = 1.0;  // of the traces that start here
  std::vector<std::string> otel_excluded_paths = {"/health", "/health_generate", "/liveness", "/readiness"};
  std::string otel_service_name;  // empty: as the environment says

  bool access_log = true;
  std::string record_log;            // empty: none
  std::string record_log_salt_file;  // empty: a random secret that ends with the server
};

struct ServerOptions : FixedOptions, Settings {};

}  // namespace vllm_router
