"""vllm_router.settings.yaml: a file of settings and its sections."""

import re
from pathlib import Path

import pytest
import yaml

from tests.rows import for_each_row
from tests.unit.python.settings.values import errors_of, parsed
from vllm_router.router_args import FLAGS, RouterArgs


def test_yaml_takes_the_names_of_python_and_of_the_command_line() -> None:
    text = """
        worker-urls: http://a:1, http://b:1
        policy: consistent-hash
        eviction-interval: 120
        health_check_interval_secs: 2.5
        api_key: null
        preserve_host: true
        selector: {}
    """
    args = RouterArgs.from_yaml(text)
    assert args == RouterArgs(
        worker_urls=["http://a:1", "http://b:1"],
        policy="consistent_hash",
        health_check_interval_secs=2.5,
        preserve_host=True,
    )


def test_yaml_takes_prefill_rows_and_selectors() -> None:
    args = RouterArgs.from_yaml(
        "prefill: [[http://a, 1], [http://b, none], http://c]\nselector: {app: vllm}\nmode: pd"
    )
    assert args.prefill_urls == [("http://a", 1), ("http://b", None), ("http://c", None)]
    assert args.selector == {"app": "vllm"}
    assert args.vllm_pd_disaggregation is True


def test_an_empty_file_changes_nothing() -> None:
    assert RouterArgs.from_yaml("# nothing\n") == RouterArgs()


@for_each_row(
    ("text", "sentence"),
    [
        ("polcy: random", "f.yaml: polcy is not a known setting; did you mean policy?"),
        ("kv-model: x", "f.yaml: kv-model is --kv-event-model here"),
        ("zzzzz: 1", "f.yaml: zzzzz is not a known setting; docs/reference/cli.md lists them all"),
        ("port: '1a'", "f.yaml: port is 1a; it is the HTTP port to listen on and must be a whole number"),
        ("port: null", "f.yaml: port is unset; "),
        ("port: yes", "f.yaml: port is true; "),
        ("port: 1\nport: 2", "f.yaml: port appears twice; keep one of them"),
        ("worker_urls: []\nworker-urls: []", "f.yaml: worker-urls sets worker_urls a second time"),
        ("worker_urls: [grpc://a]", "f.yaml: --worker-urls grpc://a is not implemented in vllm-router"),
        ("decode_selector: 7", "f.yaml: decode_selector is 7; it is the labels of the decode workers' pods"),
        ("selector: 7", "f.yaml: selector is 7; it is the labels of the workers' pods and must be labels"),
        ("prefill: 7", "f.yaml: prefill is 7; write it as [[http://host:8000, 8998]"),
        ("- port", "f.yaml must be a mapping of names to values"),
        ("port: [", "f.yaml is not YAML: "),
    ],
)
def test_mistakes_in_yaml_are_named_with_their_file(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(text, "f.yaml")


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(
        "port: 1\npolicy: random\nworker_urls: [http://file:1]\npreserve_host: true\nlog_level: warning\n"
        "request_timeout_secs: 7\nprefill: [[http://p, 1]]\n"
    )
    args = parsed(
        f"--port 2 --config {file} --worker-urls http://line:1 --no-preserve-host --worker-urls http://l:2"
    )
    assert (args.port, args.policy, args.request_timeout_secs) == (2, "random", 7)
    assert args.worker_urls == ["http://line:1", "http://l:2"]
    assert args.preserve_host is False
    assert args.log_level == "warn"
    assert args.prefill_urls == [("http://p", 1)]
    assert args.prometheus_port == 29000


def test_mistakes_in_the_file_end_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("polcy: random\n")
    assert f"{file}: polcy is not a known setting; did you mean policy?" in errors_of(
        f"--config {file}", capsys
    )
    file.write_bytes(b"\xff")
    assert "cannot be read: it is not UTF-8 text" in errors_of(f"--config {file}", capsys)


SECTION = "prefix_routing:\n  enabled: true\n  max_prefix_length: 2048\n  load_factor_epsilon: 0.2\n"


def test_the_section_prefix_routing_chooses_the_policy_and_sets_its_options() -> None:
    args = RouterArgs.from_yaml(SECTION + "  virtual_nodes: 99\n  anthropic_cache_control_injection: false\n")
    assert (args.policy, args.max_prefix_length, args.load_factor_epsilon) == ("prefix_aware", 2048, 0.2)
    assert args.virtual_nodes == 99
    assert args.warnings()[0].startswith("no worker URLs")
    for named in ("policy: chwbl\n", "policy: prefix-aware\n", "routing: {policy: prefix_aware}\n"):
        assert RouterArgs.from_yaml(named + SECTION).policy in ("prefix_aware", "chwbl", "prefix-aware")


def test_a_section_that_is_off_chooses_nothing() -> None:
    assert RouterArgs.from_yaml("prefix_routing:\n  enabled: false\n").policy == "auto"
    assert RouterArgs.from_yaml("prefix_routing:\n").policy == "auto"


def test_the_section_adds_markers_for_anthropic_s_prompt_cache_with_any_policy() -> None:
    args = RouterArgs.from_yaml("prefix_routing: {anthropic_cache_control_injection: true}\n")
    assert (args.anthropic_cache_control_injection, args.policy) == (True, "auto")
    assert not RouterArgs.from_yaml(SECTION).anthropic_cache_control_injection


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prefix_routing: 5", "f.yaml: prefix_routing is 5; write it as {enabled: true}"),
        ("prefix_routing: {enabled: 1}", "f.yaml: prefix_routing.enabled is 1; it must be true or false"),
        ("prefix_routing: {epsilon: 1}", "f.yaml: prefix_routing.epsilon is not a known setting"),
        ("prefix_routing: {max_prefix_lenth: 1}", "did you mean max_prefix_length?"),
        ("prefix_routing: {load_factor_epsilon: 0}", "load_factor_epsilon is 0; it is the share above"),
        ("virtual_nodes: 1\nprefix_routing: {virtual_nodes: 2}", "virtual_nodes set the same option"),
        ("policy: random\nprefix_routing: {enabled: true}", "chooses prefix_aware, and policy is random"),
        (
            "prefix_routing: {anthropic_cache_control_injection: 1}",
            "anthropic_cache_control_injection is 1; it is a switch",
        ),
        (
            "anthropic_cache_control_injection: true\n"
            "prefix_routing: {anthropic_cache_control_injection: true}",
            "anthropic_cache_control_injection set the same option",
        ),
    ],
)
def test_mistakes_in_the_section_are_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(text, "f.yaml")


KV_INDEX = """
kv_cache_index:
  enabled: true
  backend: memory
  max_entries: 500000
  entry_ttl_seconds: 900
  scoring:
    overlap_weight: 0.5
    load_weight: 0.25
    health_weight: 0.25
    min_overlap_threshold: 0.2
    gpu_tier_weight: 0.9
    storage_tier_weight: 0.4
  storage_offloading:
    enabled: true
    treat_eviction_as_offload: true
  event_sources:
    - backend_name: vllm-1
      endpoint: "http://vllm-1:8000/v1/kv_events"
    - backend_name: vllm-2
      endpoint: "https://[::1]:9000/v1/kv_events"
      reconnect_interval_ms: 5000
      worker: "http://vllm-2:8000"
"""


def test_the_section_kv_cache_index_sets_the_options_of_the_prefix_index() -> None:
    args = RouterArgs.from_yaml(KV_INDEX)
    assert args.policy == "kv_overlap"
    assert (args.kv_index_max_entries, args.kv_index_ttl_secs) == (500_000, 900)
    assert (args.kv_overlap_weight, args.kv_load_weight, args.kv_health_weight) == (0.5, 0.25, 0.25)
    assert args.kv_min_overlap_threshold == 0.2
    assert (args.kv_gpu_tier_weight, args.kv_storage_tier_weight) == (0.9, 0.4)
    assert args.kv_storage_offloading == "evictions"
    assert args.kv_prefix_source == [
        "vllm-1=http://vllm-1:8000/v1/kv_events",
        "vllm-2=https://[::1]:9000/v1/kv_events,reconnect_interval_ms=5000,worker=http://vllm-2:8000",
    ]


def test_sources_of_zeromq_are_those_of_the_flags() -> None:
    args = RouterArgs.from_yaml("""
kv_cache_index:
  enabled: true
  event_sources:
    - {backend_name: a, endpoint: "http://a:8000/v1/kv_events"}
    - {backend_name: b, endpoint: "tcp://b:5557", worker: "http://b:8000"}
    - {backend_name: c, endpoint: "tcp://c:1", replay_endpoint: "tcp://c:9", worker: "http://c:1", dp_size: 2}
    - {backend_name: d, endpoint: "ipc:///run/d", replay_endpoint: "ipc:///run/r", worker: "http://d:1"}
""")
    assert args.kv_prefix_source == ["a=http://a:8000/v1/kv_events"]
    assert args.kv_event_source == [
        "http://b:8000=tcp://b:5557",
        "http://c:1=tcp://c:1,tcp://c:2",
        "http://d:1=ipc:///run/d",
    ]
    assert args.kv_event_replay_source == [
        "http://c:1=tcp://c:9,tcp://c:10",
        "http://d:1=ipc:///run/r",
    ]


@pytest.mark.parametrize("more", ["", "policy: kv-overlap\n", "routing: {policy: kv_overlap}\n"])
def test_both_sections_choose_the_policy_that_falls_back_to_the_ring(more: str) -> None:
    args = RouterArgs.from_yaml(more + KV_INDEX + SECTION)
    assert args.policy in ("kv_overlap", "kv-overlap")
    assert args.load_factor_epsilon == 0.2


def test_what_the_section_leaves_out_has_the_defaults_that_it_documents() -> None:
    args = RouterArgs.from_yaml("kv_cache_index: {enabled: true}")
    assert (args.kv_index_max_entries, args.kv_index_ttl_secs) == (100_000, 600)
    assert (args.kv_storage_offloading, args.kv_prefix_source) == ("off", [])
    only_offloads = "{enabled: true, storage_offloading: {enabled: true, treat_eviction_as_offload: false}}"
    assert RouterArgs.from_yaml(f"kv_cache_index: {only_offloads}").kv_storage_offloading == "offloads"


@pytest.mark.parametrize(
    "text", ["kv_cache_index:", KV_INDEX.replace("enabled: true\n  backend", "enabled: false\n  backend")]
)
def test_an_index_that_is_off_sets_nothing(text: str) -> None:
    assert RouterArgs.from_yaml(text) == RouterArgs()


def source(**members: object) -> str:
    return f"event_sources: [{ {'backend_name': 'a', 'endpoint': 'http://a:1/e', **members} }]"


@for_each_row(
    ("inner", "sentence"),
    [
        (
            "max_entry: 5",
            "f.yaml: kv_cache_index.max_entry is not a known setting; did you mean max_entries?",
        ),
        (
            "backend: redis",
            "f.yaml: kv_cache_index.backend is redis and response_cache.redis.url is missing; write for",
        ),
        ("backend: disk", "f.yaml: kv_cache_index.backend is disk; it must be memory or redis"),
        (
            "max_entries: 99",
            "f.yaml: kv_cache_index.max_entries: kv_index_max_entries is 99; it is the maximum",
        ),
        ("max_entries: 0", "f.yaml: kv_cache_index.max_entries is 0; it must be between 100 and 10000000"),
        ("entry_ttl_seconds: 86401", "kv_index_ttl_secs is 86401; it is the time in seconds"),
        (
            "scoring: {load_weight: 2}",
            "kv_cache_index.scoring.load_weight: kv_load_weight is 2; it is the share",
        ),
        ("scoring: 5", "f.yaml: kv_cache_index.scoring is 5; write it as a mapping"),
        ("scoring: {weight: 1}", "f.yaml: kv_cache_index.scoring.weight is not a known setting"),
        (
            "storage_offloading: {enabled: 1}",
            "kv_cache_index.storage_offloading.enabled is 1; it must be true or",
        ),
        ("event_sources: x", "f.yaml: kv_cache_index.event_sources is x; write it as a list of mappings"),
        ("event_sources: [x]", "f.yaml: kv_cache_index.event_sources[0] is x; write it as a mapping"),
        (
            "event_sources: [{endpoint: 'http://a:1'}]",
            "event_sources[0].backend_name is unset; it must be a text",
        ),
        (source(backend_name="a=b"), "event_sources[0].backend_name has a '='; write a name without one"),
        (source(endpoint="ws://a:1/e"), "is not implemented"),
        (source(endpoint="ws://a:1/e"), "use http:// or https://"),
        (source(endpoint="tcp://a:1"), "event_sources[0].worker is unset; it must be the worker's URL"),
        (source(endpoint="tcp://a", worker="http://a:1"), "with endpoints tcp://HOST:PORT or ipc://PATH"),
        (source(endpoint="tcp://*:1", worker="http://a:1"), "* stands for every address, so name the host"),
        (
            source(endpoint="tcp://a:1", worker="http://a:1", reconnect_interval_ms=5),
            "reconnect_interval_ms is of endpoints http:// and https://, and this is tcp://a:1",
        ),
        (source(dp_size=2), "event_sources[0].dp_size is of endpoints tcp:// and ipc://, and this is http"),
        (
            source(endpoint="tcp://a:1", worker="http://a:1", dp_size=257),
            "event_sources[0].dp_size is 257; it is the number of data-parallel ranks and must be",
        ),
        (
            source(endpoint="ipc:///x", worker="http://a:1", dp_size=2),
            "each rank adds its number to the port, so write tcp://HOST:PORT",
        ),
        (
            source(endpoint="tcp://a:50", worker="http://a:1", dp_size=4, replay_endpoint="tcp://a:53"),
            "ranks 0 to 3 publish at ports 50 to 53 and replay at 53 to 56, which overlap; move replay",
        ),
        (
            source(endpoint="tcp://a:65535", worker="http://a:1", dp_size=2),
            "with endpoints tcp://HOST:PORT or ipc://PATH",
        ),
        (
            source(endpoint="tcp://a:1", worker="http://a:1") + "\nkv_event_source: [http://a:1=tcp://a:1]",
            "kv_cache_index.event_sources and kv_event_source set the same option; keep one of them",
        ),
        (source(reconnect_interval_ms=0), "event_sources[0].reconnect_interval_ms is 0; it is the delay"),
        (source(worker="tcp://a"), "URLs like http://host:8000"),
        (source(topic="x"), "event_sources[0].topic is not a known setting"),
    ],
)
def test_mistakes_in_the_index_are_named(inner: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(f"kv_cache_index:\n  enabled: true\n  {inner}\n", "f.yaml")


REDIS = """
response_cache:
  enabled: false
  backend: redis
  redis:
    url: "redis://router:p%40ss@redis:6379/1"
    tls: true
    pool_size: 4
    key_prefix: "cr:resp:"
    connect_timeout_ms: 2000
    command_timeout_ms: 500
    fallback_capacity: 1000
    fallback_ttl_seconds: 300
    fallback_to_memory: true
    ca_file: /etc/ca.pem
    password_file: null
kv_cache_index:
  enabled: true
  backend: redis
"""


def test_the_index_in_redis_uses_the_redis_of_the_response_cache() -> None:
    args = RouterArgs.from_yaml(REDIS)
    assert (args.policy, args.kv_index_backend) == ("kv_overlap", "redis")
    assert args.redis_url == "rediss://router:p%40ss@redis:6379/1"
    assert (args.redis_pool_size, args.redis_connect_timeout_ms, args.redis_command_timeout_ms) == (
        4,
        2000,
        500,
    )
    assert (args.redis_ca_file, args.redis_password_file) == ("/etc/ca.pem", None)
    again = RouterArgs.from_yaml(args.to_yaml())
    assert again == args
    valkey = RouterArgs.from_yaml(REDIS.replace("redis://router", "valkey://router"))
    assert valkey.redis_url == "valkeys://router:p%40ss@redis:6379/1"
    plain = RouterArgs.from_yaml(REDIS.replace("tls: true", "tls: false"))
    assert plain.redis_url == "redis://router:p%40ss@redis:6379/1"


def test_an_index_in_memory_does_not_use_that_redis() -> None:
    args = RouterArgs.from_yaml(REDIS.replace("  enabled: true\n  backend: redis", "  enabled: true"))
    assert (args.kv_index_backend, args.response_cache_backend) == ("memory", "redis")
    args = RouterArgs.from_yaml("response_cache: {redis: {url: redis://a}}\nkv_cache_index: {enabled: true}")
    assert args.warnings()[0] == (
        "--redis-url has no effect without --kv-index-backend redis or --response-cache-backend redis"
    )
    named = "redis_url: redis://a\nkv_cache_index: {enabled: true, backend: redis}"
    assert RouterArgs.from_yaml(named).redis_url == "redis://a"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "pool_size: 4",
            "pool_size: 0",
            "f.yaml: response_cache.redis.pool_size is 0; it is the number of connections",
        ),
        (
            "pool_size: 4",
            "pool_sise: 4",
            "response_cache.redis.pool_sise is not a known setting; did you mean",
        ),
        ("tls: true", "tls: 1", "f.yaml: response_cache.redis.tls is a number; it must be true or false"),
        ("@redis:", "@redis:x", "response_cache.redis.url is a text of"),
        (
            '"cr:resp:"',
            "''",
            "f.yaml: response_cache.redis.key_prefix is ''; it is",
        ),
        (
            "\nresponse",
            "redis_pool_size: 2\nresponse",
            "redis.pool_size and redis_pool_size set the same option",
        ),
    ],
)
def test_mistakes_about_redis_are_named(before: str, after: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(REDIS.replace(before, after, 1), "f.yaml")


def test_an_option_of_the_index_stands_in_one_place() -> None:
    with pytest.raises(
        ValueError, match="needs a policy that reads the index, and policy is random; write one of vllm_cache"
    ):
        RouterArgs.from_yaml("policy: random\n" + KV_INDEX)
    assert RouterArgs.from_yaml("policy: kv_logit\n" + KV_INDEX).policy == "kv_logit"
    with pytest.raises(ValueError, match="max_entries and kv_index_max_entries set the same option"):
        RouterArgs.from_yaml("kv_index_max_entries: 100\n" + KV_INDEX)


# The response cache

# As Continuum Router's documentation prints them, by tier.
TIER_1 = """
prefix_routing:
  enabled: true
  load_factor_epsilon: 0.25
  virtual_nodes: 150
"""

TIERS_1_AND_2 = """
prefix_routing:
  enabled: true

response_cache:
  enabled: true
  backend: memory
  capacity: 5000
  ttl: "10m"
"""

TIERS_1_TO_3 = """
prefix_routing:
  enabled: true

response_cache:
  enabled: true
  backend: redis
  ttl: "30m"
  redis:
    url: "redis://redis-service:6379"
    pool_size: 16
    key_prefix: "cr:resp:"
    fallback_to_memory: true
    fallback_capacity: 2000
"""

ALL_TIERS = """
prefix_routing:
  enabled: true
  load_factor_epsilon: 0.20

response_cache:
  enabled: true
  backend: redis
  ttl: "30m"
  redis:
    url: "redis://redis-service:6379"
    pool_size: 16

kv_cache_index:
  enabled: true
  backend: redis   # shares the pool from response_cache.redis
  max_entries: 500000
  entry_ttl_seconds: 900
  scoring:
    overlap_weight: 0.6
    load_weight: 0.3
    health_weight: 0.1
    min_overlap_threshold: 0.25
    gpu_tier_weight: 1.0       # GPU-resident data gets full overlap credit
    storage_tier_weight: 0.6   # Offloaded data is still valuable but discounted
  storage_offloading:
    enabled: true              # Track GPU hot vs. storage warm tiers
    treat_eviction_as_offload: true
  event_sources:
    - backend_name: vllm-1
      endpoint: "http://vllm-1:8000/v1/kv_events"
    - backend_name: vllm-2
      endpoint: "http://vllm-2:8000/v1/kv_events"
"""

TIER_2_COMMENTED = """
response_cache:
  enabled: true

  # Cache backend: "memory" (default) or "redis"
  # Changing backend requires restart; other fields support hot-reload
  backend: memory

  # Maximum cached entries before LRU eviction (default: 1000)
  capacity: 1000

  # TTL for cached entries (default: "5m")
  ttl: "5m"

  # Maximum response body size eligible for caching (default: 1 MiB)
  max_response_size: 1048576

  # Maximum streaming buffer size eligible for caching (default: 10 MiB)
  max_stream_buffer_size: 10485760
"""

TIER_3_COMMENTED = """
response_cache:
  enabled: true
  backend: redis

  redis:
    # Redis/Valkey connection URL
    url: "redis://redis:6379"

    # rediss:// for TLS; or set tls: true with redis:// URL
    # url: "rediss://redis:6380"

    # Connection pool size (default: 8)
    pool_size: 8

    # Key namespace prefix (must not contain glob characters)
    key_prefix: "cr:resp:"

    # Connection timeout in milliseconds (default: 3000)
    connect_timeout_ms: 3000

    # Per-command timeout in milliseconds (default: 1000)
    command_timeout_ms: 1000

    # Fallback capacity for in-memory cache when Redis is unreachable (default: 1000)
    fallback_capacity: 1000

    # TTL for fallback in-memory entries in seconds (default: 300)
    fallback_ttl_seconds: 300

    # Fall back to in-memory cache on Redis failure (default: true)
    fallback_to_memory: true
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TIER_1, {"policy": "prefix_aware", "virtual_nodes": 150}),
        (
            TIERS_1_AND_2,
            {
                "policy": "prefix_aware",
                "response_cache": True,
                "response_cache_capacity": 5000,
                "response_cache_ttl_secs": 600,
            },
        ),
        (
            TIERS_1_TO_3,
            {
                "policy": "prefix_aware",
                "response_cache": True,
                "response_cache_backend": "redis",
                "response_cache_ttl_secs": 1800,
                "redis_url": "redis://redis-service:6379",
                "redis_pool_size": 16,
                "response_cache_fallback_capacity": 2000,
            },
        ),
        (
            ALL_TIERS,
            {
                "policy": "kv_overlap",
                "load_factor_epsilon": 0.2,
                "response_cache": True,
                "response_cache_backend": "redis",
                "response_cache_ttl_secs": 1800,
                "redis_url": "redis://redis-service:6379",
                "redis_pool_size": 16,
                "kv_index_backend": "redis",
                "kv_index_max_entries": 500_000,
                "kv_index_ttl_secs": 900,
                "kv_min_overlap_threshold": 0.25,
                "kv_storage_offloading": "evictions",
                "kv_prefix_source": [
                    "vllm-1=http://vllm-1:8000/v1/kv_events",
                    "vllm-2=http://vllm-2:8000/v1/kv_events",
                ],
            },
        ),
        (TIER_2_COMMENTED, {"response_cache": True}),
        (
            TIER_3_COMMENTED,
            {"response_cache": True, "response_cache_backend": "redis", "redis_url": "redis://redis:6379"},
        ),
    ],
    ids=["1", "1-2", "1-3", "1-4", "2", "3"],
)
def test_files_of_another_router_are_taken_as_they_are(text: str, expected: dict[str, object]) -> None:
    args = RouterArgs.from_yaml(text)
    args._validate_router_args()
    assert args == RouterArgs(**expected)
    assert RouterArgs.from_yaml(args.to_yaml()) == args
    assert [line for line in args.warnings() if "no worker URLs" not in line] == []


WHOLE = """
response_cache:
  enabled: true
  backend: redis
  capacity: 2000
  ttl: "90s"
  max_response_size: 2048
  max_stream_buffer_size: 0
  redis: { url: "redis://redis:6379", tls: true, pool_size: 4, key_prefix: "blue:", connect_timeout_ms: 300,
           command_timeout_ms: 100, fallback_capacity: 10, fallback_ttl_seconds: 30,
           fallback_to_memory: false, ca_file: ca, client_cert_file: cert, client_key_file: key,
           password_file: pw, integrity_key_file: hmac, lookup_budget_ms: 50, health_interval_seconds: 5 }
  routes: [/v1/completions]
  temperature_absent: cache
  key_scheme: seed004
  key_ignore: [user]
  tenant_source: header+credential
  tenant_header: X-Tenant-ID
  max_request_size: 4096
  max_memory_bytes: 1048576
  capture_memory_bytes: 2097152
  store_queue_bytes: 3145728
  store_headers: [x-model-version]
  coalesce: off
  coalesce_wait_ms: 1
  coalesce_max_followers: 2
  coalesce_max_promotions: 3
  replay_events_per_second: 4
  invalidate_on: ["/update_weights*"]
"""


def test_every_member_of_the_section_is_a_setting() -> None:
    args = RouterArgs.from_yaml(WHOLE)
    args._validate_router_args()
    expected = {
        "response_cache": True,
        "response_cache_backend": "redis",
        "response_cache_capacity": 2000,
        "response_cache_ttl_secs": 90,
        "response_cache_max_response_size": 2048,
        "response_cache_max_stream_buffer_size": 0,
        "redis_url": "rediss://redis:6379",
        "redis_pool_size": 4,
        "redis_connect_timeout_ms": 300,
        "redis_command_timeout_ms": 100,
        "redis_ca_file": "ca",
        "redis_cert_path": "cert",
        "redis_key_path": "key",
        "redis_password_file": "pw",
        "response_cache_redis_key_prefix": "blue:",
        "response_cache_fallback_capacity": 10,
        "response_cache_fallback_ttl_secs": 30,
        "response_cache_fallback_to_memory": False,
        "response_cache_integrity_key_file": "hmac",
        "response_cache_lookup_budget_ms": 50,
        "response_cache_health_interval_secs": 5,
        "response_cache_routes": ["/v1/completions"],
        "response_cache_temperature_absent": "cache",
        "response_cache_key_scheme": "seed004",
        "response_cache_key_ignore": ["user"],
        "response_cache_tenant_source": "header_credential",
        "response_cache_tenant_header": "X-Tenant-ID",
        "response_cache_max_request_size": 4096,
        "response_cache_max_memory_bytes": 2**20,
        "response_cache_capture_memory_bytes": 2 * 2**20,
        "response_cache_store_queue_bytes": 3 * 2**20,
        "response_cache_store_headers": ["x-model-version"],
        "response_cache_coalesce": "off",
        "response_cache_coalesce_wait_ms": 1,
        "response_cache_coalesce_max_followers": 2,
        "response_cache_coalesce_max_promotions": 3,
        "response_cache_replay_events_per_second": 4,
        "response_cache_invalidate_on": ["/update_weights*"],
    }
    assert args == RouterArgs(**expected)
    assert {name for name in FLAGS if name.startswith("response_cache")} <= expected.keys()


def test_members_that_are_null_are_left_at_their_defaults() -> None:
    files = "ca_file: null, client_cert_file: null, client_key_file: null, password_file: null"
    text = f"response_cache: {{tenant_header: null, redis: {{{files}, integrity_key_file: null}}}}"
    assert RouterArgs.from_yaml(text) == RouterArgs()


def test_a_section_that_is_off_keeps_its_values_for_a_reload() -> None:
    args = RouterArgs.from_yaml("response_cache: {enabled: false, backend: redis, capacity: 7}")
    args._validate_router_args()
    assert (args.response_cache, args.response_cache_backend, args.response_cache_capacity) == (
        False,
        "redis",
        7,
    )


def test_the_section_has_the_name_of_a_setting() -> None:
    assert RouterArgs.from_yaml("response_cache: true") == RouterArgs(response_cache=True)
    assert RouterArgs.from_yaml("response-cache: false") == RouterArgs()
    assert RouterArgs.from_yaml("response_cache: {}\nresponse_cache_capacity: 7").response_cache_capacity == 7


@for_each_row(
    ("inner", "sentence"),
    [
        ("enabled: 1", "f.yaml: response_cache.enabled is 1; it must be true or false"),
        ("capasity: 1", "f.yaml: response_cache.capasity is not a known setting; did you mean capacity?"),
        (
            'ttl: "5 minutes"',
            "f.yaml: response_cache.ttl is '5 minutes'; write a number and one of ms, s, m, h, d, such as "
            '"5m" (1 s to 30 d)',
        ),
        ("ttl: 300", "f.yaml: response_cache.ttl is 300; write a number and one of ms, s, m, h, d"),
        ("ttl: 999ms", "f.yaml: response_cache.ttl is 999ms; write a number and one of"),
        ("ttl: 31d", "f.yaml: response_cache.ttl is 31d; write a number and one of"),
        (
            "capacity: 0",
            "f.yaml: response_cache.capacity is 0; it is the maximum number of responses in memory and must "
            "be a whole number between 1 and 10000000 (default 1000)",
        ),
        ("capacity: null", "f.yaml: response_cache.capacity is unset; it is"),
        ("max_response_size: 1023", "response_cache.max_response_size is 1023; it is"),
        ("max_response_size: 0", "must be a whole number between 1024 and 268435456"),
        ("max_stream_buffer_size: 268435457", "response_cache.max_stream_buffer_size is 268435457; it is"),
        ("backend: disk", "f.yaml: response_cache.backend is disk; it is the place of stored responses and"),
        (
            "coalesce: all",
            "f.yaml: response_cache.coalesce is all, which is not implemented in vllm-router",
        ),
        ("coalesce: all", "streams are not followed live: use answers"),
        (
            "routes: [/v1/responses]",
            "and '/v1/responses' keeps state at a worker, or is not known to be deterministic",
        ),
        (
            "key_ignore: [temperature]",
            "must be some of user, metadata, safety_identifier, prompt_cache_key, priority, request_id, rid, "
            "session_id, and 'temperature' may change the response",
        ),
        ("redis: x", "f.yaml: response_cache.redis is a text of 1 characters; write it as a mapping"),
        ("redis: {database: 1}", "f.yaml: response_cache.redis.database is not a known setting"),
        (
            "redis: {key_prefix: 'cr:*:'}",
            "f.yaml: response_cache.redis.key_prefix is cr:*:; it is the prefix of the response cache's keys "
            "in Redis and must be a text without the pattern characters * ? [ ] \\, because clearing",
        ),
        ("redis: {fallback_ttl_seconds: 0}", "f.yaml: response_cache.redis.fallback_ttl_seconds is 0; it is"),
        ("redis: {lookup_budget_ms: 0}", "f.yaml: response_cache.redis.lookup_budget_ms is 0; it is"),
        (
            "capacity: 1\nresponse_cache_capacity: 2",
            "f.yaml: response_cache.capacity and response_cache_capacity set the same option; keep one of",
        ),
    ],
)
def test_mistakes_in_the_response_cache_are_named(inner: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(f"response_cache:\n  {inner}\n", "f.yaml")


WORDS = [
    (name, word)
    for name, flag in FLAGS.items()
    for word in getattr(flag.kind, "names", ())
    if not isinstance(yaml.safe_load(word), str)
]


@pytest.mark.parametrize(("name", "word"), WORDS)
def test_a_word_that_yaml_reads_as_something_else_needs_no_quotes(name: str, word: str) -> None:
    """Row 29 of the third list: of each setting that has such words, on and off as well as 404 and 1.2."""
    assert getattr(RouterArgs.from_yaml(f"{name}: {word}"), name) == word
    assert getattr(RouterArgs.from_yaml(f"{name}: '{word}'"), name) == word


def test_there_are_such_words() -> None:
    named = {name for name, _ in WORDS}
    assert {"config_reload", "hold_stream_head", "kv_events", "response_cache_coalesce"} <= named
    section = "response_cache: {enabled: yes, coalesce: off}"
    assert RouterArgs.from_yaml(section).response_cache_coalesce == "off"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ('port: "30000"', "port", 30000),
        ('request_timeout_secs: "2.5"', "request_timeout_secs", 2.5),
        ('block_size: "auto"', "block_size", "auto"),
        ('block_size: "32"', "block_size", 32),
        ('preserve_host: "true"', "preserve_host", True),
        ('disable_retries: "off"', "disable_retries", False),
        ('response_cache: "on"', "response_cache", True),
        ('response_cache: {enabled: "true", capacity: "7"}', "response_cache_capacity", 7),
        ('kv_cache_index: {enabled: "true", max_entries: "1000"}', "kv_index_max_entries", 1000),
        ('prefix_routing: {enabled: "true"}', "policy", "prefix_aware"),
    ],
)
def test_a_template_may_quote_numbers_and_switches(text: str, name: str, value: object) -> None:
    """Row 44 of the third list: what YAML reads as a text is read as on the command line."""
    assert getattr(RouterArgs.from_yaml(text), name) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('port: "99999"', "port is 99999; it is the HTTP port to listen on and must be a whole number"),
        ("log_level: off", "YAML reads off, no and false without quotes as false"),
        ("least_load_metric: on", "YAML reads on, yes and true without quotes as true"),
        ("port: on", "YAML reads on, yes and true without quotes as true"),
        ("router_name: 7", "; in YAML, put it in quotes"),
    ],
)
def test_a_message_says_how_yaml_reads_a_value(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(text, "f.yaml")


def test_a_message_shows_the_quotes_of_a_number_in_python() -> None:
    with pytest.raises(ValueError, match=r"^port is the text '30000'; it is the HTTP port"):
        RouterArgs(port="30000")._validate_router_args()  # type: ignore[arg-type]
