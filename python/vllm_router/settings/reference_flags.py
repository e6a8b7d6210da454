"""The reference router: the names of its flags, and those of them that do nothing here, or not yet.

    --wasm-middleware m.wasm    rejected: WASM middleware is not implemented, and what happens today
    --history-backend memory    accepted, without effect

The reference is vllm-project/router. A flag whose function is not implemented is accepted at its default; any
other value is rejected with a sentence that says so, because a router that silently does less than it was
told is worse than one that does not start.
"""

from __future__ import annotations

# ruff: noqa: RUF009, since option() is how this class makes its fields
import dataclasses
from functools import partial

from vllm_router.settings.flag import NotBuilt, option
from vllm_router.settings.kinds import Choice, Number, Switch, Text, Words

# The flags of 0.1.17 in Python: a framework that uses it has room for them in its parser.
REFERENCE_FLAGS = frozenset(
    "--" + name
    for name in [
        "api-key",
        "balance-abs-threshold",
        "balance-rel-threshold",
        "cache-threshold",
        "cb-failure-threshold",
        "cb-success-threshold",
        "cb-timeout-duration-secs",
        "cb-window-duration-secs",
        "cors-allowed-origins",
        "decode",
        "decode-policy",
        "decode-selector",
        "disable-circuit-breaker",
        "disable-retries",
        "enable-igw",
        "enable-program-scheduling",
        "eviction-interval-secs",
        "health-check-endpoint",
        "health-check-interval-secs",
        "health-check-timeout-secs",
        "health-failure-threshold",
        "health-success-threshold",
        "host",
        "intra-node-data-parallel-size",
        "kv-aware-session-affinity-ttl-secs",
        "kv-connector",
        "kv-event-block-size",
        "kv-event-model",
        "kv-event-replay-source",
        "kv-event-source",
        "kv-penalty-disk",
        "kv-penalty-external",
        "kv-penalty-host",
        "log-dir",
        "log-level",
        "max-concurrent-requests",
        "max-payload-size",
        "max-tree-size",
        "mini-lb",
        "pd-kv-events",
        "policy",
        "port",
        "prefill",
        "prefill-policy",
        "prefill-selector",
        "program-scheduling-config-json",
        "prometheus-host",
        "prometheus-port",
        "queue-size",
        "queue-timeout-secs",
        "rate-limit-tokens-per-second",
        "request-id-headers",
        "request-timeout-secs",
        "retry-backoff-multiplier",
        "retry-initial-backoff-ms",
        "retry-jitter-factor",
        "retry-max-backoff-ms",
        "retry-max-retries",
        "router-temperature",
        "selector",
        "service-discovery",
        "service-discovery-namespace",
        "service-discovery-port",
        "vllm-discovery-address",
        "vllm-pd-disaggregation",
        "wasm-middleware",
        "wasm-middleware-route",
        "wasm-middleware-sha256",
        "worker-startup-check-interval",
        "worker-startup-timeout-secs",
        "worker-urls",
    ]
)

# What is not implemented, by group: its function, and what happens today.
_PD_GROUP = "Prefill/decode"
_OTHER = "Other modes"
_MIDDLEWARE = "Middleware"
_pd = partial(
    option,
    group=_PD_GROUP,
    live="restart",
    not_built=NotBuilt(
        "KV events of prefill and decode workers",
        "--kv-event-source names their events",
    ),
)
_wasm = partial(
    option,
    group=_MIDDLEWARE,
    live="restart",
    not_built=NotBuilt("WASM middleware", "requests pass through unchanged"),
)
_PROFILE = NotBuilt("profiling around requests", "POST /start_profile and /stop_profile reach all workers")
_IGW = NotBuilt("multi-model gateway mode", "requests go to workers that list their model, without a mode")
_MINI_LB = NotBuilt("the mini load balancer", "the ordinary router is small enough for debugging")
_BACKENDS = NotBuilt("backends other than vllm", "any worker that speaks HTTP is served by the default")


@dataclasses.dataclass(init=False, repr=False, eq=False)
class ReferenceTable:
    """Settings of the reference router that are known and do nothing here, or not yet."""

    dp_aware: bool = option(
        False,
        Switch(),
        "enable data-parallel ranks, as older releases did",
        group="Workers",
        live="request",
        no_effect="--intra-node-data-parallel-size (formerly --data-parallel-size) alone sets the number "
        "of ranks",
    )
    model_path: str | None = option(
        None,
        Text("PATH"),
        "the model's path, known from older releases",
        group="Workers",
        live="request",
        no_effect="it named a tokenizer for gRPC workers; HTTP workers need none",
    )
    tokenizer_path: str | None = option(
        None,
        Text("PATH"),
        "the tokenizer's path, known from older releases",
        group="Workers",
        live="request",
        no_effect="it was for gRPC workers; HTTP workers need none",
    )

    profile: bool = option(
        False,
        Switch(),
        "profile workers around requests",
        group=_PD_GROUP,
        live="restart",
        not_built=_PROFILE,
    )

    wasm_middleware: str | None = _wasm(None, Text("PATH"), "the WASM module that processes requests first")
    wasm_middleware_sha256: str | None = _wasm(
        None, Text("HEX"), "the SHA-256 digest of the module of --wasm-middleware"
    )
    wasm_middleware_routes: list[str] = _wasm(
        [],
        Words("PATH", commas=False),
        "the routes that the module of --wasm-middleware processes",
        spelled="wasm_middleware_route",
    )

    kv_penalty_external: float = option(
        0.6,
        Number(high=1, whole=False),
        "kv_aware's credit for blocks in a store that every worker reads",
        group="KV events",
        live="request",
        no_effect="such blocks cost every worker the same, so they favour none",
    )
    kv_event_block_size: int = option(
        16,
        Number(low=1, high=65536),
        "the number of tokens per block of KV events",
        group="KV events",
        live="request",
        no_effect="KV events tell it themselves; --block-size is that of the router's blocks",
    )
    kv_aware_session_affinity_ttl_secs: int | None = _pd(
        None,
        Number(low=1, high=31_536_000),
        "the time for which kv_aware keeps an idle session's worker",
        unset="no affinity",
    )
    pd_kv_events: list[str] = _pd(
        [], Words("URL=ENDPOINT", commas=False), "the prefill workers' endpoints of KV events", urls=True
    )

    enable_igw: bool = option(
        False,
        Switch(),
        "form a separate pool of workers per model",
        group=_OTHER,
        live="restart",
        not_built=_IGW,
    )
    mini_lb: bool = option(
        False,
        Switch(),
        "run a small load balancer for debugging instead",
        group=_OTHER,
        live="restart",
        not_built=_MINI_LB,
    )
    backend: str = option(
        "vllm",
        Choice(("vllm", "trtllm", "openai", "anthropic")),
        "the kind of worker",
        group=_OTHER,
        aliases=("runtime",),
        live="restart",
        not_built=_BACKENDS,
    )
    history_backend: str = option(
        "memory",
        Choice(("memory", "none")),
        "the store of responses of /v1/responses",
        group=_OTHER,
        live="request",
        no_effect="the router stores no responses; /v1/responses reaches a worker as any other path does",
    )
