"""Flags that this router does not have but knows by name, and what does their work here.

Scripts that are moved here have them: flags of other routers, of forks of the reference router, of unmerged
proposals and of other documents. Each text completes "--flag …"; the command and YAML files respond with it
instead of guessing at a name that looks alike. smg is the Shepherd Model Gateway, sglang-router its ancestor.
"""

from __future__ import annotations

from vllm_router._version import __version__

_SMG = "smg's and sglang-router's"
_STACK = "production-stack's"
_DYNAMO = "Dynamo's"


def _here(names: str, whose: str, remedy: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), f"is {whose}; {remedy}")


# What no flag of this router belongs to, built or not.
NEVER_BUILT = ("another way of reading KV events", "encode/prefill/decode mode")


def _not_here(names: str, function: str, whose: str = "") -> dict[str, str]:
    """Of a function of NEVER_BUILT, or one that a flag of reference_flags.py names; a test compares them."""
    missing = f"belongs to {function}, which is not implemented in vllm-router {__version__}; remove it"
    return dict.fromkeys(names.split(), f"is {whose}; it {missing}" if whose else missing)


def _meant(names: str, remedy: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), f"is not a flag here; {remedy}")


KNOWN_ELSEWHERE: dict[str, str] = {
    # forks of the reference router and proposals for it
    "extra_generate_paths": "is not needed: every path goes through the policy; remove it",
    **_not_here(
        "kv_hash_algo kv_hash_seed kv_events_topic_filter kv_events_port",
        "another way of reading KV events",
    ),
    "kv_model": "is --kv-event-model here",
    "kv_tokenizer_path": "is not needed: --tokenize worker takes token ids from the workers; remove it",
    "kv_block_size": "is --block-size here",
    "kv_events_endpoint": "is --kv-event-source WORKER=ENDPOINT here",
    **_not_here("epd_config", "encode/prefill/decode mode"),
    # smg, sglang-router
    **_here("client_cert_path", _SMG, "the certificate presented to workers is --worker-cert-path here"),
    **_here(
        "client_key_path", _SMG, "the key of the certificate presented to workers is --worker-key-path here"
    ),
    **_here(
        "ca_cert_path ca_cert_paths",
        _SMG,
        "the CA bundle that verifies workers is --worker-ca-file here",
    ),
    **_here("server_cert_path", _SMG, "the certificate presented to clients is --tls-cert-path here"),
    **_here(
        "server_key_path", _SMG, "the key of the certificate presented to clients is --tls-key-path here"
    ),
    **_here(
        "assignment_mode", _SMG, "new sessions of --policy manual go to the worker with the fewest; remove it"
    ),
    **_here(
        "max_idle_secs",
        _SMG,
        "the time for which --policy manual remembers a session is --session-ttl-secs here",
    ),
    **_here("routing_key_headers", _SMG, "the headers that name a session are --hash-key-headers here"),
    **_here(
        "routing_key_override sticky_sessions",
        _SMG,
        "--policy consistent_hash and --policy sticky_least_loaded keep a session on its worker; remove it",
    ),
    **_here("bucket_adjust_interval_secs", _SMG, "the policy bucket is not offered; use --policy least_load"),
    **_here(
        "least_load_kv_pressure_weight least_load_default_throughput least_load_mean_prefill_tokens",
        _SMG,
        "--policy least_load compares open requests, or tokens with --least-load-metric tokens; remove it",
    ),
    **_here(
        "least_load_max_waiting_requests worker_overload_waiting_requests",
        _SMG,
        "use --max-worker-requests here",
    ),
    **_here(
        "worker_overload_protection worker_overload_token_usage balance_token_usage_threshold "
        "overload_token_usage_threshold overlap_decay selection_temperature",
        _SMG,
        "--policy auto weighs caches against load by itself; remove it",
    ),
    **_here(
        "cache_index cache_boundaries",
        _SMG,
        "--policy prefix_hash takes --prefix-token-count here; remove it",
    ),
    **_here(
        "cache_ttl_secs kv_indexer_ttl_secs kv_indexer_max_entries",
        _SMG,
        "what is remembered is bounded by --max-tree-size and --max-blocks-per-worker here; remove it",
    ),
    **_here(
        "load_monitor_interval", _SMG, "the interval between load polls is --load-poll-interval-secs here"
    ),
    **_here("disable_load_monitoring", _SMG, "loads are polled only where a policy needs them; remove it"),
    **_here("disable_health_check", _SMG, "it is --health-check-interval-secs 0 here"),
    **_here(
        "remove_unhealthy_workers worker_auto_recovery",
        _SMG,
        "unhealthy workers stay and come back; remove it",
    ),
    **_here("drain_settle_secs", _SMG, "a drain waits for the worker's requests, up to --drain-timeout-secs"),
    **_here("upstream_pool_idle_timeout_secs", _SMG, "it is --upstream-pool-idle-secs here"),
    **_here(
        "stream_request_bodies_over",
        _SMG,
        "bodies are streamed where the policy does not read them; remove it",
    ),
    **_here("stream_body_stall_timeout_secs", _SMG, "it is --client-body-timeout-secs here"),
    **_here("log_json", _SMG, "use --log-format json here"),
    **_here(
        "health_check_port", _SMG, "/liveness and /readiness are on --port here; --admin-port opens another"
    ),
    **_here("prometheus_duration_buckets", _SMG, "the buckets of histograms are fixed; remove it"),
    **_here("control_plane_api_keys", _SMG, "keys of administrators are in --admin-api-key-file here"),
    **_here("tenant_api_key", _SMG, "keys of clients are in --client-api-key-file here"),
    **_here(
        "jwt_issuer jwt_audience jwt_jwks_uri jwt_role_claim jwt_role_mapping",
        _SMG,
        "keys are checked by --client-api-key-file or --api-key-validation-urls here",
    ),
    **_here(
        "priority_scheduler_enabled priority_scheduler_config",
        _SMG,
        "priority classes are in the file of --admission-config here",
    ),
    **_here(
        "tenant_rate_limit_enabled tenant_rate_limit_config",
        _SMG,
        "limits hold for all clients here: --max-concurrent-requests, --rate-limit-tokens-per-second",
    ),
    **_here(
        "reasoning_parser tool_call_parser chat_template disable_tokenizer_autoload "
        "tokenizer_cache_enable_l0 "
        "tokenizer_cache_enable_l1 mcp_config_path",
        _SMG,
        "the engine does this; remove it",
    ),
    **_here(
        "redis_pool_max redis_retention_days oracle_wallet_path oracle_dsn oracle_user "
        "postgres_db_url "
        "postgres_pool_max storage_hook_wasm_path schema_config",
        _SMG,
        "the router stores no conversations, so it needs no database; remove it",
    ),
    **_here(
        "enable_mesh mesh_server_name mesh_host mesh_port mesh_peer_urls mesh_advertise_host",
        _SMG,
        "routers meet in a Redis here: --peer-sync redis://host:6379",
    ),
    **_not_here("enable_wasm", "WASM middleware", _SMG),
    **_here(
        "dp_minimum_tokens_scheduler",
        _SMG,
        "ranks are workers here: --policy least_load --least-load-metric tokens",
    ),
    **_here("model_id_from", _SMG, "workers report the names of their models (GET /v1/models); remove it"),
    **_not_here("router_selector encode_selector encode encode_policy", "encode/prefill/decode mode", _SMG),
    **_here("runtime_worker_threads", _SMG, "it is --threads here"),
    # production-stack
    **_here("static_backends", _STACK, "the workers' URLs are --worker-urls here"),
    **_here(
        "static_models static_model_types static_model_labels static_query_models",
        _STACK,
        "workers report the models that they serve (GET /v1/models); remove it",
    ),
    **_here("static_aliases", _STACK, "other names of models are --model-alias here"),
    **_here(
        "static_backend_health_checks", _STACK, "workers are always checked, see --health-check-interval-secs"
    ),
    **_here(
        "routing_logic",
        _STACK,
        "it is --policy here: roundrobin is round_robin, session is consistent_hash, prefixaware is auto, "
        "kvaware is kv_overlap, and disaggregated_prefill is --vllm-pd-disaggregation",
    ),
    **_here("session_key", _STACK, "the headers that name a session are --hash-key-headers here"),
    **_here("k8s_port", _STACK, "it is --service-discovery-port here"),
    **_here("k8s_namespace", _STACK, "it is --service-discovery-namespace here"),
    **_here("k8s_label_selector", _STACK, "it is --selector here, with --service-discovery"),
    **_here(
        "k8s_service_discovery_type",
        _STACK,
        "pods are found by --selector here, and the endpoints of a Service by --service-discovery-service",
    ),
    **_here(
        "k8s_watcher_timeout_seconds",
        _STACK,
        "the time after which everything is listed again is --discovery-resync-secs here",
    ),
    **_here(
        "engine_stats_interval", _STACK, "the interval between load polls is --load-poll-interval-secs here"
    ),
    **_here("request_stats_window", _STACK, "Prometheus computes rates; remove it"),
    **_here(
        "log_stats log_stats_interval", _STACK, "figures are at --prometheus-port, GET /metrics; remove it"
    ),
    **_here(
        "dynamic_config_yaml dynamic_config_json",
        _STACK,
        "--config is read again with --config-reload watch, and --worker-file lists workers alone",
    ),
    **_here(
        "lmcache_controller_port kv_aware_threshold",
        _STACK,
        "--policy kv_overlap reads the KV events of the engines, without a controller; remove it",
    ),
    **_here(
        "semantic_cache_model semantic_cache_dir semantic_cache_threshold",
        _STACK,
        "responses to equal requests, not to similar ones, are kept by --response-cache here",
    ),
    **_here(
        "callbacks request_rewriter feature_gates enable_batch_api file_storage_class file_storage_path "
        "batch_processor sentry_dsn "
        "external_providers_config",
        _STACK,
        "requests pass through unchanged here; remove it",
    ),
    **_here("max_instance_failover_reroute_attempts", _STACK, "it is --retry-max-retries here"),
    **_here(
        "prefill_model_labels decode_model_labels",
        _STACK,
        "prefill and decode workers are --prefill and --decode here, or pods of --prefill-selector and "
        "--decode-selector",
    ),
    **_here(
        "nixl_peer_host nixl_peer_init_port nixl_peer_alloc_port nixl_proxy_port",
        _STACK,
        "engines meet by themselves, told by the router with --vllm-pd-disaggregation; remove it",
    ),
    # Dynamo
    **_here("router_mode", _DYNAMO, "it is --policy here: round-robin is round_robin, kv is auto"),
    **_here("load_aware", _DYNAMO, "use --policy least_load here"),
    **_here(
        "router_kv_overlap_score_credit router_selection_policy",
        _DYNAMO,
        "--policy auto weighs caches against load by itself; remove it",
    ),
    **_here(
        "router_kv_overlap_score_weight kv_overlap_score_weight router_prefill_load_scale",
        _DYNAMO,
        "it is --overlap-weight here, for --policy kv_logit",
    ),
    **_here(
        "router_host_cache_hit_weight", _DYNAMO, "it is --host-cache-hit-weight here, for --policy kv_logit"
    ),
    **_here(
        "router_disk_cache_hit_weight", _DYNAMO, "it is --disk-cache-hit-weight here, for --policy kv_logit"
    ),
    **_here("router_block_size", _DYNAMO, "it is --block-size here"),
    **_here(
        "router_kv_events no_router_kv_events",
        _DYNAMO,
        "KV events are heard where workers publish them; --kv-events off turns that off",
    ),
    **_here("router_predicted_ttl_secs", _DYNAMO, "it is --kv-predict-ttl-secs here"),
    **_here(
        "router_event_threads serve_indexer use_remote_indexer",
        _DYNAMO,
        "each router has an index of KV events; --kv-index-backend redis shares that of prefixes; remove it",
    ),
    **_here(
        "discovery_backend request_plane event_plane",
        _DYNAMO,
        "workers are found by --service-discovery, --worker-dns or --worker-file here, over HTTP; remove it",
    ),
    **_here(
        "router_ttl_secs router_approximate_cache_policy",
        _DYNAMO,
        "what is remembered is bounded by --max-tree-size and --max-blocks-per-worker here; remove it",
    ),
    **_here(
        "router_replica_sync",
        _DYNAMO,
        "routers meet in a Redis here: --peer-sync redis://host:6379",
    ),
    **_here(
        "router_track_active_blocks router_track_output_blocks router_track_prefill_tokens "
        "router_assume_kv_reuse",
        _DYNAMO,
        "loads are always counted; remove it",
    ),
    **_here(
        "router_queue_threshold router_queue_policy",
        _DYNAMO,
        "use --max-worker-requests and --queue-size here",
    ),
    **_here(
        "router_session_affinity_ttl_secs router_session_affinity_mode",
        _DYNAMO,
        "--policy consistent_hash keeps a session on its worker; remove it",
    ),
    **_here(
        "active_decode_blocks_threshold active_prefill_tokens_threshold active_prefill_tokens_threshold_frac",
        _DYNAMO,
        "use --max-worker-requests here",
    ),
    **_here("router_min_initial_workers", _DYNAMO, "/readiness is 200 once one worker is healthy; remove it"),
    **_here(
        "router_conditional_disagg",
        _DYNAMO,
        "prompts that decode workers compute by themselves are --pd-bypass-uncached-tokens here",
    ),
    **_here("migration_limit", _DYNAMO, "use --continue-streams tokens and --continue-max here"),
    # other servers and proxies, and what comes to mind first
    **_meant(
        "worker backends backend_url backend_urls upstream upstreams server servers endpoints targets urls",
        "the workers' URLs are --worker-urls",
    ),
    **_meant("workers", "the workers' URLs are --worker-urls, and the number of threads is --threads"),
    **_meant("prefill_url prefill_worker", "a prefill worker is --prefill"),
    **_meant("decode_url decode_worker", "a decode worker is --decode"),
    **_meant("listen bind bind_address address listen_address", "where to listen are --host and --port"),
    **_meant(
        "ssl_certfile ssl_cert certfile cert cert_file cert_path tls_cert_file",
        "the certificate presented to clients is --tls-cert-path",
    ),
    **_meant(
        "ssl_keyfile ssl_key keyfile key_file key_path tls_key_file",
        "the key of the certificate presented to clients is --tls-key-path",
    ),
    **_meant("ssl_ca_certs", "the CA bundle for certificates of clients is --tls-client-ca-file"),
    **_meant(
        "circuit_breaker enable_circuit_breaker",
        "it is on unless --disable-circuit-breaker is given, and opens by --cb-failure-threshold",
    ),
    **_meant(
        "retry retries enable_retries max_retries",
        "retries are on unless --disable-retries is given, up to --retry-max-retries",
    ),
    **_meant("timeout timeout_secs", "that of a whole response is --request-timeout-secs"),
    **_meant("metrics metrics_port metrics_host", "metrics are at --prometheus-host and --prometheus-port"),
    **_meant("verbose debug", "the level of the log is --log-level debug"),
    **_meant("log_file", "the directory of log files is --log-dir"),
    **_meant("config_file settings", "the file of settings is --config"),
    **_meant("cors allowed_origins cors_origins", "it is --cors-allowed-origins"),
    **_meant("admin_key", "keys of administrators are in --admin-api-key-file"),
    **_meant("client_key", "keys of clients are in --client-api-key-file"),
    **_meant("cache", "--response-cache keeps responses, and --policy auto uses the engines' caches"),
    **_meant("redis", "it is --redis-url, and routers of one fleet meet in that of --peer-sync"),
    **_meant("dns", "workers are found in DNS by --worker-dns or --worker-srv"),
    **_meant("kubernetes", "workers are found in Kubernetes by --service-discovery and --selector"),
}
