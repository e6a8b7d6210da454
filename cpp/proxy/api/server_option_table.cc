#include "proxy/api/server_option_table.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

constexpr OptionMember<FixedOptions> kBodyMemory = {
    .kind = OptionKind::kCount,
    .scale = 1,
    .largest = static_cast<double>(std::numeric_limits<uint64_t>::max() / kMebibyte),
    .get = [](const FixedOptions& options) -> OptionValue { return options.body_memory_bytes / kMebibyte; },
    .set =
        [](FixedOptions& options, const OptionValue& value) {
          const auto* const mebibytes = std::get_if<uint64_t>(&value);
          if (mebibytes != nullptr) options.body_memory_bytes = *mebibytes * kMebibyte;
          return mebibytes != nullptr;
        }};

constexpr OptionMember<Settings> kCorsOrigins = {
    .kind = OptionKind::kTexts,
    .scale = 1,
    .largest = std::numeric_limits<double>::infinity(),
    .get = [](const Settings& settings) -> OptionValue { return settings.cors.allowed_origins(); },
    .set =
        [](Settings& settings, const OptionValue& value) {
          const auto* const origins = std::get_if<std::vector<std::string>>(&value);
          if (origins != nullptr) settings.cors = Cors(*origins);
          return origins != nullptr;
        }};

constexpr OptionMember<Settings> kModelAliases = {
    .kind = OptionKind::kTexts,
    .scale = 1,
    .largest = std::numeric_limits<double>::infinity(),
    .get = [](const Settings& settings) -> OptionValue { return settings.model_aliases.texts(); },
    .set =
        [](Settings& settings, const OptionValue& value) {
          const auto* const texts = std::get_if<std::vector<std::string>>(&value);
          if (texts == nullptr) return false;
          StatusOr<ModelAliases> parsed = ModelAliases::Parse(*texts);
          if (parsed.ok()) settings.model_aliases = *std::move(parsed);
          return parsed.ok();
        }};

}  // namespace

const OptionTable<FixedOptions>& FixedOptionTable() {
  using O = FixedOptions;
  static const auto* table = new OptionTable<O>{
      {.name = "host", .member = Member<&O::host>()},
      {.name = "port", .member = Member<&O::port>()},
      {.name = "threads", .member = Member<&O::threads>()},
      {.name = "body_memory_mb", .member = kBodyMemory},
      {.name = "api_key", .member = Member<&O::api_key>()},
      {.name = "client_api_key_file", .member = Member<&O::client_api_key_file>()},
      {.name = "api_key_validation_urls", .member = Member<&O::api_key_validation_urls>()},
      {.name = "api_key_validation_cache_secs", .member = Seconds<&O::api_key_validation_cache_ms>()},
      {.name = "api_key_validation_timeout_secs", .member = Seconds<&O::api_key_validation_timeout_ms>()},
      {.name = "admin_api_key_file", .member = Member<&O::admin_api_key_file>()},
      {.name = "admin_host", .member = Member<&O::admin_host>()},
      {.name = "admin_port", .member = UpTo(65'535, Member<&O::admin_port>())},
      {.name = "fan_out_path", .member = Member<&O::fan_out_paths>()},
      {.name = "tls_cert_path", .member = Member<&O::tls_cert_path>()},
      {.name = "tls_key_path", .member = Member<&O::tls_key_path>()},
      {.name = "tls_client_ca_file", .member = Member<&O::tls_client_ca_file>()},
      {.name = "tls_min_version", .member = Member<&O::tls_min_version>()},
      {.name = "tls_ciphers", .member = Member<&O::tls_ciphers>()},
      {.name = "worker_ca_file", .member = Member<&O::worker_ca_file>()},
      {.name = "worker_tls_insecure", .member = Member<&O::worker_tls_insecure>()},
      {.name = "worker_cert_path", .member = Member<&O::worker_cert_path>()},
      {.name = "worker_key_path", .member = Member<&O::worker_key_path>()},
      {.name = "reuse_port", .member = Member<&O::reuse_port>()},
      {.name = "prometheus_host", .member = Member<&O::prometheus_host>()},
      {.name = "prometheus_port", .member = UpTo(65'535, Member<&O::prometheus_port>())},
      {.name = "kv_events",
       .member = Word<&O::kv_events>(),
       .words = {{"auto", KvEventsMode::kAuto}, {"on", KvEventsMode::kOn}, {"off", KvEventsMode::kOff}}},
      {.name = "kv_events_engine",
       .member = Word<&O::kv_events_engine>(),
       .words = {{"auto", KvEventsEngine::kAuto}, {"trtllm", KvEventsEngine::kTrtllm}}},
      {.name = "kv_event_source", .member = Member<&O::kv_event_sources>()},
      {.name = "kv_event_replay_source", .member = Member<&O::kv_event_replay_sources>()},
      {.name = "kv_events_bind", .member = Member<&O::kv_events_bind>()},
      {.name = "kv_event_model", .member = Member<&O::kv_event_model>()},
      {.name = "kv_events_push", .member = Member<&O::kv_events_push>()},
      {.name = "kv_prefix_source", .member = Member<&O::kv_prefix_sources>()},
      {.name = "kv_index_backend",
       .member = Word<&O::kv_index_backend>(),
       .words = {{"memory", KvIndexBackend::kMemory}, {"redis", KvIndexBackend::kRedis}}},
      {.name = "kv_lookup_timeout_ms", .member = Member<&O::kv_lookup_timeout_ms>()},
      {.name = "redis_url", .member = Member<&O::redis_url>()},
      {.name = "redis_password_file", .member = Member<&O::redis_password_file>()},
      {.name = "redis_ca_file", .member = Member<&O::redis_ca_file>()},
      {.name = "redis_pool_size", .member = Member<&O::redis_pool_size>()},
      {.name = "redis_connect_timeout_ms", .member = Member<&O::redis_connect_timeout_ms>()},
      {.name = "redis_command_timeout_ms", .member = Member<&O::redis_command_timeout_ms>()},
      {.name = "peer_sync", .member = Member<&O::peer_sync>()},
      {.name = "peer_sync_fleet", .member = Member<&O::peer_sync_fleet>()},
      {.name = "router_name", .member = Member<&O::router_name>()},
      {.name = "peer_sync_interval_ms", .member = Member<&O::peer_sync_interval_ms>()},
      {.name = "peer_sync_secret_file", .member = Member<&O::peer_sync_secret_file>()},
      {.name = "peer_sync_password_file", .member = Member<&O::peer_sync_password_file>()},
      {.name = "peer_sync_ca_file", .member = Member<&O::peer_sync_ca_file>()},
      {.name = "peer_sync_cert_path", .member = Member<&O::peer_sync_cert_path>()},
      {.name = "peer_sync_key_path", .member = Member<&O::peer_sync_key_path>()},
      {.name = "peer_sync_max_mbps", .member = Member<&O::peer_sync_max_mbps>()},
      {.name = "peer_sync_admin", .member = Member<&O::peer_sync_admin>()},
      {.name = "rate_limit_scope",
       .member = Word<&O::rate_limit_scope>(),
       .words = {{"fleet", RateLimitScope::kFleet}, {"router", RateLimitScope::kRouter}}},
      {.name = "shared_cache_type",
       .member = Word<&O::shared_cache_type>(),
       .words = {{"none", SharedCacheType::kNone}, {"hicache", SharedCacheType::kHicache}}},
      {.name = "shared_cache_url", .member = Member<&O::shared_cache_urls>()},
      {.name = "shared_cache_layout", .member = Member<&O::shared_cache_layout>()},
      {.name = "shared_cache_timeout_ms", .member = Member<&O::shared_cache_timeout_ms>()},
      {.name = "shared_cache_verify",
       .member = Word<&O::shared_cache_verifies_all>(),
       .words = {{"edges", false}, {"all", true}}},
      {.name = "kv_connector", .member = Member<&O::kv_connector>()},
      {.name = "vllm_discovery_address", .member = Member<&O::vllm_discovery_address>()},
      {.name = "vllm_discovery_allow", .member = Member<&O::vllm_discovery_allow>()},
      {.name = "discovery_forget_secs", .member = Seconds<&O::discovery_forget_ms>()},
      {.name = "access_log", .member = Member<&O::access_log>()},
      {.name = "record_log", .member = Member<&O::record_log>()},
      {.name = "record_log_salt_file", .member = Member<&O::record_log_salt_file>()},
  };
  return *table;
}

const OptionTable<Settings>& SettingsTable() {
  using O = Settings;
  using Pd = PdSettings;
  static const auto* table = new OptionTable<O>{
      {.name = "max_payload_size", .member = Member<&O::max_payload_size>()},
      {.name = "queue_timeout_secs", .member = Seconds<&O::queue_timeout_ms>()},
      {.name = "client_head_timeout_secs", .member = Seconds<&O::client_head_timeout_ms>()},
      {.name = "client_body_timeout_secs", .member = Seconds<&O::client_body_timeout_ms>()},
      {.name = "half_closed_clients",
       .member = Word<&O::serve_half_closed>(),
       .words = {{"abort", false}, {"serve", true}}},
      {.name = "client_min_body_rate", .member = Member<&O::client_min_body_rate>()},
      {.name = "body_rate_window_secs", .member = Seconds<&O::body_rate_window_ms>()},
      {.name = "client_idle_timeout_secs", .member = Seconds<&O::client_idle_timeout_ms>()},
      {.name = "client_write_timeout_secs", .member = Seconds<&O::client_write_timeout_ms>()},
      {.name = "connect_timeout_secs", .member = Seconds<&O::connect_timeout_ms>()},
      {.name = "upstream_write_timeout_secs", .member = Seconds<&O::upstream_write_timeout_ms>()},
      {.name = "request_timeout_secs", .member = Seconds<&O::request_timeout_ms>()},
      {.name = "first_byte_timeout_secs", .member = Seconds<&O::first_byte_timeout_ms>()},
      {.name = "stream_idle_timeout_secs", .member = Seconds<&O::stream_idle_timeout_ms>()},
      {.name = "stream_total_timeout_secs", .member = Seconds<&O::stream_total_timeout_ms>()},
      {.name = "hold_stream_head",
       .member = Word<&O::hold_stream_head>(),
       .words = {{"on", true}, {"off", false}}},
      {.name = "dead_worker_grace_secs", .member = Seconds<&O::dead_worker_grace_ms>()},
      {.name = "retry_max_retries", .member = Member<&O::retry, &RetryOptions::max_attempts>()},
      {.name = "retry_lost_requests", .member = Member<&O::retry, &RetryOptions::lost_retries>()},
      {.name = "retry_initial_backoff_ms", .member = Member<&O::retry, &RetryOptions::initial_backoff_ms>()},
      {.name = "retry_max_backoff_ms", .member = Member<&O::retry, &RetryOptions::max_backoff_ms>()},
      {.name = "retry_backoff_multiplier", .member = Member<&O::retry, &RetryOptions::backoff_multiplier>()},
      {.name = "retry_jitter_factor", .member = Member<&O::retry, &RetryOptions::jitter_factor>()},
      {.name = "retry_budget", .member = Member<&O::retry, &RetryOptions::budget>()},
      {.name = "disable_retries", .member = Member<&O::retry, &RetryOptions::disabled>()},
      {.name = "cb_failure_threshold", .member = Member<&O::breaker, &BreakerOptions::failure_threshold>()},
      {.name = "cb_success_threshold", .member = Member<&O::breaker, &BreakerOptions::success_threshold>()},
      {.name = "cb_timeout_duration_secs", .member = Seconds<&O::breaker, &BreakerOptions::open_ms>()},
      {.name = "cb_window_duration_secs", .member = Seconds<&O::breaker, &BreakerOptions::window_ms>()},
      {.name = "disable_circuit_breaker", .member = Member<&O::breaker, &BreakerOptions::disabled>()},
      {.name = "bootstrap_port", .member = Member<&O::pd, &Pd::bootstrap_port>()},
      {.name = "pd_transfer_timeout_secs", .member = Seconds<&O::pd, &Pd::transfer_timeout_ms>()},
      {.name = "pd_prefill_timeout_secs", .member = Seconds<&O::pd, &Pd::prefill_timeout_ms>()},
      {.name = "pd_handoff_limit_ms", .member = Member<&O::pd, &Pd::handoff_limit_ms>()},
      {.name = "pd_grace_ms", .member = Member<&O::pd, &Pd::grace_ms>()},
      {.name = "pd_drain_secs", .member = Seconds<&O::pd, &Pd::drain_ms>()},
      {.name = "pd_orphan",
       .member = Word<&O::pd, &Pd::orphan>(),
       .words =
           {{"reject", PdOrphan::kRefuse}, {"collect", PdOrphan::kCollect}, {"expire", PdOrphan::kExpire}}},
      {.name = "pd_orphan_max", .member = Member<&O::pd, &Pd::orphan_max>()},
      {.name = "pd_cancel_prefill",
       .member = Word<&O::pd, &Pd::cancel_prefill>(),
       .words =
           {{"auto", PdCancelPrefill::kAuto},
            {"always", PdCancelPrefill::kAlways},
            {"never", PdCancelPrefill::kNever}}},
      {.name = "pd_on_prefill_loss",
       .member = Word<&O::pd, &Pd::on_prefill_loss>(),
       .words = {{"503", PdOnPrefillLoss::kUnavailable}, {"local", PdOnPrefillLoss::kLocal}}},
      {.name = "pd_request_id",
       .member = Word<&O::pd, &Pd::request_id>(),
       .words = {{"addresses", PdRequestId::kAddresses}, {"plain", PdRequestId::kPlain}}},
      {.name = "pd_extra_routes", .member = Member<&O::pd, &Pd::extra_routes>()},
      {.name = "pd_prefill_response_bytes", .member = Member<&O::pd, &Pd::prefill_response_bytes>()},
      {.name = "pd_usage",
       .member = Word<&O::pd, &Pd::usage>(),
       .words = {{"decode", PdUsage::kDecode}, {"merge", PdUsage::kMerge}}},
      {.name = "pd_logprobs",
       .member = Word<&O::pd, &Pd::logprobs>(),
       .words = {{"merge", PdLogprobs::kMerge}, {"decode", PdLogprobs::kDecode}}},
      {.name = "pd_strip_client_params",
       .member = Word<&O::pd, &Pd::strip_client_params>(),
       .words = {{"auto", PdStrip::kAuto}, {"always", PdStrip::kAlways}, {"never", PdStrip::kNever}}},
      {.name = "health_compat", .member = Member<&O::health_compat>()},
      {.name = "preserve_host", .member = Member<&O::preserve_host>()},
      {.name = "trust_forwarded", .member = Member<&O::trust_forwarded>()},
      {.name = "request_id_headers", .member = Member<&O::request_id_headers>()},
      {.name = "worker_startup_timeout_secs", .member = Seconds<&O::worker_startup_timeout_ms>()},
      {.name = "worker_startup_check_interval", .member = Seconds<&O::worker_startup_check_ms>()},
      {.name = "drain_timeout_secs", .member = Seconds<&O::drain_timeout_ms>()},
      {.name = "tokenize_timeout_ms", .member = Member<&O::tokenize_timeout_ms>()},
      {.name = "allow_request_overrides", .member = Member<&O::allow_request_overrides>()},
      {.name = "decision_headers", .member = Member<&O::decision_headers>()},
      {.name = "sse_error_event", .member = Member<&O::sse_error_event>()},
      {.name = "anthropic_cache_control_injection",
       .member = Member<&O::anthropic_cache_control_injection>()},
      {.name = "cors_allowed_origins", .member = kCorsOrigins},
      {.name = "max_connections", .member = Member<&O::max_connections>()},
      {.name = "max_concurrent_requests", .member = Member<&O::max_concurrent_requests>()},
      {.name = "queue_size", .member = Member<&O::queue_size>()},
      {.name = "rate_limit_tokens_per_second", .member = Member<&O::rate_limit_per_second>()},
      {.name = "upstream_pool_size", .member = Member<&O::upstream_pool_size>()},
      {.name = "upstream_pool_idle_secs", .member = Seconds<&O::upstream_pool_idle_ms>()},
      {.name = "slow_start_secs", .member = Seconds<&O::slow_start_ms>()},
      {.name = "load_poll_interval_secs", .member = Seconds<&O::load_poll_interval_ms>()},
      {.name = "health_check_interval_secs", .member = Seconds<&O::health_check_interval_ms>()},
      {.name = "health_check_timeout_secs", .member = Seconds<&O::health_check_timeout_ms>()},
      {.name = "health_failure_threshold", .member = Member<&O::health_failure_threshold>()},
      {.name = "health_success_threshold", .member = Member<&O::health_success_threshold>()},
      {.name = "health_check_endpoint", .member = Member<&O::health_check_endpoint>()},
      {.name = "kv_predict_ttl_secs", .member = Seconds<&O::kv_predict_ttl_ms>()},
      {.name = "model_refresh_secs", .member = Seconds<&O::model_refresh_ms>()},
      {.name = "models", .member = Member<&O::models>()},
      {.name = "model_memory_hours", .member = Member<&O::model_memory_hours>()},
      {.name = "model_wait_secs", .member = Seconds<&O::model_wait_ms>()},
      {.name = "unknown_model",
       .member = Word<&O::forward_unknown_models>(),
       .words = {{"404", false}, {"forward", true}}},
      {.name = "default_model", .member = Member<&O::default_model>()},
      {.name = "model_alias", .member = kModelAliases},
      {.name = "lora_spread", .member = Member<&O::lora_spread>()},
      {.name = "scale_target", .member = Member<&O::scale_target>()},
      {.name = "scale_target_wait_secs", .member = Seconds<&O::scale_target_wait_ms>()},
      {.name = "scale_min", .member = Member<&O::scale_min>()},
      {.name = "scale_max", .member = Member<&O::scale_max>()},
      {.name = "scale_public", .member = Member<&O::scale_public>()},
      {.name = "shutdown_settle_secs", .member = Seconds<&O::shutdown_settle_ms>()},
      {.name = "shutdown_grace_period_secs", .member = Seconds<&O::shutdown_grace_ms>()},
  };
  return *table;
}

}  // namespace vllm_router
