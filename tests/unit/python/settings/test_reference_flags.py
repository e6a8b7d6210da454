"""vllm_router.settings.reference_flags: names and defaults against those of the reference router."""

from typing import Any

import pytest

from tests.rows import for_each_row
from tests.unit.python.settings.values import BY_SPELLING, NOT_BUILT, OTHER_VALUES, parsed
from vllm_router._version import __version__
from vllm_router.router_args import FLAGS, RouterArgs

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
    "--pd-disaggregation": "--vllm-pd-disaggregation --kv-connector auto",
    "--mode pd": "--vllm-pd-disaggregation",
    "--mode regular": "",
    "--prefill-workers http://p1,http://p2": "--prefill http://p1 --prefill http://p2 none",
    "--decode-workers http://d1:8000 http://d2:8000": "--decode http://d1:8000 --decode http://d2:8000",
    "--policy round-robin": "--policy round_robin",
    "--policy least_request": "--policy least_load",
    "--policy consistent-hashing": "--policy consistent_hash",
}


def test_every_flag_of_the_reference_is_known_and_has_its_default() -> None:
    args = parsed("")
    ours = {spelling: getattr(args, flag.field) for spelling, flag in BY_SPELLING.items()}
    expected = REFERENCE_DEFAULTS | {"policy": "auto"}
    assert {name: ours.get(name, "unknown") for name in REFERENCE_DEFAULTS} == expected


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


@for_each_row(("written", "ordinary"), OTHER_SPELLINGS.items())
def test_other_spellings_mean_the_same(written: str, ordinary: str) -> None:
    assert parsed(written) == parsed(ordinary)


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


def test_every_flag_without_effect_says_why() -> None:
    silent = [f.spelling for f in FLAGS.values() if not f.not_built and not f.scope and len(f.no_effect) < 20]
    assert silent == []
