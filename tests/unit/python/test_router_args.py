"""vllm_router.router_args: flags, YAML, Python options; names and defaults against the reference's table."""

import argparse
import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_router import _core_testing as testing
from vllm_router._core import Server
from vllm_router._version import __version__
from vllm_router.errors import UnusedOptionWarning
from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import FLAGS, RouterArgs, check_policy_options
from vllm_router.settings.foreign_flags import KNOWN_ELSEWHERE
from vllm_router.settings.host import available_cpus, available_memory
from vllm_router.settings.kinds import Unfit

ROOT = Path(__file__).parents[3]

# The flags of vllm-project/router 0.1.15 to 0.1.17, its native and its Python launcher together, and what
# their command line gives when they are left out.
REFERENCE_DEFAULTS: dict[str, Any] = {
    "router-temperature": 0.0,
    "kv-penalty-host": 0.8,
    "kv-penalty-external": 0.6,
    "kv-penalty-disk": 0.3,
    "kv-aware-session-affinity-ttl-secs": None,
    "kv-event-source": [],
    "kv-event-replay-source": [],
    "kv-event-block-size": 16,
    "kv-event-model": None,
    "pd-kv-events": [],
    "host": "127.0.0.1",
    "port": 30000,
    "max-payload-size": 536870912,
    "request-timeout-secs": 1800,
    "max-concurrent-requests": 32768,
    "queue-size": 100,
    "queue-timeout-secs": 60,
    "rate-limit-tokens-per-second": None,
    "cors-allowed-origins": [],
    "worker-urls": [],
    "worker-startup-timeout-secs": 600,
    "worker-startup-check-interval": 30,
    "intra-node-data-parallel-size": 1,
    "backend": "vllm",
    "mini-lb": False,
    "enable-igw": False,
    "history-backend": "memory",
    "profile": False,
    "api-key": None,
    "api-key-validation-urls": [],
    "policy": "cache_aware",
    "prefill-policy": None,
    "decode-policy": None,
    "cache-threshold": 0.3,
    "balance-abs-threshold": 64,
    "balance-rel-threshold": 1.5,
    "eviction-interval-secs": 120,
    "max-tree-size": 67108864,
    "vllm-pd-disaggregation": False,
    "prefill": [],
    "decode": [],
    "vllm-discovery-address": None,
    "kv-connector": "nixl",
    "enable-program-scheduling": False,
    "program-scheduling-config-json": None,
    "service-discovery": False,
    "selector": {},
    "service-discovery-port": 80,
    "service-discovery-namespace": None,
    "prefill-selector": {},
    "decode-selector": {},
    "retry-max-retries": 5,
    "retry-lost-requests": 1,
    "hold-stream-head": "on",
    "dead-worker-grace-secs": 10,
    "retry-initial-backoff-ms": 50,
    "retry-max-backoff-ms": 30000,
    "retry-backoff-multiplier": 1.5,
    "retry-jitter-factor": 0.2,
    "disable-retries": False,
    "cb-failure-threshold": 10,
    "cb-success-threshold": 3,
    "cb-timeout-duration-secs": 60,
    "cb-window-duration-secs": 120,
    "disable-circuit-breaker": False,
    "health-failure-threshold": 3,
    "health-success-threshold": 2,
    "health-check-timeout-secs": 5,
    "health-check-interval-secs": 10,
    "health-check-endpoint": "/health",
    "log-dir": None,
    "log-level": "info",
    "prometheus-port": 29000,
    "prometheus-host": "127.0.0.1",
    "request-id-headers": None,
    "enable-trace": False,
    "otlp-traces-endpoint": None,
    "otel-sampling-ratio": 1.0,
    "otel-excluded-paths": ["/health", "/health_generate", "/liveness", "/readiness"],
    "wasm-middleware": None,
    "wasm-middleware-sha256": None,
    "wasm-middleware-route": [],
    # older releases
    "dp-aware": False,
    "model-path": None,
    "tokenizer-path": None,
}

# Where the reference's dataclass, as Python makes it, differs from its command line.
REFERENCE_CLASS_DEFAULTS = {"log_level": None, "prometheus_port": None, "prometheus_host": None}

# Other spellings of its launchers and releases: what is written, and the same in the ordinary spelling.
OTHER_SPELLINGS = {
    "--eviction-interval 120": "--eviction-interval-secs 120",
    "--runtime vllm": "--backend vllm",
    "--data-parallel-size 4": "--intra-node-data-parallel-size 4",
    "--log-level warning": "--log-level warn",
    "--pd-disaggregation": "--vllm-pd-disaggregation",
    "--mode pd": "--vllm-pd-disaggregation",
    "--mode regular": "",
    "--prefill-workers http://p1,http://p2": "--prefill http://p1 --prefill http://p2 none",
    "--decode-workers http://d1:8000 http://d2:8000": "--decode http://d1:8000 --decode http://d2:8000",
    "--policy round-robin": "--policy round_robin",
    "--policy least_request": "--policy least_load",
    "--policy consistent-hashing": "--policy consistent_hash",
}

# One value per flag that is not its default, as the command line has it and as Python sees it.
OTHER_VALUES: dict[str, tuple[str, Any]] = {
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("8080", 8080),
    "threads": ("3", 3),
    "api-key": ("secret", "secret"),
    "preserve-host": ("", True),
    "request-id-headers": ("x-a x-b,x-c", ["x-a", "x-b", "x-c"]),
    "worker-urls": ("http://a:1,http://b:2 http://c:3@1", ["http://a:1", "http://b:2", "http://c:3@1"]),
    "intra-node-data-parallel-size": ("8", 8),
    "dp-aware": ("", True),
    "worker-startup-timeout-secs": ("1.5", 1.5),
    "worker-startup-check-interval": ("1", 1),
    "model-path": ("meta/llama", "meta/llama"),
    "tokenizer-path": ("meta/llama", "meta/llama"),
    "policy": ("rendezvous_hash", "rendezvous_hash"),
    "seed": ("18446744073709551615", 2**64 - 1),
    "fallback-policy": ("random", "random"),
    "least-load-metric": ("tokens", "tokens"),
    "virtual-nodes": ("200", 200),
    "hash-function": ("xxh3", "xxh3"),
    "hash-failover": ("first", "first"),
    "hash-load-factor": ("1.25", 1.25),
    "cache-threshold": ("0.5", 0.5),
    "block-size": ("32", 32),
    "max-blocks-per-worker": ("2000", 2000),
    "load-factor": ("1.5", 1.5),
    "load-bound": ("average", "average"),
    "max-prefix-length": ("4096", 4096),
    "load-factor-epsilon": ("0.5", 0.5),
    "prefix-load-floor": ("8", 8),
    "session-ttl-secs": ("60", 60),
    "max-sessions": ("10", 10),
    "prefix-token-count": ("64", 64),
    "prefix-hash-load-factor": ("1.5", 1.5),
    "prefix-hash-balance-abs-threshold": ("4", 4),
    "routing-text-limit": ("65536", 65536),
    "balance-gate": ("fleet", "fleet"),
    "spread-new-conversations": ("", True),  # on anyway
    "auto-objective": ("ttft", "ttft"),
    "miss-choice": ("smallest_tree", "smallest_tree"),
    "eviction-policy": ("lfu", "lfu"),
    "hash-key-order": ("reference", "reference"),
    "hash-key-headers": ("x-team,x-user", ["x-team", "x-user"]),
    "consistent-hash-compat": ("", True),
    "connect-timeout-secs": ("0.25", 0.25),
    "first-byte-timeout-secs": ("30", 30),
    "request-timeout-secs": ("14400", 14400),
    "stream-idle-timeout-secs": ("0", 0),
    "stream-total-timeout-secs": ("3600", 3600),
    "upstream-write-timeout-secs": ("10", 10),
    "client-head-timeout-secs": ("10", 10),
    "client-body-timeout-secs": ("10", 10),
    "client-idle-timeout-secs": ("75", 75),
    "client-write-timeout-secs": ("10", 10),
    "max-payload-size": ("1024", 1024),
    "max-connections": ("1000", 1000),
    "body-memory-mb": ("64", 64),
    "upstream-pool-size": ("0", 0),
    "upstream-pool-idle-secs": ("50", 50),
    "health-check-interval-secs": ("5", 5),
    "health-check-timeout-secs": ("1", 1),
    "health-check-endpoint": ("/healthz", "/healthz"),
    "health-failure-threshold": ("1", 1),
    "health-success-threshold": ("1", 1),
    "shutdown-grace-period-secs": ("0", 0),
    "shutdown-settle-secs": ("5", 5),
    "log-level": ("debug", "debug"),
    "log-dir": ("/var/log/router", "/var/log/router"),
    "log-format": ("json", "json"),
    "prometheus-host": ("0.0.0.0", "0.0.0.0"),
    "prometheus-port": ("0", 0),
    "max-concurrent-requests": ("16", 16),
    "max-worker-requests": ("8", 8),
    "queue-size": ("0", 0),
    "queue-timeout-secs": ("5", 5),
    "rate-limit-tokens-per-second": ("10", 10),
    "retry-max-retries": ("3", 3),
    "retry-lost-requests": ("0", 0),
    "hold-stream-head": ("off", "off"),
    "dead-worker-grace-secs": ("2.5", 2.5),
    "retry-initial-backoff-ms": ("10", 10),
    "retry-max-backoff-ms": ("1000", 1000),
    "retry-backoff-multiplier": ("2", 2),
    "retry-jitter-factor": ("0", 0),
    "retry-budget": ("0.5", 0.5),
    "health-compat": ("", True),
    "slow-start-secs": ("2", 2),
    "disable-retries": ("", True),
    "cb-failure-threshold": ("3", 3),
    "cb-success-threshold": ("1", 1),
    "cb-timeout-duration-secs": ("5", 5),
    "cb-window-duration-secs": ("30", 30),
    "disable-circuit-breaker": ("", True),
    "api-key-validation-urls": ("http://auth/v", ["http://auth/v"]),
    "client-api-key-file": ("/etc/router/clients", "/etc/router/clients"),
    "admin-api-key-file": ("/etc/router/admins", "/etc/router/admins"),
    "admin-host": ("0.0.0.0", "0.0.0.0"),
    "admin-port": ("9000", 9000),
    "api-key-validation-cache-secs": ("60", 60),
    "api-key-validation-timeout-secs": ("1.5", 1.5),
    "fan-out-path": ("/hooks*", ["/hooks*"]),
    "cors-allowed-origins": ("https://chat.example", ["https://chat.example"]),
    "tls-cert-path": ("cert.pem", "cert.pem"),
    "tls-key-path": ("key.pem", "key.pem"),
    "worker-ca-file": ("ca.pem", "ca.pem"),
    "worker-tls-insecure": ("", True),
    "tls-client-ca-file": ("clients.pem", "clients.pem"),
    "half-closed-clients": ("serve", "serve"),
    "client-min-body-rate": ("65536", 65536),
    "tls-ciphers": ("ECDHE+AESGCM:AES128-SHA", "ECDHE+AESGCM:AES128-SHA"),
    "tls-min-version": ("1.3", "1.3"),
    "worker-cert-path": ("router.pem", "router.pem"),
    "worker-key-path": ("router.key", "router.key"),
    "reuse-port": ("", True),
    "vllm-pd-disaggregation": ("", True),
    "prefill": ("http://p:8000 8998", [("http://p:8000", 8998)]),
    "decode": ("http://d:8000", ["http://d:8000"]),
    "prefill-policy": ("random", "random"),
    "decode-policy": ("round_robin", "round_robin"),
    "vllm-discovery-address": ("0.0.0.0:30001", "0.0.0.0:30001"),
    "kv-connector": ("mooncake", "mooncake"),
    "profile": ("", True),
    "service-discovery": ("", True),
    "selector": ("app=vllm tier=a=b junk", {"app": "vllm", "tier": "a=b"}),
    "service-discovery-port": ("8000", 8000),
    "service-discovery-namespace": ("prod", "prod"),
    "prefill-selector": ("stage=p", {"stage": "p"}),
    "decode-selector": ("stage=d", {"stage": "d"}),
    "enable-trace": ("", True),
    "otlp-traces-endpoint": ("otel:4317", "otel:4317"),
    "otel-sampling-ratio": ("0.1", 0.1),
    "otel-excluded-paths": ("/a /b", ["/a", "/b"]),
    "wasm-middleware": ("m.wasm", "m.wasm"),
    "wasm-middleware-sha256": ("ab", "ab"),
    "router-temperature": ("0.5", 0.5),
    "kv-penalty-host": ("0.5", 0.5),
    "kv-penalty-external": ("0.5", 0.5),
    "kv-penalty-disk": ("0.5", 0.5),
    "kv-aware-session-affinity-ttl-secs": ("60", 60),
    "kv-event-source": ("http://a:1=tcp://a:5557", ["http://a:1=tcp://a:5557"]),
    "kv-event-replay-source": ("http://a:1=tcp://a:5558", ["http://a:1=tcp://a:5558"]),
    "kv-event-block-size": ("32", 32),
    "kv-event-model": ("llama", "llama"),
    "pd-kv-events": ("http://a:1=tcp://a:5557", ["http://a:1=tcp://a:5557"]),
    "wasm-middleware-route": ("/v1/a", ["/v1/a"]),
    "enable-program-scheduling": ("", True),
    "program-scheduling-config-json": ("{}", "{}"),
    "enable-igw": ("", True),
    "mini-lb": ("", True),
    "backend": ("openai", "openai"),
    "history-backend": ("none", "none"),
    "balance-abs-threshold": ("32", 32),
    "balance-rel-threshold": ("1.1", 1.1),
    "eviction-interval-secs": ("30", 30),
    "max-tree-size": ("10000", 10000),
    "decision-headers": ("", True),
    "sse-error-event": ("", True),
    "trust-forwarded": ("", True),  # on anyway; --no-… is the one that changes something
    "session-header-aliases": ("", True),
    "hash-key-fallback": ("body", "body"),  # the other name is not implemented yet
    "tokenize": ("worker", "worker"),
    "tokenize-timeout-ms": ("250", 250),
    "load-poll-interval-secs": ("5", 5),
    "drain-timeout-secs": ("60", 60),
    "record-log": ("/var/log/traffic", "/var/log/traffic"),
    "record-log-salt-file": ("/etc/router/salt", "/etc/router/salt"),
}

# Flags that make no sense alone, with what they need.
COMPANIONS = {
    "tls-cert-path": "--tls-key-path key.pem",
    "tls-key-path": "--tls-cert-path cert.pem",
    "tls-client-ca-file": "--tls-cert-path cert.pem --tls-key-path key.pem",
    "worker-cert-path": "--worker-key-path router.key",
    "worker-key-path": "--worker-cert-path router.pem",
    "record-log-salt-file": "--record-log traffic.jsonl",
}

BY_SPELLING = {flag.spelling[2:]: flag for flag in FLAGS.values() if flag.on_command_line}
NOT_BUILT = {spelling: flag for spelling, flag in BY_SPELLING.items() if flag.not_built}


def parsed(line: str) -> RouterArgs:
    return parse_router_args(line.split())


def errors_of(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        parse_router_args(line.split())
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_every_flag_of_the_reference_is_known_and_has_its_default() -> None:
    args = parsed("")
    ours = {spelling: getattr(args, flag.field) for spelling, flag in BY_SPELLING.items()}
    expected = REFERENCE_DEFAULTS | {"policy": "auto"}
    assert {name: ours.get(name, "unknown") for name in REFERENCE_DEFAULTS} == expected


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


def test_the_dataclass_has_the_reference_s_field_names_and_defaults() -> None:
    renamed = {
        "prefill": "prefill_urls",
        "decode": "decode_urls",
        "wasm-middleware-route": "wasm_middleware_routes",
    }
    expected = {renamed.get(k, k.replace("-", "_")): v for k, v in REFERENCE_DEFAULTS.items()}
    expected |= REFERENCE_CLASS_DEFAULTS | {"bootstrap_port_annotation": "vllm.ai/bootstrap-port"}
    expected["policy"] = "auto"
    args = RouterArgs()
    assert {name: getattr(args, name, "missing") for name in expected} == expected


def test_the_first_three_fields_can_be_given_in_order_as_in_the_reference() -> None:
    args = RouterArgs(["http://a:1"], "0.0.0.0", 80)
    assert (args.worker_urls, args.host, args.port) == (["http://a:1"], "0.0.0.0", 80)


@pytest.mark.parametrize("spelling", sorted(BY_SPELLING))
def test_every_flag_is_read_in_both_spellings(spelling: str) -> None:
    text, value = OTHER_VALUES[spelling]
    for name in (spelling, spelling.replace("-", "_")):
        assert getattr(parsed(f"--{name} {text}"), BY_SPELLING[spelling].field) == value


@pytest.mark.parametrize("spelling", sorted(s for s, f in BY_SPELLING.items() if f.kind.nargs != 0))
def test_a_value_may_follow_an_equals_sign(spelling: str) -> None:
    text, value = OTHER_VALUES[spelling]
    if " " not in text and text:
        assert getattr(parsed(f"--{spelling}={text}"), BY_SPELLING[spelling].field) == value


def test_a_value_may_be_two_dashes() -> None:
    # argparse before Python 3.13 drops them, which was an IndexError.
    assert parse_router_args(["--api-key=--"]).api_key == "--"


@pytest.mark.parametrize(("written", "ordinary"), OTHER_SPELLINGS.items())
def test_other_spellings_mean_the_same(written: str, ordinary: str) -> None:
    assert parsed(written) == parsed(ordinary)


def test_settings_of_two_parsers_do_not_share_their_lists() -> None:
    parsed("").worker_urls.append("http://a:1")
    RouterArgs().otel_excluded_paths.clear()
    assert parsed("").worker_urls == []
    assert len(RouterArgs().otel_excluded_paths) == 4


def test_worker_urls_accumulate_over_blanks_commas_and_repetition() -> None:
    line = "--worker-urls http://a:1,http://b:1 http://c:1 --worker-urls=http://d:1, --worker_urls http://e:1"
    assert parsed(line).worker_urls == [f"http://{host}:1" for host in "abcde"]


def test_prefill_rows_accumulate_and_read_ports_as_the_reference_does() -> None:
    args = parsed(
        "--prefill http://a:1 8998 --prefill http://b:1 NONE --prefill http://c:1 --decode http://d:1"
    )
    assert args.prefill_urls == [("http://a:1", 8998), ("http://b:1", None), ("http://c:1", None)]
    assert args.decode_urls == ["http://d:1"]


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1"])
def test_a_bad_bootstrap_port_is_named(port: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid bootstrap port '.*' of prefill worker http://a"):
        RouterArgs._parse_prefill_urls([["http://a", port]])


def test_a_repeated_scalar_keeps_the_last() -> None:
    assert parsed("--port 1 --port 2").port == 2


def test_a_switch_can_be_denied_again() -> None:
    assert parsed("--preserve-host --no-preserve-host").preserve_host is False
    assert parsed("--no-trust-forwarded").trust_forwarded is False
    assert parsed("--no_session_header_aliases").session_header_aliases is False


def test_a_prefill_worker_without_a_port_is_quoted_back_as_it_was_given() -> None:
    with pytest.raises(ValueError, match=r"^--prefill http://a:8000 is not implemented in"):
        parsed("--prefill http://a:8000")._validate_router_args()


@pytest.mark.parametrize("spelling", sorted(NOT_BUILT))
def test_a_flag_that_is_not_built_is_accepted_at_its_default_only(spelling: str) -> None:
    flag = NOT_BUILT[spelling]
    RouterArgs(**{flag.field: flag.default})._validate_router_args()

    args = parsed(f"--{spelling} {OTHER_VALUES[spelling][0]}")
    with pytest.raises(ValueError, match="is not implemented in") as refusal:
        args._validate_router_args()
    sentence = str(refusal.value)
    assert sentence.startswith(f"--{spelling}")
    assert f"not implemented in vllm-router {__version__} yet ({flag.not_built.function})" in sentence
    assert flag.not_built.today in sentence
    assert "; remove it" in sentence


def test_a_field_without_a_flag_is_refused_as_well() -> None:
    with pytest.raises(ValueError, match="is not implemented in"):
        RouterArgs(bootstrap_port_annotation="mine")._validate_router_args()


def test_a_value_that_asks_for_what_happens_anyway_is_accepted() -> None:
    parsed("--retry-max-retries 1 --disable-retries --disable-circuit-breaker")._validate_router_args()


def test_every_flag_without_effect_says_why() -> None:
    silent = [f.spelling for f in FLAGS.values() if not f.not_built and not f.scope and len(f.no_effect) < 20]
    assert silent == []


@pytest.mark.parametrize("spelling", sorted(BY_SPELLING.keys() - NOT_BUILT.keys()))
def test_every_other_flag_is_accepted_away_from_its_default(spelling: str) -> None:
    line = f"--{spelling} {OTHER_VALUES[spelling][0]} {COMPANIONS.get(spelling, '')}"
    parsed(line)._validate_router_args()


@pytest.mark.parametrize(
    "name",
    ["kv_overlap", "kv"],
)
def test_a_policy_that_is_not_built_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--policy {name} is not implemented in vllm-router {__version__} yet;" in errors_of(
        f"--policy {name}", capsys
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--polcy random", "--polcy is not a flag of vllm-router; did you mean --policy?"),
        ("--max-payload 1", "--max-payload is not a flag of vllm-router; did you mean --max-payload-size?"),
        ("--health_check_timeout=1", "did you mean --health-check-timeout-secs?"),
        ("--zzz", "--zzz is not a flag of vllm-router; see vllm-router --help"),
        ("http://a:1", "http://a:1 is not a flag; pass worker URLs after --worker-urls"),
        (
            "--policy consistant_hash",
            "must be one of random, round_robin, least_load, power_of_two, consistent_hash",
        ),
        ("--policy consistant_hash", "did you mean consistent_hash?"),
        ("--policy smetric", "smetric itself is not offered, and its nearest here is auto"),
        (
            "--port 70000",
            "port is 70000; it is the HTTP port to listen on and must be a whole number between 0 and",
        ),
        ("--port 1_0", "port is 1_0; it is the HTTP port to listen on and must be a whole number"),
        ("--port -1", "port is -1; "),
        (
            "--virtual-nodes 0",
            "must be a whole number between 1 and 65536 (default 160, for prefix_aware and prefix_hash 150)",
        ),
        ("--hash-load-factor 0.5", "must be 0 (off) or a number between 1.0 and 10.0 (default 0)"),
        ("--hash-load-factor nan", "hash_load_factor is nan; "),
        ("--connect-timeout-secs 0", "must be a number of seconds between 0.001 and 31536000 (default 5)"),
        (
            "--least-load-metric drain_time",
            "--least-load-metric drain_time is not implemented in vllm-router",
        ),
        (
            "--hash-key-fallback conversation",
            "--hash-key-fallback conversation is not implemented in vllm-router",
        ),
        ("--worker-urls a:8000", "must be URLs like http://host:8000, and 'a:8000' is not one"),
        ("--worker-urls http://a:99999", "'http://a:99999' is not one"),
        ("--worker-urls http://", "'http://' is not one"),
        ("--worker-urls grpc://a", "workers are reached by HTTP: use http://a or https://a"),
        ("--worker-urls grpc://a:1", "workers are reached by HTTP: use http://a:1 or https://a:1"),
        ("--worker-urls ray://a", "a server connects to its workers, and names (ray://, name://) are"),
        ("--mode pdd", "--mode is pdd; it must be one of regular, pd; did you mean pd?"),
        ("--prefill http://a x", "Invalid bootstrap port 'x' of prefill worker http://a"),
        ("--prefill http://a 1 2", "--prefill takes one URL and one bootstrap port, not http://a 1 2"),
        ("--host", "argument --host: expected one argument"),
        ("--config /no/such/file", "--config /no/such/file cannot be read: No such file or directory"),
    ],
)
def test_mistakes_end_with_a_sentence_and_status_2(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = errors_of(line, capsys)
    assert sentence in said
    assert said.startswith("vllm-router: error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", sorted(KNOWN_ELSEWHERE))
def test_flags_of_forks_and_proposals_are_known_by_name(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dashed = "--" + name.replace("_", "-")
    assert f"error: {dashed} {KNOWN_ELSEWHERE[name]}" in errors_of(f"{dashed} 1", capsys)


def test_abbreviations_are_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean --prometheus-port?" in errors_of("--prometheus-por 1", capsys)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"port": "30000"}, "port is 30000; it is the HTTP port to listen on and must be a whole number"),
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


def test_numpy_like_numbers_are_numbers() -> None:
    np = pytest.importorskip("numpy")
    args = RouterArgs(port=np.int64(8080), connect_timeout_secs=np.float64(0.5))
    args._validate_router_args()
    assert args.server_options()["port"] == 8080


# Foreign parsers


def test_a_foreign_parser_takes_the_flags_with_a_prefix() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy")  # the trainer's own
    parser.add_argument("--seed", type=int, default=1)
    RouterArgs.add_cli_args(parser, use_router_prefix=True, exclude_host_port=True)
    namespace = parser.parse_args(
        [
            "--policy",
            "ppo",
            "--router-policy",
            "round_robin",
            "--worker-urls",
            "http://a:1",
            "--router-prefill",
            "http://p",
            "1",
            "--router_max_payload_size",
            "7",
            "--router-data-parallel-size",
            "2",
        ]
    )
    args = RouterArgs.from_cli_args(namespace, use_router_prefix=True)
    assert namespace.policy == "ppo"
    assert namespace.router_policy == "round_robin"
    assert (args.policy, args.worker_urls, args.max_payload_size) == ("round_robin", ["http://a:1"], 7)
    assert args.intra_node_data_parallel_size == 2
    assert args.prefill_urls == [("http://p", 1)]
    assert args.seed is None
    assert (args.host, args.port) == ("127.0.0.1", 30000)


def test_host_and_port_are_never_prefixed() -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    args = RouterArgs.from_cli_args(parser.parse_args(["--host", "h", "--port", "1"]), use_router_prefix=True)
    assert (args.host, args.port) == ("h", 1)


def test_an_empty_namespace_gives_the_class_s_defaults() -> None:
    assert RouterArgs.from_cli_args(argparse.Namespace()) == RouterArgs()


def test_a_foreign_parser_prints_its_help() -> None:
    parser = argparse.ArgumentParser(prog="train")
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    text = parser.format_help()
    assert "--router-policy NAME" in text
    assert "--router-enable-trace" not in text


# YAML


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
        ("kv-model: x", "f.yaml: kv-model belongs to routing by KV events"),
        ("zzzzz: 1", "f.yaml: zzzzz is not a known setting; docs/reference/cli.md lists them all"),
        ("port: '1'", "f.yaml: port is 1; it is the HTTP port to listen on and must be a whole number"),
        ("port: null", "f.yaml: port is unset; "),
        ("port: yes", "f.yaml: port is true; "),
        ("port: 1\nport: 2", "f.yaml: port appears twice; keep one of them"),
        ("worker_urls: []\nworker-urls: []", "f.yaml: worker-urls sets worker_urls a second time"),
        ("worker_urls: [grpc://a]", "f.yaml: --worker-urls grpc://a is not implemented in vllm-router"),
        ("selector: 7", "f.yaml: selector is 7; write it as {app: vllm}"),
        ("prefill: 7", "f.yaml: prefill is 7; write it as [[http://host:8000, 8998]"),
        ("- port", "f.yaml must be a mapping of names to values"),
        ("port: [", "f.yaml is not YAML: "),
        (
            "policy: kv_overlap",
            f"f.yaml: --policy kv_overlap is not implemented in vllm-router {__version__} yet",
        ),
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
        ("prefix_routing: {anthropic_cache_control_injection: true}", "is not implemented in vllm-router"),
    ],
)
def test_mistakes_in_the_section_are_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        RouterArgs.from_yaml(text, "f.yaml")


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
        ("prefix_aware", {}, 0),
        ("prefix_aware", {"prefix_load_floor": 8}, 8),
    ):
        assert check_policy_options({"policy": policy, **given})["prefix_load_floor"] == expected


# Options of Router


def test_policy_options_are_filled_with_defaults() -> None:
    assert check_policy_options({}) == {
        "intra_node_data_parallel_size": 1,
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
        "hash_key_fallback": "body",
        "consistent_hash_compat": False,
        "cache_threshold": 0.3,
        "block_size": 16,
        "max_blocks_per_worker": 100_000,
        "load_factor": 1.25,
        "load_bound": "room",
        "max_prefix_length": 1024,
        "load_factor_epsilon": 0.25,
        "prefix_load_floor": 0,
        "session_ttl_secs": 7200,
        "max_sessions": 262_144,
        "prefix_token_count": 256,
        "prefix_hash_load_factor": 1.25,
        "prefix_hash_balance_abs_threshold": 10,
        "routing_text_limit": 4_194_304,
        "balance_abs_threshold": 64,
        "balance_rel_threshold": 1.5,
        "balance_gate": "worker",
        "spread_new_conversations": True,
        "auto_objective": "balanced",
        "miss_choice": "least_load",
        "eviction_policy": "lru",
        "eviction_interval_secs": 120,
        "max_tree_size": 67_108_864,
        "tokenize": "never",
        "max_worker_requests": 0,
        "ticket_lease_secs": 0,
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


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"virtual_node": 1}, TypeError, "virtual_node is not a known setting; did you mean virtual_nodes?"),
        ({"port": 1}, TypeError, "port is not an option of Router but of the server"),
        ({"kv_model": 1}, TypeError, "kv_model belongs to routing by KV events"),
        ({"data_parallel_size": 1, "intra_node_data_parallel_size": 1}, TypeError, "a second time"),
        (
            {"virtual_nodes": 0},
            ValueError,
            "virtual_nodes is 0; it is the number of points on the hash ring per worker",
        ),
        ({"cache_threshold": 1.5}, ValueError, "cache_threshold is 1.5; "),
        ({"policy": "kv_overlap"}, ValueError, "--policy kv_overlap is not implemented in vllm-router"),
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
    )
    assert said.warnings() == [
        "hash_failover has no effect on the policy power_of_two; it belongs to consistent_hash",
        "--dp-aware has no effect by itself; --intra-node-data-parallel-size sets the number of "
        "ranks per URL",
        "--model-path has no effect: it named a tokenizer for gRPC workers; HTTP workers need none",
        "power_of_two has nothing to choose between while there is only one worker",
    ]
    assert "requests get 503 until POST /add_worker" in RouterArgs().warnings()[0]


# What the core takes


def test_router_options_are_the_fleet_and_the_policy_options() -> None:
    args = RouterArgs(worker_urls=["http://a:1"], policy="round-robin", seed=7)
    assert args.router_options() == {
        "worker_urls": ["http://a:1"],
        **check_policy_options({"policy": "round_robin", "seed": 7}),
    }


def test_server_options_are_the_server_s_fields_with_nothing_left_open() -> None:
    options = parsed("--log-level WARNING --request-id-headers X-Trace").server_options()
    assert set(options) == {name for name, flag in FLAGS.items() if flag.scope == "server"}
    assert options["threads"] == min(4, available_cpus())
    assert options["log_level"] == "warn"
    assert options["request_id_headers"] == ["x-trace"]
    assert (options["prometheus_host"], options["prometheus_port"]) == ("127.0.0.1", 29000)
    defaults = RouterArgs().server_options()
    assert defaults["request_id_headers"] == ["x-request-id", "x-correlation-id", "x-trace-id", "request-id"]
    assert defaults["log_level"] == "info"


def test_metrics_need_both_host_and_port_as_in_the_reference() -> None:
    options = RouterArgs(prometheus_port=9000).server_options()
    assert (options["prometheus_host"], options["prometheus_port"]) == (None, None)


def cgroup_tree(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_cpus_are_bounded_by_the_quotas_of_every_group_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(64)))
    files = {"proc__self__cgroup": "0::/pod/box\n", "sys__fs__cgroup__pod__box__cpu.max": "max 100000\n"}
    assert available_cpus(cgroup_tree(tmp_path, **files)) == 64
    assert available_cpus(cgroup_tree(tmp_path, **{"sys__fs__cgroup__pod__cpu.max": "250000 100000\n"})) == 3
    assert available_cpus(cgroup_tree(tmp_path, **{"sys__fs__cgroup__cpu.max": "50000 100000\n"})) == 1


def test_cpus_are_bounded_by_a_version_1_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(64)))
    unlimited = {
        "sys__fs__cgroup__cpu__cpu.cfs_quota_us": "-1",
        "sys__fs__cgroup__cpu__cpu.cfs_period_us": "100000",
    }
    assert available_cpus(cgroup_tree(tmp_path, **unlimited)) == 64
    assert available_cpus(cgroup_tree(tmp_path, **{"sys__fs__cgroup__cpu__cpu.cfs_quota_us": "200000"})) == 2


# The core has names of its own, for those who come without this module


def test_policies_have_the_core_s_names() -> None:
    policy, fallback = FLAGS["policy"].kind, FLAGS["fallback_policy"].kind
    assert list(policy.names) == testing.policy_names()
    assert sorted(fallback.names) == sorted(testing.fallback_policy_names())
    for alias, name in policy.aliases.items():
        if name in policy.names:
            assert testing.canonical_policy_name(alias) == name


def test_the_server_takes_the_options_that_are_made_for_it() -> None:
    logging = {"log_level", "log_dir", "log_format"}  # configure_log() takes these
    assert set(RouterArgs().server_options()) - logging <= set(Server.option_names)


def test_policies_that_are_not_built_or_not_offered_are_so_in_the_core() -> None:
    policy = FLAGS["policy"].kind
    aliases = [alias for alias, name in policy.aliases.items() if name in policy.later]
    for name in [*policy.later, *policy.foreign, *aliases]:
        with pytest.raises(ValueError, match=r"not implemented yet|not offered"):
            testing.canonical_policy_name(name)


@pytest.mark.parametrize(
    "url",
    [
        "http://a",
        "HTTP://a:8000",
        "http://a:8000/",
        "http://a:8000/v1/models@7",
        "http://10.0.0.1:65535@0",
        "http://[::1]:8000@2",
        "http://a:1@2/",
        "http://under_score.svc.cluster.local:80/p",
        "http://h/a@b",
    ],
)
def test_a_url_that_the_core_takes_is_taken_here(url: str) -> None:
    testing.parse_worker_url(url)
    RouterArgs(worker_urls=[url])._validate_router_args()


@pytest.mark.parametrize("url", ["a:1", "ftp://a", "http://", "http://a:0", "http://a:65536", "http://a b"])
def test_a_url_that_is_refused_here_is_refused_by_the_core(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(url)):
        testing.parse_worker_url(url)
    with pytest.raises(Unfit) as refused:
        FLAGS["worker_urls"].kind.each(url)
    assert refused.value.word == url


# The module itself


def test_settings_are_a_plain_dataclass_that_frameworks_may_change() -> None:
    args = RouterArgs()
    args.port = 8080
    assert dataclasses.replace(args, policy="random").port == 8080


def test_it_is_imported_without_the_extension_and_without_packages() -> None:
    code = (
        "import sys, vllm_router.router_args, vllm_router.launch_router as l;"
        "l.parse_router_args(['--policy', 'random']);"
        "bad = [m for m in ('vllm_router._core', 'numpy', 'yaml', 'rich') if m in sys.modules];"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_version_is_the_project_s() -> None:
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert version[1] == __version__


@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "HTTPS://chat.example", "**"])
def test_an_origin_has_the_form_that_browsers_send(origin: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = errors_of(f"--cors-allowed-origins {origin}", capsys)
    assert "must be origins like https://chat.example" in error
    assert repr(origin) in error


def test_a_text_with_a_nul_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"record_log.* must be a text without NUL characters"):
        RouterArgs(record_log="log\0", record_log_salt_file="salt")._validate_router_args()


@pytest.mark.parametrize("path", ["own_rpc", "/", "/*", "/a?b", "/a*b", "/%61"])
def test_a_path_of_all_workers_is_one(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = errors_of(f"--fan-out-path {path}", capsys)
    assert "must be paths like /own_rpc" in error
    assert repr(path) in error


@pytest.mark.parametrize("line", ["--record-log-salt-file s", "--record-log s --record-log-salt-file s"])
def test_a_secret_belongs_to_a_record_log_and_into_a_file_of_its_own(line: str) -> None:
    with pytest.raises(ValueError, match="the salt belongs to a record log, and must be in a separate file"):
        parsed(line)._validate_router_args()


def test_a_record_log_reads_the_block_size_under_every_policy() -> None:
    line = "--worker-urls http://a:1 --policy round_robin --block-size 32"
    assert parsed(line).warnings() != []
    assert parsed(f"{line} --record-log traffic.jsonl").warnings() == []


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
        ("--tls-client-ca-file a", "clients connect without TLS; set tls_cert_path and tls_key_path, too"),
    ],
)
def test_what_goes_together_in_tls_is_asked_for(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parsed(line)._validate_router_args()


def test_unchecked_certificates_are_warned_of() -> None:
    (warning,) = parsed("--worker-urls https://a:1 --worker-tls-insecure").warnings()
    assert "worker certificates are not verified, so connections can be intercepted" in warning


def test_memory_is_that_of_the_machine_or_of_the_narrowest_group(tmp_path: Path) -> None:
    gib = 2**30
    files = {
        "proc__meminfo": f"MemFree: 1 kB\nMemTotal: {64 * 2**20} kB\n",
        "proc__self__cgroup": "0::/pod/box\n",
        "sys__fs__cgroup__pod__box__memory.max": "max\n",
    }
    assert available_memory(cgroup_tree(tmp_path, **files)) == 64 * gib
    group = {"sys__fs__cgroup__pod__memory.max": f"{8 * gib}\n"}
    assert available_memory(cgroup_tree(tmp_path, **group)) == 8 * gib
    version_1 = {"sys__fs__cgroup__memory__memory.limit_in_bytes": f"{4 * gib}\n"}
    assert available_memory(cgroup_tree(tmp_path, **version_1)) == 4 * gib
    assert available_memory(str(tmp_path / "nowhere")) == 0


def test_bodies_may_have_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for gib, mib in ((64, 16 * 1024), (0.5, 256)):
        monkeypatch.setattr("vllm_router.settings.args.available_memory", lambda gib=gib: int(gib * 2**30))
        assert RouterArgs().server_options()["body_memory_mb"] == mib
    assert RouterArgs(body_memory_mb=64).server_options()["body_memory_mb"] == 64


def test_the_salt_is_not_the_log_however_it_is_spelt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for salt in ("./log", "link", str(tmp_path / "log")):
        with pytest.raises(ValueError, match="record_log is the same; the salt belongs to a record log"):
            RouterArgs(record_log="log", record_log_salt_file=salt)._validate_router_args()


FORMER = "spread_starts"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: parsed("--no-spread-starts"), "--no-spread-starts is .* use --no-spread-new-conversations"),
        (lambda: parsed("--no_spread_starts"), "--no_spread_starts is .* use --no-spread-new-conversations"),
        (lambda: RouterArgs(spread_starts=False), "spread_starts is .* use spread_new_conversations"),  # type: ignore[call-arg]
        (lambda: RouterArgs.from_dict({FORMER: False}), "spread_starts is .* use spread_new_conversations"),
        (lambda: RouterArgs.from_yaml("spread-starts: false"), "spread-starts is .* use spread_new_conv"),
    ],
    ids=["line", "line with _", "python", "dict", "yaml"],
)
def test_a_former_name_is_accepted_and_the_log_says_so_once(
    made: Callable[[], RouterArgs], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    args = made()
    assert args.spread_new_conversations is False
    assert args.policy == "cache_aware"  # a setting of its own chooses it, by either name
    (said,) = [line for line in caplog.messages if "deprecated" in line]
    assert re.match(message, said)


def test_a_former_name_is_an_option_of_the_library_and_an_attribute(caplog: pytest.LogCaptureFixture) -> None:
    options = check_policy_options({"policy": "cache_aware", FORMER: False})
    assert options["spread_new_conversations"] is False
    assert FORMER not in options
    args = RouterArgs(spread_new_conversations=False)
    assert getattr(args, FORMER) is False
    setattr(args, FORMER, True)
    assert args.spread_new_conversations is True
    assert [line.split(";")[0] for line in caplog.messages if "deprecated" in line] == [
        "spread_starts is deprecated and will be removed in the next minor release"
    ]


def test_a_former_name_beside_the_present_one_is_an_error() -> None:
    with pytest.raises(TypeError, match="spread_starts sets spread_new_conversations a second time"):
        RouterArgs(spread_new_conversations=True, spread_starts=False)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="spread_starts sets spread_new_conversations a second time"):
        RouterArgs.from_yaml("{spread_new_conversations: true, spread_starts: false}")


def test_a_former_name_is_not_in_the_help() -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser)
    assert "--spread-new-conversations" in parser.format_help()
    assert "spread-starts" not in parser.format_help()


def test_a_former_flag_has_the_prefix_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser, use_router_prefix=True)
    args = RouterArgs.from_cli_args(parser.parse_args(["--router-spread-starts"]), use_router_prefix=True)
    assert args.spread_new_conversations is True
    assert "use --router-spread-new-conversations" in caplog.text
