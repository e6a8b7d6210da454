"""vllm_router.settings.yaml: a file of settings and its sections."""

import re
from pathlib import Path

import pytest

from tests.unit.python.settings.values import errors_of, parsed
from vllm_router.router_args import RouterArgs


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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("polcy: random", "f.yaml: polcy is not a known setting; did you mean policy?"),
        ("kv-model: x", "f.yaml: kv-model is --kv-event-model here"),
        ("zzzzz: 1", "f.yaml: zzzzz is not a known setting; docs/reference/cli.md lists them all"),
        ("port: '1'", "f.yaml: port is 1; it is the HTTP port to listen on and must be a whole number"),
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


@pytest.mark.parametrize(
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


def test_an_index_in_memory_leaves_that_redis_alone() -> None:
    args = RouterArgs.from_yaml(REDIS.replace("  enabled: true\n  backend: redis", "  enabled: true"))
    assert (args.kv_index_backend, args.redis_url, args.redis_pool_size) == ("memory", None, 8)
    named = "redis_url: redis://a\nkv_cache_index: {enabled: true, backend: redis}"
    assert RouterArgs.from_yaml(named).redis_url == "redis://a"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "pool_size: 4",
            "pool_size: 0",
            "f.yaml: response_cache.redis.pool_size: redis_pool_size is 0; it is",
        ),
        (
            "pool_size: 4",
            "pool_sise: 4",
            "response_cache.redis.pool_sise is not a known setting; did you mean",
        ),
        ("tls: true", "tls: 1", "f.yaml: response_cache.redis.tls is a number; it must be true or false"),
        ("@redis:", "@redis:x", "response_cache.redis.url: redis_url is a text of"),
        (
            "password_file: null",
            "client_key_file: a",
            "redis.client_key_file is not implemented in vllm-router",
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
