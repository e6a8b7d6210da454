"""Keywords of Router and names of policies, for type checkers: there is no such module when a program runs.

    if TYPE_CHECKING:
        from vllm_router.option_types import PolicyName, RouterOptions

scripts/option_types.py writes it.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

PolicyName = Literal[
    "random",
    "round_robin",
    "least_load",
    "power_of_two",
    "consistent_hash",
    "rendezvous_hash",
    "vllm_cache_aware",
    "prefix_aware",
    "prefix_hash",
    "cache_aware",
    "auto",
    "sticky_least_loaded",
    "kv_logit",
    "kv_aware",
    "kv_overlap",
    "least_loaded",
    "least_request",
    "consistent_hashing",
    "chwbl",
    "kv",
    "manual",
]

class ServerOptions(TypedDict, total=False):
    """Keywords of Router.serve()."""

    config_reload: Literal["off", "signal", "watch"]
    threads: int
    reuse_port: bool
    api_key: str | None
    preserve_host: bool
    decision_headers: bool
    allow_request_overrides: bool
    sse_error_event: bool
    anthropic_cache_control_injection: bool
    strip_anthropic_billing_header: bool
    hold_stream_head: Literal["on", "off"]
    sse_keepalive_secs: float
    trust_forwarded: bool
    request_id_headers: list[str] | tuple[str, ...] | None
    model_refresh_secs: float
    models: list[str] | tuple[str, ...]
    model_memory_hours: float
    model_wait_secs: float
    unknown_model: Literal["404", "forward"]
    default_model: str | None
    model_alias: list[str] | tuple[str, ...]
    lora_spread: bool
    scale_target: float
    scale_target_wait_secs: float
    scale_min: int
    scale_max: int
    scale_public: bool
    worker_startup_timeout_secs: float
    worker_startup_check_interval: float
    load_poll_interval_secs: float | None
    exclude_waiting_above: int
    exclude_kv_above: float
    worker_file: str | None
    worker_dns: list[str] | tuple[str, ...]
    worker_srv: list[str] | tuple[str, ...]
    dns_server: str | None
    dns_min_secs: float
    dns_max_secs: float
    service_discovery: bool
    selector: Any
    service_discovery_port: Any
    service_discovery_namespace: Any
    service_discovery_service: str | None
    inference_pool: str | None
    kubeconfig: str | None
    kube_context: str | None
    pod_deletion_cost: bool
    discovery_resync_secs: float
    tokenize_timeout_ms: int
    kv_events: Literal["auto", "on", "off"]
    kv_events_engine: Literal["auto", "trtllm"]
    kv_events_push: bool
    kv_events_bind: list[str] | tuple[str, ...]
    kv_event_source: list[str] | tuple[str, ...]
    kv_event_replay_source: list[str] | tuple[str, ...]
    kv_event_model: str | None
    kv_predict_ttl_secs: float
    shared_cache_type: Literal["none", "hicache"]
    shared_cache_url: list[str] | tuple[str, ...]
    shared_cache_layout: str | Mapping[str, Any] | None
    shared_cache_timeout_ms: int
    shared_cache_verify: Literal["edges", "all"]
    kv_prefix_source: list[str] | tuple[str, ...]
    kv_index_backend: Literal["memory", "redis"]
    kv_lookup_timeout_ms: int
    redis_url: str | None
    redis_password_file: str | None
    redis_ca_file: str | None
    redis_cert_path: str | None
    redis_key_path: str | None
    redis_pool_size: int
    redis_connect_timeout_ms: int
    redis_command_timeout_ms: int
    peer_sync: str | None
    peer_sync_fleet: str
    router_name: str | None
    peer_sync_interval_ms: int
    peer_sync_secret_file: str | None
    peer_sync_password_file: str | None
    peer_sync_ca_file: str | None
    peer_sync_cert_path: str | None
    peer_sync_key_path: str | None
    peer_sync_max_mbps: int
    peer_sync_admin: bool
    response_cache: bool
    response_cache_backend: Literal["memory", "redis"]
    response_cache_ttl_secs: float
    response_cache_capacity: int
    response_cache_max_memory_bytes: int
    response_cache_max_response_size: int
    response_cache_max_stream_buffer_size: int
    response_cache_max_request_size: int
    response_cache_capture_memory_bytes: int
    response_cache_routes: list[str] | tuple[str, ...]
    response_cache_temperature_absent: Literal["bypass", "cache"]
    response_cache_key_scheme: Literal["canonical", "seed004"]
    response_cache_key_ignore: list[str] | tuple[str, ...]
    response_cache_tenant_source: Literal[
        "credential", "header", "header_credential", "shared", "header+credential"
    ]
    response_cache_tenant_header: str | None
    response_cache_store_headers: list[str] | tuple[str, ...]
    response_cache_coalesce: Literal["off", "answers"]
    response_cache_coalesce_wait_ms: int
    response_cache_coalesce_max_followers: int
    response_cache_coalesce_max_promotions: int
    response_cache_replay_events_per_second: int
    response_cache_invalidate_on: list[str] | tuple[str, ...]
    response_cache_redis_key_prefix: str
    response_cache_lookup_budget_ms: int
    response_cache_store_queue_bytes: int
    response_cache_integrity_key_file: str | None
    response_cache_health_interval_secs: float
    response_cache_fallback_to_memory: bool
    response_cache_fallback_capacity: int
    response_cache_fallback_ttl_secs: float
    connect_timeout_secs: float
    first_byte_timeout_secs: float
    request_timeout_secs: float
    stream_idle_timeout_secs: float
    stream_total_timeout_secs: float
    dead_worker_grace_secs: float
    upstream_write_timeout_secs: float
    client_head_timeout_secs: float
    client_body_timeout_secs: float
    half_closed_clients: Literal["abort", "serve"]
    client_min_body_rate: int
    client_idle_timeout_secs: float
    client_write_timeout_secs: float
    max_payload_size: int
    max_connections: int
    body_memory_mb: int
    upstream_pool_size: int
    upstream_pool_idle_secs: float
    health_check_interval_secs: float
    health_check_timeout_secs: float
    health_check_endpoint: str
    health_failure_threshold: int
    health_success_threshold: int
    health_compat: bool
    hang_detection_factor: float
    slow_start_secs: float
    shutdown_grace_period_secs: float
    drain_timeout_secs: float
    shutdown_settle_secs: float
    log_level: Literal["debug", "info", "warn", "error", "critical", "warning"] | None
    log_dir: str | None
    log_format: Literal["text", "json"]
    receipt_detail_every: int
    dashboard: bool
    record_log: str | None
    record_log_salt_file: str | None
    prometheus_host: str | None
    prometheus_port: int | None
    enable_trace: bool
    otlp_traces_endpoint: str | None
    otel_sampling_ratio: float
    otel_excluded_paths: list[str] | tuple[str, ...]
    otel_service_name: str | None
    holdout_percent: float
    holdout_policy: Literal["least_load", "power_of_two", "random", "least_loaded", "least_request"]
    holdout_secret_file: str | None
    epp_port: int | None
    epp_host: str
    epp_health_port: int | None
    epp_metadata_namespace: str
    epp_subset_namespace: str
    epp_fallbacks: int
    epp_tls: bool
    epp_only: bool
    max_concurrent_requests: int
    queue_size: int
    queue_timeout_secs: float
    admission_config: str | None
    program_admission: Literal["off", "observe", "on"]
    max_programs: int
    enable_program_scheduling: bool
    program_scheduling_config_json: str | Mapping[str, Any] | None
    rate_limit_tokens_per_second: int | None
    rate_limit_scope: Literal["fleet", "router"]
    retry_max_retries: int
    retry_lost_requests: int
    retry_initial_backoff_ms: int
    retry_max_backoff_ms: int
    retry_backoff_multiplier: float
    retry_jitter_factor: float
    retry_budget: float
    disable_retries: bool
    cb_failure_threshold: int
    cb_success_threshold: int
    cb_timeout_duration_secs: float
    cb_window_duration_secs: float
    disable_circuit_breaker: bool
    continue_streams: Literal["off", "verified", "tokens"]
    continue_max: int
    continue_memory_mb: int
    continue_keepalive_secs: float
    continue_drain_secs: float
    continue_stall_secs: float
    continue_rerun_tokens: int
    continue_max_tokens: int
    api_key_validation_urls: list[str] | tuple[str, ...]
    api_key_validation_cache_secs: float
    api_key_validation_timeout_secs: float
    client_api_key_file: str | None
    tenant_header: str | None
    trusted_addresses: list[str] | tuple[str, ...]
    model_alias_class: list[str] | tuple[str, ...]
    max_tenants: int
    admin_api_key_file: str | None
    admin_host: str
    admin_port: int | None
    fan_out_path: list[str] | tuple[str, ...]
    cors_allowed_origins: list[str] | tuple[str, ...]
    tls_cert_path: str | None
    tls_key_path: str | None
    tls_client_ca_file: str | None
    tls_min_version: Literal["1.2", "1.3"]
    tls_ciphers: str
    worker_ca_file: str | None
    worker_cert_path: str | None
    worker_key_path: str | None
    worker_tls_insecure: bool
    prefill_selector: Any
    decode_selector: Any
    bootstrap_port_annotation: str
    prefill_dns: list[str] | tuple[str, ...]
    decode_dns: list[str] | tuple[str, ...]
    prefill_srv: list[str] | tuple[str, ...]
    decode_srv: list[str] | tuple[str, ...]
    vllm_discovery_address: str | None
    vllm_discovery_allow: list[str] | tuple[str, ...]
    discovery_forget_secs: float
    kv_connector: Literal[
        "auto", "nixl", "nixl_push", "mooncake", "moriio", "p2p_nccl", "shared_store", "sglang"
    ]
    bootstrap_port: int
    pd_transfer_timeout_secs: float
    pd_prefill_timeout_secs: float
    pd_handoff_limit_ms: int
    pd_grace_ms: int
    pd_drain_secs: float
    pd_orphan: Literal["reject", "collect", "expire", "refuse"]
    pd_orphan_max: int
    pd_cancel_prefill: Literal["auto", "always", "never"]
    pd_on_prefill_loss: Literal["503", "local"]
    pd_request_id: Literal["addresses", "plain"]
    pd_extra_routes: list[str] | tuple[str, ...]
    pd_pass_paths: list[str] | tuple[str, ...]
    pd_prefill_response_bytes: int
    pd_usage: Literal["decode", "merge"]
    pd_logprobs: Literal["merge", "decode"]
    pd_sglang_rank_fields: bool
    pd_strip_client_params: Literal["auto", "always", "never"]
    dp_aware: bool
    model_path: str | None
    tokenizer_path: str | None
    kv_penalty_external: float
    kv_event_block_size: int
    history_backend: Literal["memory", "none"]

class RouterOptions(ServerOptions, total=False):
    """Keywords of Router."""

    host: str
    port: int
    intra_node_data_parallel_size: int
    discovery_guard: float
    discovery_hold_secs: float
    fallback_policy: Literal[
        "least_load", "random", "round_robin", "power_of_two", "least_loaded", "least_request"
    ]
    least_load_metric: Literal["requests", "tokens"]
    virtual_nodes: int | None
    hash_function: Literal["furc", "xxh3"]
    hash_failover: Literal["next", "first"]
    hash_load_factor: float
    hash_key_order: Literal["seed", "reference"]
    hash_key_headers: list[str] | tuple[str, ...]
    session_header_aliases: bool
    hash_key_fallback: Literal["opening", "body"]
    consistent_hash_compat: bool
    max_prefix_length: int
    load_factor_epsilon: float
    prefix_load_floor: int | None
    session_ttl_secs: int
    max_sessions: int
    prefix_token_count: int
    prefix_hash_load_factor: float
    prefix_hash_balance_abs_threshold: int
    routing_text_limit: int
    routing_text_tools: Literal["auto", "first", "after"]
    cache_threshold: float
    block_size: int | Literal["auto"]
    max_blocks_per_worker: int
    load_factor: float
    load_bound: Literal["room", "average"]
    tokenize: Literal["auto", "never", "worker"]
    kv_index_max_entries: int
    kv_index_ttl_secs: int
    peer_sync_stride_tokens: int
    kv_storage_offloading: Literal["off", "offloads", "evictions"]
    balance_abs_threshold: int
    balance_rel_threshold: float
    balance_gate: Literal["worker", "fleet"]
    spread_new_conversations: bool
    auto_objective: Literal["balanced", "ttft"]
    lora_load_tokens: int
    overlap_weight: float
    router_temperature: float
    host_cache_hit_weight: float
    disk_cache_hit_weight: float
    shared_cache_multiplier: float
    logit_prefill_tokens: Literal["uncached", "prompt"]
    logit_decode_blocks: Literal["active", "potential"]
    kv_penalty_host: float
    kv_penalty_disk: float
    kv_overlap_weight: float
    kv_load_weight: float
    kv_health_weight: float
    kv_gpu_tier_weight: float
    kv_storage_tier_weight: float
    kv_min_overlap_threshold: float
    kv_overlap_basis: Literal["prompt", "fleet_max"]
    kv_load_factor: float
    miss_choice: Literal["least_load", "smallest_tree"]
    eviction_policy: Literal["lru", "lfu", "fifo", "mru", "filo", "priority"]
    eviction_interval_secs: int
    max_tree_size: int
    receipts: int
    max_worker_requests: int
    ticket_lease_secs: float
    vllm_pd_disaggregation: bool
    prefill_urls: Any
    decode_urls: Any
    prefill_policy: PolicyName | None
    decode_policy: PolicyName | None
    prefill_data_parallel_size: int
    decode_data_parallel_size: int
    pd_bypass_uncached_tokens: int
    pd_bypass_queued_tokens: int
