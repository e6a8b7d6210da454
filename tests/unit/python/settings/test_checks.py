"""vllm_router.settings.checks: settings together, the policy that they choose, the options of Router."""

import argparse
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rows import for_each_row
from tests.unit.python.settings.values import parsed
from vllm_router.errors import UnusedOptionWarning
from vllm_router.router_args import RouterArgs, check_policy_options

CACHE_AWARE = "policy cache_aware is chosen because of --cache-threshold, --max-tree-size; set --policy "


@pytest.mark.parametrize(
    "made",
    [
        lambda: parsed("--cache-threshold 0.3 --max-tree-size 67108864"),
        lambda: RouterArgs(cache_threshold=0.3, max_tree_size=2**26),
        lambda: RouterArgs.from_dict({"cache-threshold": 0.3, "max-tree-size": 2**26}),
        lambda: RouterArgs.from_yaml(
            "routing: {cache_aware: {cache_threshold: 0.3, max_tree_size: 67108864}}"
        ),
    ],
    ids=["line", "python", "dict", "yaml"],
)
def test_settings_of_cache_aware_choose_it_where_no_policy_is_named(
    made: Callable[[], RouterArgs], caplog: pytest.LogCaptureFixture
) -> None:
    """cache_aware was the default, and whoever set it up still gets it, with defaults written out, too."""
    assert made().policy == "cache_aware"
    assert [message.startswith(CACHE_AWARE) for message in caplog.messages] == [True]


def test_a_file_chooses_cache_aware_by_its_settings_and_the_line_wins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("cache_threshold: 0.3\n", encoding="utf-8")
    assert parsed(f"--config {file}").policy == "cache_aware"
    assert parsed(f"--config {file} --no-spread-new-conversations").policy == "cache_aware"
    assert len(caplog.messages) == 2
    assert parsed(f"--config {file} --policy auto").policy == "auto"
    file.write_text("policy: round_robin\n", encoding="utf-8")
    assert parsed(f"--config {file} --cache-threshold 0.5").policy == "round_robin"
    assert len(caplog.messages) == 2


def test_a_changed_default_of_somebody_s_parser_counts_as_given() -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    assert RouterArgs.from_cli_args(parser.parse_args([]), use_router_prefix=True).policy == "auto"
    at_default = parser.parse_args(["--router-cache-threshold", "0.3"])
    assert RouterArgs.from_cli_args(at_default, use_router_prefix=True).policy == "cache_aware"
    parser.set_defaults(router_cache_threshold=0.4)
    assert RouterArgs.from_cli_args(parser.parse_args([]), use_router_prefix=True).policy == "cache_aware"


def test_a_policy_that_is_named_stays_whatever_else_is_set() -> None:
    args = RouterArgs(cache_threshold=0.5)
    assert dataclasses.replace(args, port=1).policy == "cache_aware"
    assert RouterArgs(policy="auto", cache_threshold=0.5).policy == "auto"
    assert RouterArgs.from_yaml(RouterArgs(policy="auto", cache_threshold=0.5).to_yaml()).policy == "auto"
    assert "given" not in " ".join(vars(args))


@for_each_row(
    ("settings", "sentence"),
    [
        (
            {"port": "30000"},
            "port is the text '30000'; it is the HTTP port to listen on and must be a whole number",
        ),
        ({"port": True}, "port is true; "),
        ({"port": 1.0}, "port is 1.0; "),
        ({"worker_urls": "http://a:1"}, "worker_urls is http://a:1; it is the workers' base URLs"),
        ({"worker_urls": [1]}, "worker_urls is 1; "),
        (
            {"host": None},
            "host is unset; it is the address to listen on and must be a text that is not empty",
        ),
        ({"host": " "}, "host is ' '; "),
        ({"preserve_host": 1}, "preserve_host is 1; "),
        ({"request_timeout_secs": float("inf")}, "request_timeout_secs is inf; "),
        (
            {"health_check_endpoint": "health"},
            "health_check_endpoint is health; it is a path and must start with /",
        ),
        ({"log_level": "loud"}, "log_level is loud; "),
        ({"policy": 3}, "policy is 3; it is the policy that chooses the worker and must be one of random"),
    ],
)
def test_wrong_values_from_python_are_refused_when_they_are_used(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs(**settings)._validate_router_args()


def test_virtual_nodes_are_the_policy_s_own_unless_they_are_given() -> None:
    for policy, given, expected in (
        ("consistent_hash", {}, 160),
        ("prefix_aware", {}, 150),
        ("prefix_aware", {"virtual_nodes": 160}, 160),
        ("chwbl", {"virtual_nodes": None}, 150),
        ("prefix-hash", {}, 150),
    ):
        assert check_policy_options({"policy": policy, **given})["virtual_nodes"] == expected


def test_the_load_floor_is_the_policy_s_own_unless_it_is_given() -> None:
    for policy, given, expected in (
        ("vllm_cache_aware", {}, 8),
        ("vllm_cache_aware", {"load_bound": "average"}, 0),
        ("vllm_cache_aware", {"load_bound": "average", "prefix_load_floor": 3}, 3),
        ("vllm_cache_aware", {"prefix_load_floor": 0}, 0),
        ("prefix_aware", {}, 4),
        ("kv_overlap", {}, 4),
        ("prefix_aware", {"prefix_load_floor": 0}, 0),
    ):
        assert check_policy_options({"policy": policy, **given})["prefix_load_floor"] == expected


def test_policy_options_are_filled_with_defaults() -> None:
    assert check_policy_options({}) == {
        "intra_node_data_parallel_size": 1,
        "discovery_guard": 0.5,
        "discovery_hold_secs": 60,
        "policy": "auto",
        "seed": None,
        "fallback_policy": "least_load",
        "least_load_metric": "requests",
        "virtual_nodes": 160,
        "hash_function": "furc",
        "hash_failover": "next",
        "hash_load_factor": 0,
        "hash_key_order": "seed",
        "hash_key_headers": [],
        "session_header_aliases": True,
        "hash_key_fallback": "opening",
        "consistent_hash_compat": False,
        "cache_threshold": 0.3,
        "block_size": 16,
        "max_blocks_per_worker": 100_000,
        "load_factor": 1.25,
        "load_bound": "room",
        "max_prefix_length": 1024,
        "load_factor_epsilon": 0.25,
        "prefix_load_floor": 8,
        "session_ttl_secs": 7200,
        "max_sessions": 262_144,
        "prefix_token_count": 256,
        "prefix_hash_load_factor": 1.25,
        "prefix_hash_balance_abs_threshold": 10,
        "routing_text_limit": 4_194_304,
        "routing_text_tools": "auto",
        "balance_abs_threshold": 64,
        "balance_rel_threshold": 1.5,
        "balance_gate": "worker",
        "spread_new_conversations": True,
        "peer_sync_stride_tokens": 0,
        "kv_index_max_entries": 0,
        "kv_index_ttl_secs": 600,
        "kv_storage_offloading": "off",
        "auto_objective": "balanced",
        "lora_load_tokens": 2000,
        "overlap_weight": 1.0,
        "router_temperature": 0.0,
        "host_cache_hit_weight": 0.75,
        "disk_cache_hit_weight": 0.25,
        "shared_cache_multiplier": 0.0,
        "logit_prefill_tokens": "uncached",
        "logit_decode_blocks": "potential",
        "kv_penalty_host": 0.8,
        "kv_penalty_disk": 0.3,
        "kv_overlap_weight": 0.6,
        "kv_load_weight": 0.3,
        "kv_health_weight": 0.1,
        "kv_gpu_tier_weight": 1.0,
        "kv_storage_tier_weight": 0.6,
        "kv_min_overlap_threshold": 0.3,
        "kv_overlap_basis": "prompt",
        "kv_load_factor": 2.0,
        "miss_choice": "least_load",
        "eviction_policy": "lru",
        "eviction_interval_secs": 120,
        "max_tree_size": 67_108_864,
        "tokenize": "auto",
        "max_worker_requests": 0,
        "ticket_lease_secs": 0,
        "receipts": 8192,
        "vllm_pd_disaggregation": False,
        "prefill_urls": [],
        "decode_urls": [],
        "prefill_policy": None,
        "decode_policy": None,
        "prefill_data_parallel_size": 0,
        "decode_data_parallel_size": 0,
        "pd_bypass_uncached_tokens": 0,
        "pd_bypass_queued_tokens": 4096,
    }


def test_policy_options_come_back_in_canonical_form() -> None:
    options = check_policy_options(
        {"policy": "Consistent-Hashing", "hash_function": "XXH3", "data_parallel_size": 2}
    )
    assert (options["policy"], options["hash_function"]) == ("consistent_hash", "xxh3")
    assert options["intra_node_data_parallel_size"] == 2


def test_defaults_are_not_shared_between_two_calls() -> None:
    check_policy_options({})["hash_key_headers"].append("x")
    assert check_policy_options({})["hash_key_headers"] == []


def test_compat_sets_what_it_implies() -> None:
    options = check_policy_options({"policy": "consistent_hash", "consistent_hash_compat": True})
    assert options["hash_key_order"] == "reference"
    assert options["session_header_aliases"] is False
    assert options["hash_key_fallback"] == "body"


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"virtual_node": 1}, TypeError, "virtual_node is not a known setting; did you mean virtual_nodes?"),
        ({"port": 1}, TypeError, "port is not an option of Router but of the server"),
        ({"kv_model": 1}, TypeError, "kv_model is --kv-event-model here"),
        ({"data_parallel_size": 1, "intra_node_data_parallel_size": 1}, TypeError, "a second time"),
        (
            {"virtual_nodes": 0},
            ValueError,
            "virtual_nodes is 0; it is the number of points on the hash ring per worker",
        ),
        ({"cache_threshold": 1.5}, ValueError, "cache_threshold is 1.5; "),
        ({"enable_igw": True}, TypeError, "enable_igw is not an option of Router but of the server"),
        ({"policy": "least_lod"}, ValueError, "did you mean least_load?"),
    ],
)
def test_bad_policy_options_are_refused(
    options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        check_policy_options(options)


def test_an_option_of_another_policy_is_accepted_with_a_warning() -> None:
    sentence = "virtual_nodes has no effect on the policy round_robin; it belongs to consistent_hash and "
    with pytest.warns(UnusedOptionWarning, match=sentence) as caught:
        options = check_policy_options(
            {"policy": "round_robin", "virtual_nodes": 200, "cache_threshold": 0.3}
        )
    assert options["virtual_nodes"] == 200
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]


def test_warnings_name_what_will_not_do_what_it_seems_to() -> None:
    assert RouterArgs(worker_urls=["http://a:1"]).warnings() == []
    said = RouterArgs(
        policy="power-of-two",
        worker_urls=["http://a:1"],
        dp_aware=True,
        model_path="m",
        hash_failover="first",
        allow_request_overrides=True,
    )
    assert said.warnings() == [
        "hash_failover has no effect on the policy power_of_two; it belongs to consistent_hash",
        "--dp-aware has no effect by itself; --intra-node-data-parallel-size sets the number of "
        "ranks per URL",
        "--model-path has no effect: it named a tokenizer for gRPC workers; HTTP workers need none",
        "--allow-request-overrides has no effect on the policy power_of_two; it belongs to kv_logit and "
        "kv_aware",
        "power_of_two has nothing to choose between while there is only one worker",
    ]
    assert "requests get 503 until POST /add_worker" in RouterArgs().warnings()[0]


@pytest.mark.parametrize(
    "source", ["--worker-file w.yaml", "--worker-dns http://v.svc", "--worker-srv v.svc"]
)
def test_a_fleet_that_a_source_fills_needs_no_worker_urls(source: str) -> None:
    assert parsed(source).warnings() == []
    assert parsed(f"{source} --worker-urls http://a:1 --policy power_of_two").warnings() == []


def test_classes_are_for_requests_that_the_router_proxies() -> None:
    line = "--worker-urls http://a:1 http://b:1 --admission-config classes.yaml"
    assert parsed(line).warnings() == []
    assert parsed(f"{line} --epp-port 9002").warnings() == [
        "--admission-config has no effect on requests whose workers are picked by --epp-port: they have "
        "neither classes nor limits of tenants"
    ]
    parsed(f"{line} --epp-port 9002")._validate_router_args()
    with pytest.raises(
        ValueError,
        match=r"admission_config is classes\.yaml and epp_only is set, .*; remove admission_config, or",
    ):
        parsed(f"{line} --epp-port 9002 --epp-only")._validate_router_args()


def test_settings_of_dns_without_names_to_resolve_are_named() -> None:
    line = "--worker-file w.yaml --dns-server ::1 --dns-min-secs 2 --dns-max-secs 3"
    assert parsed(line).warnings() == [
        f"--dns-{name} has no effect without --worker-dns or --worker-srv"
        for name in ("server", "min-secs", "max-secs")
    ]
    assert parsed(f"{line} --worker-srv v.svc").warnings() == []


def test_the_bounds_of_a_ttl_are_in_order() -> None:
    parsed("--dns-min-secs 30")._validate_router_args()
    with pytest.raises(
        ValueError,
        match=r"dns_max_secs is 30; it is the maximum time between two queries and must not be below the "
        r"minimum, dns_min_secs, which is 30\.5",
    ):
        parsed("--dns-min-secs 30.5")._validate_router_args()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", "none of selector, service_discovery_service and inference_pool is set"),
        (
            "--selector app=vllm --service-discovery-service vllm",
            "selector and service_discovery_service are set",
        ),
        ("--selector app=vllm --inference-pool vllm", "selector and inference_pool are set"),
    ],
)
def test_kubernetes_discovery_takes_pods_a_service_or_a_pool(line: str, found: str) -> None:
    with pytest.raises(
        ValueError, match=rf"service_discovery is on, and {found}.*; set selector to the labe"
    ):
        parsed(f"--service-discovery {line}")._validate_router_args()


@pytest.mark.parametrize("namespaces", ["", "--service-discovery-namespace a b"], ids=["none", "two"])
def test_a_pool_is_in_one_namespace(namespaces: str) -> None:
    with pytest.raises(ValueError, match=r"a pool and its pods are in one namespace: name it"):
        parsed(f"--service-discovery --inference-pool vllm {namespaces}")._validate_router_args()


def test_ports_beside_a_pool_are_named() -> None:
    line = "--service-discovery --inference-pool vllm --service-discovery-namespace a"
    assert parsed(line).warnings() == []
    assert parsed(f"{line} --service-discovery-port 8000").warnings() == [
        "--service-discovery-port has no effect with --inference-pool, which says the ports of its pods"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "--selector app=vllm",
        "--service-discovery-service vllm",
        "--inference-pool vllm --service-discovery-namespace models",
    ],
)
def test_a_fleet_that_kubernetes_fills_needs_no_worker_urls(line: str) -> None:
    args = parsed(f"--service-discovery {line} --policy power_of_two")
    args._validate_router_args()
    assert args.warnings() == []


def test_waits_and_adapters_without_what_they_need_are_named() -> None:
    line = "--worker-urls http://a:1 http://b:1"
    assert parsed(f"{line} --model-wait-secs 5 --lora-spread --queue-size 1").warnings() == []
    assert parsed(f"{line} --model-wait-secs 5 --queue-size 0").warnings() == [
        "--model-wait-secs has no effect with --queue-size 0, the number of requests that may wait"
    ]
    assert parsed(f"{line} --lora-spread --model-refresh-secs 0").warnings() == [
        "--lora-spread has no effect with --model-refresh-secs 0: workers are not polled for models, so "
        "no adapter has a parent"
    ]


def test_settings_of_kubernetes_without_discovery_are_named() -> None:
    settings = {
        "selector": "app=vllm",
        "prefill-selector": "role=p",
        "decode-selector": "role=d",
        "service-discovery-port": "8000",
        "service-discovery-namespace": "prod",
        "service-discovery-service": "vllm",
        "inference-pool": "vllm",
        "kubeconfig": "config",
        "kube-context": "prod",
        "discovery-resync-secs": "30",
    }
    args = parsed("--worker-file w.yaml " + " ".join(f"--{name} {value}" for name, value in settings.items()))
    args._validate_router_args()
    assert args.warnings() == [
        *(f"--{name} has no effect without --service-discovery" for name in settings),
        "--prefill-selector has no effect without --vllm-pd-disaggregation",
        "--decode-selector has no effect without --vllm-pd-disaggregation",
    ]


@pytest.mark.parametrize("policy", ["auto", "round_robin", "consistent_hash"])
def test_options_of_sources_belong_to_every_policy(policy: str) -> None:
    given = {"discovery_guard": 1, "discovery_hold_secs": 0}
    assert check_policy_options({"policy": policy, **given}).items() >= given.items()
    for name, value in (("discovery_guard", 0), ("discovery_guard", 1.5), ("discovery_hold_secs", -1)):
        with pytest.raises(ValueError, match=f"{name} is {value}; it is the "):
            check_policy_options({name: value})


@pytest.mark.parametrize("line", ["--record-log-salt-file s", "--record-log s --record-log-salt-file s"])
def test_a_secret_belongs_to_a_record_log_and_into_a_file_of_its_own(line: str) -> None:
    with pytest.raises(ValueError, match="the salt belongs to a record log, and must be in a separate file"):
        parsed(line)._validate_router_args()


def test_a_record_log_reads_the_block_size_under_every_policy() -> None:
    line = "--worker-urls http://a:1 --policy round_robin --block-size 32"
    assert parsed(line).warnings() != []
    assert parsed(f"{line} --record-log traffic.jsonl").warnings() == []


@pytest.mark.parametrize("option", ["--kv-events-engine trtllm", "--kv-events-push"])
def test_ways_to_hear_events_that_are_off_are_rejected(option: str) -> None:
    assert parsed(option)._validate_router_args() is None
    with pytest.raises(ValueError, match="kv_events is off, so events have no effect; set kv_events to auto"):
        parsed(f"{option} --kv-events off")._validate_router_args()


def test_an_address_to_listen_at_is_named_once() -> None:
    assert parsed("--kv-events-bind tcp://*:5557 tcp://*:5558")._validate_router_args() is None
    assert parsed("--kv-events-bind tcp://127.0.0.1:* tcp://127.0.0.1:*")._validate_router_args() is None
    with pytest.raises(ValueError, match="twice, and one socket listens there; leave one out"):
        parsed("--kv-events-bind tcp://*:5557 tcp://*:5557")._validate_router_args()


def test_clients_and_admins_do_not_share_a_file_of_keys() -> None:
    with pytest.raises(ValueError, match="so every client could change the fleet"):
        parsed("--client-api-key-file k --admin-api-key-file k")._validate_router_args()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--client-api-key-file k", "admin endpoints are closed"),
        ("--client-api-key-file k --admin-api-key-file a", None),
        ("--client-api-key-file k --admin-port 9000", None),
        ("--admin-port 9000 --admin-host 0.0.0.0", "--admin-host 0.0.0.0 is not a loopback address"),
        ("--host 0.0.0.0", "--host 0.0.0.0 is not a loopback address, and admin endpoints need no key"),
        ("--host 0.0.0.0 --admin-api-key-file a", None),
        ("--host 0.0.0.0 --admin-port 9000", None),
        ("--host 0.0.0.0 --client-api-key-file k", "admin endpoints are closed"),
        ("--host localhost", None),
        ("--admin-port 9000 --admin-host 0.0.0.0 --admin-api-key-file a", None),
        ("--admin-port 9000 --admin-host ::1", None),
    ],
)
def test_doors_that_are_shut_or_open_by_oversight_are_warned_of(line: str, sentence: str | None) -> None:
    warnings = parsed(f"--worker-urls http://a:1 {line}").warnings()
    assert len(warnings) == (sentence is not None)
    assert sentence is None or sentence in warnings[0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--tls-cert-path c", "tls_cert_path is c and tls_key_path is not set"),
        ("--tls-key-path k", "tls_key_path is k and tls_cert_path is not set"),
        ("--worker-key-path k", "worker_key_path is k and worker_cert_path is not set"),
        ("--peer-sync-cert-path c", "peer_sync_cert_path is c and peer_sync_key_path is not set"),
        ("--peer-sync-key-path k", "peer_sync_key_path is k and peer_sync_cert_path is not set"),
        ("--tls-client-ca-file a", "clients connect without TLS; set tls_cert_path and tls_key_path, too"),
    ],
)
def test_what_goes_together_in_tls_is_asked_for(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parsed(line)._validate_router_args()


def test_unchecked_certificates_are_warned_of() -> None:
    (warning,) = parsed("--worker-urls https://a:1 --worker-tls-insecure").warnings()
    assert "worker certificates are not verified, so connections can be intercepted" in warning


def test_decode_workers_of_sglang_cannot_bypass_prefill() -> None:
    stages = "--prefill http://p:1 --decode http://d:1 --mode pd --pd-bypass-uncached-tokens 64"
    parsed(stages)._validate_router_args()
    with pytest.raises(ValueError, match="whose decode workers cannot prefill by themselves; set"):
        parsed(f"{stages} --kv-connector sglang")._validate_router_args()


def test_the_salt_is_not_the_log_however_it_is_spelt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for salt in ("./log", "link", str(tmp_path / "log")):
        with pytest.raises(ValueError, match="record_log is the same; the salt belongs to a record log"):
            RouterArgs(record_log="log", record_log_salt_file=salt)._validate_router_args()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"shared_cache_url": ["http://m:9003"]},
            "shared_cache_url is set, and shared_cache_type is none, so no pool is queried; set "
            "shared_cache_type to hicache, or remove it",
        ),
        (
            {"shared_cache_layout": '{"page_size": 64}'},
            "shared_cache_layout is set, and shared_cache_type is",
        ),
        (
            {"shared_cache_type": "hicache"},
            "shared_cache_type is hicache, and the policy auto does not read the pool; set policy to "
            "kv_logit",
        ),
    ],
)
def test_settings_of_a_shared_pool_that_do_not_fit_together(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        RouterArgs(**settings)._validate_router_args()


def test_settings_of_a_shared_pool_without_effect_are_named() -> None:
    def about_the_pool(**settings: Any) -> list[str]:
        return [line for line in RouterArgs(policy="kv", **settings).warnings() if "shared" in line]

    assert about_the_pool(shared_cache_multiplier=0.5) == [
        "shared_cache_multiplier has no effect without a pool to query; set --shared-cache-type hicache"
    ]
    assert about_the_pool(shared_cache_type="hicache") == [
        "shared_cache_multiplier is 0, so the shared pool is queried for the metrics alone; typical values "
        "are 0.3 to 0.7"
    ]
    assert about_the_pool(shared_cache_type="hicache", shared_cache_multiplier=0.5) == []


def test_settings_of_traces_without_effect_are_named() -> None:
    settings: dict[str, Any] = {"otlp_traces_endpoint": "http://c:4318", "otel_service_name": "router"}
    assert [line for line in RouterArgs(**settings).warnings() if "trace" in line] == [
        "--otlp-traces-endpoint has no effect without --enable-trace",
        "--otel-service-name has no effect without --enable-trace",
    ]
    assert not [line for line in RouterArgs(enable_trace=True, **settings).warnings() if "trace" in line]


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("http://c:4317", "http://c:4318, and this is the port of OTLP over gRPC"),
        ("c:4317", "http://c:4318, and this is the port of OTLP over gRPC"),
        ("grpc://c:1", "http://c:4318, and this is the scheme of OTLP over gRPC"),
        ("ftp://c", "otlp_traces_endpoint is ftp://c; it is the collector"),
        ("http://c:0", "otlp_traces_endpoint is http://c:...; it is the collector"),
        ("http://c/a?b", "must be the URL of a collector's HTTP port, such as http://collector:4318"),
    ],
)
def test_a_collector_is_named_by_its_http_port(endpoint: str, said: str) -> None:
    for good in ("http://c:4318", "https://c/own", "c:4318", "http://[::1]:4318"):
        RouterArgs(otlp_traces_endpoint=good)._validate_router_args()
    with pytest.raises(ValueError, match=re.escape(said)):
        RouterArgs(otlp_traces_endpoint=endpoint)._validate_router_args()


CACHE = "--worker-urls http://a:1 --response-cache"
IN_REDIS = f"{CACHE} --response-cache-backend redis"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            IN_REDIS,
            "response_cache_backend is redis and redis_url is missing (in a file: response_cache.redis.url); "
            "write for example redis://localhost:6379",
        ),
        (
            f"{IN_REDIS} --redis-url redis://a --response-cache-lookup-budget-ms 1001",
            "response_cache_lookup_budget_ms is 1001; it is the maximum time for which a request waits for "
            "Redis and must not be above redis_command_timeout_ms, which is 1000",
        ),
        (
            f"{CACHE} --response-cache-max-memory-bytes 41943039",
            "response_cache_max_stream_buffer_size is 10485760; it must not be above a quarter of "
            "response_cache_max_memory_bytes, which is 41943039; raise that, or lower it: such a response "
            "could never be stored",
        ),
        (
            f"{CACHE} --response-cache-max-response-size 67108865",
            "response_cache_max_response_size is 67108865; it must not be above a quarter of",
        ),
        (
            f"{CACHE} --response-cache-capture-memory-bytes 10485759",
            "response_cache_max_stream_buffer_size is 10485760; it must not be above "
            "response_cache_capture_memory_bytes, which is 10485759; raise that, or lower it: such a "
            "response could never be stored",
        ),
        *(
            (
                f"{CACHE} --response-cache-tenant-source {source}",
                f"response_cache_tenant_source is {source} and response_cache_tenant_header is not set; name "
                "the header that your gateway sets, or use response_cache_tenant_source credential",
            )
            for source in ("header", "header_credential")
        ),
        (
            f"{CACHE} --redis-cert-path c",
            "redis_cert_path is c and redis_key_path is not set; a certificate and its key go together",
        ),
    ],
)
def test_settings_of_the_response_cache_that_do_not_fit_together(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parsed(line)._validate_router_args()
    if "redis-cert-path" not in line:  # and nothing is wrong with them while it is off
        parsed(line.replace("--response-cache ", ""))._validate_router_args()


@pytest.mark.parametrize(
    "line",
    [
        f"{CACHE} --response-cache-max-memory-bytes 41943040",
        f"{CACHE} --response-cache-max-stream-buffer-size 0 --response-cache-max-memory-bytes 4194304",
        f"{IN_REDIS} --redis-url redis://a --response-cache-max-memory-bytes 1048576",
        f"{IN_REDIS} --redis-url redis://a --response-cache-lookup-budget-ms 1000",
    ],
)
def test_settings_of_the_response_cache_that_just_fit(line: str) -> None:
    args = parsed(line)
    args._validate_router_args()
    assert args.warnings() == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (CACHE, None),
        (
            f"{CACHE} --response-cache-temperature-absent cache",
            "one sample becomes the response to all equal",
        ),
        (f"{CACHE} --response-cache-tenant-source shared", "every client gets responses that were made for"),
        (
            f"{CACHE} --response-cache-tenant-source header --response-cache-tenant-header X-T",
            "clients that send the same X-T share responses, whatever their credentials; a gateway in front "
            "must set it and remove the client's own",
        ),
        (
            f"{CACHE} --response-cache-tenant-source header+credential --response-cache-tenant-header X-T",
            None,
        ),
        (
            f"{CACHE} --response-cache-tenant-header X-T",
            "--response-cache-tenant-header has no effect with --response-cache-tenant-source credential",
        ),
        (
            f"{CACHE} --redis-url redis://a",
            "--redis-url has no effect without --kv-index-backend redis or --response-cache-backend redis",
        ),
        (
            f"{CACHE} --response-cache-redis-key-prefix a:",
            "--response-cache-redis-key-prefix has no effect without --response-cache-backend redis",
        ),
        (
            f"{IN_REDIS} --redis-url redis://a --no-response-cache-fallback-to-memory "
            "--response-cache-fallback-capacity 5",
            "--response-cache-fallback-capacity has no effect with --no-response-cache-fallback-to-memory",
        ),
        (f"{IN_REDIS} --redis-url redis://a --response-cache-redis-key-prefix a:", None),
        (
            "--worker-urls http://a --response-cache-capacity 5 --response-cache-coalesce off",
            "the response cache is off, so these have no effect: --response-cache-capacity, "
            "--response-cache-coalesce",
        ),
    ],
)
def test_settings_of_the_response_cache_are_warned_of(line: str, sentence: str | None) -> None:
    args = parsed(line)
    args._validate_router_args()
    said = args.warnings()
    assert len(said) == (sentence is not None)
    assert sentence is None or sentence in said[0]


PEERS = "--worker-urls http://a:1 --peer-sync redis://cache"


def test_what_admins_say_needs_a_secret_where_routers_meet() -> None:
    with pytest.raises(
        ValueError,
        match=r"peer_sync_admin is set and peer_sync_secret_file is not: every client that can write to that "
        r"Redis could add workers, which read prompts; set peer_sync_secret_file, or remove peer_sync_admin$",
    ):
        parsed(f"{PEERS} --peer-sync-admin")._validate_router_args()
    args = parsed(f"{PEERS} --peer-sync-admin --peer-sync-secret-file s")
    args._validate_router_args()
    assert args.warnings() == []
    parsed("--peer-sync-admin")._validate_router_args()  # which has no effect, as a warning says


def test_routers_that_meet_without_a_secret_are_warned_of() -> None:
    assert parsed(PEERS).warnings() == [
        "--peer-sync without --peer-sync-secret-file: every client that can write to that Redis can tell "
        "this router anything about the others, and one that can read there sees hashes of prompts"
    ]
    assert parsed(f"{PEERS} --peer-sync-secret-file s").warnings() == []


def test_settings_of_routers_that_do_not_meet_are_named() -> None:
    values = {
        "peer-sync-fleet": "blue",
        "peer-sync-interval-ms": "500",
        "peer-sync-stride-tokens": "512",
        "peer-sync-secret-file": "s",
        "peer-sync-password-file": "p",
        "peer-sync-ca-file": "ca",
        "peer-sync-cert-path": "c",
        "peer-sync-key-path": "k",
        "peer-sync-max-mbps": "50",
        "peer-sync-admin": "",
        "rate-limit-scope": "router",
    }
    args = parsed(
        "--worker-urls http://a:1 " + " ".join(f"--{name} {value}" for name, value in values.items())
    )
    args._validate_router_args()
    assert args.warnings() == [f"--{name} has no effect without --peer-sync" for name in values]


@pytest.mark.parametrize(
    ("line", "stride"),
    [
        ("", 0),
        ("--peer-sync-stride-tokens 512", 512),
        ("--peer-sync redis://cache", 256),
        ("--peer-sync redis://cache --peer-sync-stride-tokens 0", 256),
        ("--peer-sync redis://cache --peer-sync-stride-tokens 512", 512),
        ("--peer-sync redis://cache --policy round_robin", 256),
    ],
)
def test_strides_have_their_own_default_where_routers_meet(line: str, stride: int) -> None:
    assert parsed(line).router_options()["peer_sync_stride_tokens"] == stride


# Two stages.

PAIR = "--prefill http://p:8000 --decode http://d:8000"


@pytest.mark.parametrize("mode", ["--mode pd", "--vllm-pd-disaggregation", "--pd-disaggregation"])
def test_every_spelling_of_the_mode_needs_workers_of_both_stages(mode: str) -> None:
    parsed(f"{mode} {PAIR}")._validate_router_args()
    for line, text in [
        ("--decode http://d:8000", "PD disaggregation mode requires --prefill"),
        ("--prefill http://p:8000", "PD disaggregation mode requires --decode"),
        (
            "",
            "PD disaggregation mode requires --prefill and --decode, --vllm-discovery-address, or --service",
        ),
    ]:
        with pytest.raises(ValueError, match=f"^{text}"):
            parsed(f"{mode} {line}")._validate_router_args()
    parsed(f"{mode} --worker-file workers.yaml")._validate_router_args()


def test_workers_that_register_take_the_place_of_lists() -> None:
    args = parsed("--mode pd --vllm-discovery-address 127.0.0.1:30001")
    args._validate_router_args()
    assert args.warnings() == []
    both = parsed(f"--mode pd {PAIR} --vllm-discovery-address 127.0.0.1:30001")
    both._validate_router_args()
    assert both.warnings() == [
        "--prefill has no effect with --vllm-discovery-address: workers register, so these are ignored: "
        "http://p:8000",
        "--decode has no effect with --vllm-discovery-address: workers register, so these are ignored: "
        "http://d:8000",
    ]
    options = both.router_options()
    assert (options["prefill_urls"], options["decode_urls"]) == ([], [])
    # Without the mode nothing of it counts.
    [warning] = parsed("--worker-urls http://w --vllm-discovery-address 127.0.0.1:30001").warnings()
    assert warning == "--vllm-discovery-address has no effect without --vllm-pd-disaggregation"


def test_an_open_address_for_registrations_is_a_warning() -> None:
    line = "--mode pd --vllm-discovery-address 0.0.0.0:30001"
    [warning] = parsed(line).warnings()
    assert warning.startswith("--vllm-discovery-address 0.0.0.0:30001 is open to every process")
    assert parsed(f"{line} --vllm-discovery-allow 10.0.0.0/8").warnings() == []
    [unused] = parsed(f"--mode pd {PAIR} --vllm-discovery-allow 10.0.0.0/8").warnings()
    assert unused == "--vllm-discovery-allow has no effect without --vllm-discovery-address"


@pytest.mark.parametrize("connector", ["moriio", "p2p_nccl"])
def test_a_connector_whose_workers_register_needs_an_address(connector: str) -> None:
    with pytest.raises(ValueError, match=f"^kv_connector is {connector}, whose workers register"):
        parsed(f"--mode pd {PAIR} --kv-connector {connector}")._validate_router_args()
    line = f"--mode pd --kv-connector {connector} --vllm-discovery-address [::1]:0"
    parsed(line)._validate_router_args()


@pytest.mark.parametrize(
    "address",
    ["", "30001", ":30001", "a.b:1", "10.0.0.1", "10.0.0.1:70000", "::1:5", "[::1]", "[1.1.1.1]:1"],
)
def test_an_address_to_register_at_is_checked(address: str) -> None:
    with pytest.raises(ValueError, match=r"^vllm_discovery_address is .* must be HOST:PORT"):
        RouterArgs(vllm_discovery_address=address)._validate_router_args()


@pytest.mark.parametrize("text", ["vllm-0", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "fe80::1%eth0", "/8"])
def test_a_range_of_addresses_is_checked(text: str) -> None:
    with pytest.raises(ValueError, match=r"an IP address or a range of them, such as"):
        RouterArgs(vllm_discovery_allow=[text])._validate_router_args()


@pytest.mark.parametrize(
    "source",
    ["--worker-dns http://vllm:8000", "--worker-srv _http._tcp.vllm"],
)
def test_a_source_that_tells_no_stages_does_not_go_with_them(source: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"not tell prefill from decode workers; name them with prefill_(dns|srv) and decode_",
    ):
        parsed(f"--mode pd {PAIR} {source}")._validate_router_args()


BOTH = "--prefill-selector app=v,role=p --decode-selector app=v,role=d"


@pytest.mark.parametrize(
    "line",
    [
        BOTH,
        "--prefill-selector role=p --decode http://d:8000",
        "--prefill http://p:8000 --decode-selector !prefill",
        f"{PAIR} {BOTH}",
    ],
)
def test_kubernetes_may_be_the_source_of_both_stages_or_of_one(line: str) -> None:
    args = parsed(f"--mode pd --service-discovery {line}")
    args._validate_router_args()
    assert args.warnings() == []
    assert parsed(f"--mode pd --service-discovery {line} --selector app=v").warnings() == [
        "--selector has no effect with --vllm-pd-disaggregation: --prefill-selector and --decode-selector "
        "name the pods"
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--selector app=v", "neither of prefill_selector and decode_selector is set; with vllm_pd_disaggr"),
        (f"{PAIR} --selector app=v", "neither of prefill_selector and decode_selector is set"),
        (
            "--prefill-selector role=p",
            "PD disaggregation mode requires --decode, or another source of decode",
        ),
        ("--decode-selector role=d", "PD disaggregation mode requires --prefill, or another source of prefi"),
        (
            "--prefill-selector role=p --decode-selector role=p",
            "are both role=p, so each pod would be",
        ),
        (
            f"{BOTH} --inference-pool v --service-discovery-namespace a",
            "inference_pool is v, and vllm_pd_disaggregation is on: a pool does not tell prefill from decode",
        ),
        (
            f"{BOTH} --service-discovery-service v",
            "service_discovery_service is v, and vllm_pd_disaggregation",
        ),
    ],
)
def test_selectors_of_stages_that_tell_no_stages(line: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parsed(f"--mode pd --service-discovery {line}")._validate_router_args()


def test_dns_may_be_the_source_of_both_stages_or_of_one() -> None:
    for line in (
        "--prefill-dns http://p:8000 --decode-srv _http._tcp.d",
        "--prefill-srv _http._tcp.p --decode http://d:8000",
    ):
        args = parsed(f"--mode pd {line} --dns-server ::1")
        args._validate_router_args()
        assert args.warnings() == []
    with pytest.raises(ValueError, match="PD disaggregation mode requires --decode, or another source"):
        parsed("--mode pd --prefill-dns http://p:8000")._validate_router_args()
    for name, value in (("dns", "http://a:1"), ("srv", "_http._tcp.a")):
        both = f"--prefill-{name} {value} --decode-{name} {value}"
        with pytest.raises(
            ValueError, match=f"prefill_{name} and decode_{name} both have {value}, so its wor"
        ):
            parsed(f"--mode pd {both}")._validate_router_args()


def test_the_annotation_of_a_bootstrap_port_is_a_name() -> None:
    RouterArgs(bootstrap_port_annotation="own.io/port")._validate_router_args()
    with pytest.raises(
        ValueError, match=r"bootstrap_port_annotation is 'a b'; .* such as vllm.ai/bootstrap-port"
    ):
        RouterArgs(bootstrap_port_annotation="a b")._validate_router_args()


def test_a_bad_url_of_a_stage_is_named() -> None:
    with pytest.raises(ValueError, match="prefill_urls is p:8000; it is the URL of a prefill"):
        parsed("--mode pd --prefill p:8000 --decode http://d:8000")._validate_router_args()


def test_an_unknown_connector_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"must be one of auto, nixl, nixl_push, mooncake, moriio"):
        RouterArgs(kv_connector="nccl")._validate_router_args()


@pytest.mark.parametrize(
    ("line", "connector"),
    [
        ("--pd-disaggregation", "auto"),
        ("--pd_disaggregation", "auto"),
        ("--pd-disaggregation --kv-connector mooncake", "mooncake"),
        ("--kv-connector nixl --pd-disaggregation", "nixl"),
        ("--vllm-pd-disaggregation", "nixl"),
        ("--mode pd", "nixl"),
    ],
)
def test_the_old_spelling_of_the_mode_selects_the_connector_by_the_engine(line: str, connector: str) -> None:
    assert parsed(f"{line} {PAIR}").kv_connector == connector


@pytest.mark.parametrize(
    ("values", "connector"),
    [
        ({"pd_disaggregation": True}, "auto"),
        ({"pd-disaggregation": True, "kv_connector": "mooncake"}, "mooncake"),
        ({"kv_connector": "nixl", "pd_disaggregation": True}, "nixl"),
        ({"pd_disaggregation": False}, "nixl"),
        ({"vllm_pd_disaggregation": True}, "nixl"),
    ],
)
def test_the_old_spelling_does_so_in_a_file(values: dict[str, object], connector: str) -> None:
    args = RouterArgs.from_dict(values)
    assert args.kv_connector == connector
    assert args.vllm_pd_disaggregation == (False not in values.values())


def test_what_has_no_effect_with_stages_or_without_them_is_said() -> None:
    [ignored] = parsed(f"--mode pd {PAIR} --worker-urls http://w:8000").warnings()
    assert ignored.startswith("--worker-urls has no effect with --vllm-pd-disaggregation: 1 URLs are ignored")
    assert parsed(f"--mode pd {PAIR} --pd-grace-ms 5").warnings() == []
    regular = parsed(f"--worker-urls http://w:8000 {PAIR} --pd-grace-ms 5 --decode-policy random").warnings()
    assert regular == [
        f"{name} has no effect without --vllm-pd-disaggregation"
        for name in ("--prefill", "--decode", "--decode-policy", "--pd-grace-ms")
    ]


def test_an_option_counts_that_the_policy_of_either_stage_reads() -> None:
    line = f"--mode pd {PAIR} --policy random --max-tree-size 10000"
    assert parsed(f"{line} --decode-policy cache_aware").warnings() == []
    assert parsed(f"{line} --prefill-policy cache_aware").warnings() == []
    [unread] = parsed(f"{line} --decode-policy round_robin").warnings()
    assert unread.startswith("max_tree_size has no effect on the policies random and round_robin")


def test_the_core_gets_the_workers_of_the_mode_that_is_on() -> None:
    staged = parsed(f"--mode pd {PAIR} --worker-urls http://w:8000").router_options()
    assert (staged["worker_urls"], staged["decode_urls"]) == ([], ["http://d:8000"])
    regular = parsed(f"{PAIR} --worker-urls http://w:8000").router_options()
    assert (regular["worker_urls"], regular["decode_urls"]) == (["http://w:8000"], [])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--continue-streams verified", None),
        ("--continue-streams tokens --continue-rerun-tokens 9", None),
        (
            "--continue-streams verified --continue-max-tokens 9",
            "--continue-max-tokens has no effect without --continue-streams tokens",
        ),
        ("--continue-streams verified --continue-max 1 --continue-memory-mb 8", None),
        ("--continue-max 1", "--continue-max has no effect without --continue-streams verified"),
        ("--continue-memory-mb 8", "--continue-memory-mb has no effect without --continue-streams verified"),
        (
            "--continue-drain-secs 8",
            "--continue-drain-secs has no effect without --continue-streams verified",
        ),
        (
            "--continue-streams verified --disable-retries",
            "--continue-streams has no effect with --disable-retries, since a stream goes on by a retry",
        ),
        ("--continue-streams verified --retry-max-retries 1", "has no effect with --retry-max-retries 1"),
    ],
)
def test_continued_streams_that_do_not_go_on_are_warned_of(line: str, sentence: str | None) -> None:
    said = parsed(f"--worker-urls http://a:1 {line}").warnings()
    assert len(said) == (sentence is not None)
    assert sentence is None or sentence in said[0]


def test_streams_of_two_stages_do_not_go_on() -> None:
    stages = "--vllm-pd-disaggregation --prefill http://p:1 --decode http://d:1"
    assert parsed(f"{stages} --continue-streams verified").warnings() == [
        "--continue-streams has no effect with --vllm-pd-disaggregation"
    ]
