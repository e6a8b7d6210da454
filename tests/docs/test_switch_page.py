"""docs/how-to/switch_from_vllm_project_router.md against the flags: each flag of that router in one place."""

import re
from pathlib import Path

import pytest

from vllm_router._version import __version__
from vllm_router.launch_router import parse_router_args
from vllm_router.settings.flag import Flag

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "switch_from_vllm_project_router.md").read_text()

# Defaults of vllm-project/router, of the flags that the page says carry over; None is unset.
REFERENCE = {
    "--worker-urls": [],
    "--host": "127.0.0.1",
    "--port": 30000,
    "--max-payload-size": 536870912,
    "--intra-node-data-parallel-size": 1,
    "--api-key": None,
    "--health-failure-threshold": 3,
    "--health-success-threshold": 2,
    "--health-check-timeout-secs": 5,
    "--health-check-endpoint": "/health",
    "--log-level": "info",
    "--log-dir": None,
    "--prometheus-port": 29000,
    "--prometheus-host": "127.0.0.1",
    "--request-id-headers": None,
    "--cache-threshold": 0.3,
    "--service-discovery": False,
    "--enable-trace": False,
    "--otel-sampling-ratio": 1.0,
    "--otel-excluded-paths": ["/health", "/health_generate", "/liveness", "/readiness"],
}
# Those that it has and we give another meaning or no effect; the rest of it must be among what is refused.
DIFFERENT = {
    "--selector",
    "--prefill-selector",
    "--decode-selector",
    "--service-discovery-port",
    "--service-discovery-namespace",
    "--health-check-interval-secs",
    "--max-concurrent-requests",
    "--queue-size",
    "--queue-timeout-secs",
    "--rate-limit-tokens-per-second",
    "--policy",
    "--balance-abs-threshold",
    "--otlp-traces-endpoint",
    "--balance-rel-threshold",
    "--max-tree-size",
    "--eviction-interval-secs",
    "--worker-startup-timeout-secs",
    "--worker-startup-check-interval",
    "--request-timeout-secs",
}


def section(heading: str) -> str:
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def flags_in(text: str) -> list[str]:
    return re.findall(r"`(--[a-z0-9-]+)`", text)


def _dashed(flag: Flag) -> set[str]:
    """Every spelling of a flag, with dashes."""
    return {f"--{name.replace('_', '-')}" for name in flag.spellings}


def test_what_carries_over_has_the_default_that_it_has_there() -> None:
    text = section("Flags that carry over").split("Both spellings")[0]
    assert flags_in(text) == list(REFERENCE)
    args = vars(parse_router_args([]))
    for name, default in REFERENCE.items():
        assert args[name[2:].replace("-", "_")] == default, name


def test_what_differs_is_in_the_table() -> None:
    rows = [row for row in section("Flags that carry over").splitlines() if row.startswith("| `--")]
    assert {name for row in rows for name in flags_in(row.split(" | ")[0])} == DIFFERENT


def test_the_sentence_is_the_one_that_is_printed() -> None:
    quoted = re.search(r"^    (--kv-aware-session-affinity-ttl-secs.*)$", PAGE, re.MULTILINE)
    assert quoted
    with pytest.raises(ValueError, match="KV events of prefill") as refused:
        parse_router_args(["--kv-aware-session-affinity-ttl-secs", "60"])._validate_router_args()
    assert quoted[1] == str(refused.value)
    assert __version__ in quoted[1]
