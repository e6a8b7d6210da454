"""RouterArgs: every flag of the command, key of its YAML file and option of `Router`, defined once.

    RouterArgs.add_cli_args(parser)          the flags, in groups
    RouterArgs.from_cli_args(namespace)      what the command line said
    RouterArgs.from_yaml(text)               the same names in a file
    RouterArgs(policy="round_robin", …)      the same names in Python
    check_policy_options({…})                those of them that `Router(**options)` takes

Names and defaults are those of vllm-project/router, so that scripts and frameworks keep working; the fields
that only we have follow in the same groups. A flag whose function is not implemented yet is known and
accepted at its default; any other value is rejected with a sentence that says so, because a router that
silently does less than it was told is worse than one that does not start. This module needs neither the C++
extension nor any package beyond Python's own, except PyYAML where YAML is read or written.
"""

from __future__ import annotations

# ruff: noqa: RUF009, since option() is how this class makes its fields
import argparse
import contextlib
import dataclasses
import functools
import ipaddress
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from vllm_router._flags import (
    FLAG_SIMILARITY,
    FORMER_GIVEN,
    GIVEN,
    LONGEST_SHOWN_VALUE,
    Alias,
    Choice,
    Flag,
    HeaderText,
    NotBuilt,
    NotYet,
    Number,
    NumberOr,
    Raw,
    RequestPath,
    Seconds,
    Switch,
    Text,
    Unfit,
    Words,
    add_flag,
    did_you_mean,
    flags_of,
    header_name,
    misfit_in_target,
    option,
    quoted,
    show,
)
from vllm_router._foreign_flags import FOREIGN_FLAGS
from vllm_router._secrets import shown_urls
from vllm_router._version import __version__
from vllm_router._yaml import mapping_of_yaml, name_only
from vllm_router.errors import UnusedOptionWarning

logger = logging.getLogger("vllm_router")

_LEFT_OUT = "_router_flags_left_out"  # in a namespace: fields whose flags the parser had for itself

# The flags of vllm-project/router 0.1.17 in Python: a framework that uses it has room for them in its parser.
REFERENCE_FLAGS = frozenset(
    "--" + name
    for name in (
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
    )
)

BUILT_POLICIES = (
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
)
DEFAULT_POLICY = "auto"
_FORMER_DEFAULT_POLICY = "cache_aware"
HASH_POLICIES = ("consistent_hash", "rendezvous_hash")
BLOCK_POLICIES = ("vllm_cache_aware", "auto")
_HOLDER_POLICIES = ("vllm_cache_aware",)
PREFIX_POLICIES = ("prefix_aware",)
SESSION_POLICIES = ("sticky_least_loaded",)
TEXT_POLICIES = ("prefix_hash", "cache_aware")

# Canonical names; docs/reference/policies.md lists them.
_USE_SESSIONS = "for chats use consistent_hash, which keeps a session on one worker, otherwise least_load"
_LATER_POLICIES = dict.fromkeys(
    (
        "kv_overlap",
        "kv_logit",
    ),
    _USE_SESSIONS,
)
_POLICY_ALIASES = {
    "least_loaded": "least_load",
    "least_request": "least_load",
    "consistent_hashing": "consistent_hash",
    "chwbl": "prefix_aware",
    "kv": "kv_logit",
    "manual": "sticky_least_loaded",
}
_NEAREST_KV = "and its nearest here, kv_overlap, is not implemented yet"
_NEAREST_AUTO = "and its nearest here is auto"
_FOREIGN_POLICIES = {
    "passthrough": "since with one worker every policy passes requests through",
    "bucket": "and its nearest here is least_load",
    "ttft_aware": _NEAREST_AUTO,
    "smetric": _NEAREST_AUTO,
    "kv_aware": _NEAREST_KV,
    "precise_cache_aware": _NEAREST_KV,
}


def _policy(**more: Any) -> Choice:
    return Choice(
        BUILT_POLICIES, aliases=_POLICY_ALIASES, later=_LATER_POLICIES, foreign=_FOREIGN_POLICIES, **more
    )


def _worker_url(url: str) -> str:
    """A worker's URL, checked as far as is possible without the C++ parser, which decides."""
    base = re.sub(r"@[0-9]+/*$", "", url)
    scheme, separator, rest = base.partition("://")
    if "@" in re.split(r"[/?#]", rest if separator else base, maxsplit=1)[0]:
        raise Unfit(
            "URLs like http://host:8000, without anything before an '@' that reads as a user name: workers "
            "take no user names or passwords (a data-parallel rank is a number at the end, as in "
            "http://host:8000@2; the key for workers is --api-key)"
        )
    if separator and scheme.lower() in ("grpc", "grpcs", "unix"):
        shown = shown_urls(rest)
        raise NotYet(f"workers are reached by HTTP: use http://{shown} or https://{shown}")
    if separator and scheme.lower() in ("ray", "name"):
        raise Unfit(
            "URLs like http://host:8000: a server connects to its workers, and names (ray://, name://) are "
            "for programs that embed the router and connect to workers themselves",
            url,
        )
    if scheme.lower() not in ("http", "https") or not separator:
        raise Unfit("URLs like http://host:8000", url)
    try:
        parts = urlsplit(base)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or re.search(r"[\x00-\x20\x7f]", url):
        raise Unfit("URLs like http://host:8000, with a port between 1 and 65535", url)
    return url


def _validation_url(url: str) -> str:
    """A URL that is asked about keys; as strict as the C++ parser, whose message would show it."""
    remedy = "write it as https://auth.example/validate"
    match = re.fullmatch(r"(https?)://([^/?]*)([/?].*)?", url, re.IGNORECASE | re.DOTALL)
    if match is None:
        raise Unfit(
            f"URLs such as https://auth.example/validate, with http:// or https:// in front; {remedy}"
        )
    authority = match[2]
    if "@" in authority:
        raise Unfit(
            "URLs without user names and passwords (before an '@'), since the client's own Authorization is "
            f"sent there; {remedy}"
        )
    position = misfit_in_target(url)
    if position is not None:
        raise Unfit(
            "URLs of visible ASCII characters without #, since they stand in a request line, and the "
            f"character at position {position} of one is none of these: remove it or write it "
            "percent-encoded"
        )
    host = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]+))?", authority)
    if host is None or not _is_host(host[1]) or not 1 <= int(host[2] or 80) <= 65535 or len(url) > 2048:
        raise Unfit(
            "URLs of a host and perhaps a port between 1 and 65535 and a path, of 2048 characters at most; "
            f"{remedy}"
        )
    return url


def _is_host(host: str) -> bool:
    """Whether the C++ parser takes it: a name, an IPv4 address, or an IPv6 address in brackets."""
    try:
        if host[0] == "[":
            return bool(ipaddress.IPv6Address(host[1:-1]))
        if re.search(r"(^|\.)[0-9]+$", host):
            return bool(ipaddress.IPv4Address(host))
    except ValueError:
        return False
    return len(host) <= 253 and host[0] != "." and ".." not in host


def _origin(text: str) -> str:
    """An origin as browsers write it, since it is compared letter by letter; or any, as "*"."""
    if text == "*":
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    usable = parts.scheme and parts.netloc and not parts.path and not parts.query and not parts.fragment
    if not usable or text != text.lower() or re.search(r"[\x00-\x20\x7f-\U0010ffff@]", text):
        raise Unfit(
            "origins like https://chat.example or http://localhost:3000, in lower case and without a path, "
            "or *",
            text,
            "is none of these",
        )
    return text


def _fan_out_path(text: str) -> str:
    """A path, or all that begin so; never all there are."""
    name = text.removesuffix("*")
    if not re.fullmatch(r"/[!-~]+", name) or re.search(r"[*?#%]", name):
        raise Unfit(
            "paths like /own_rpc, or /hooks* for all paths with that prefix, without a query, and "
            f"{quoted(text)} is none of these"
        )
    return text


# What is not implemented, by function: its name, and what happens today.
_PD = NotBuilt("prefill/decode disaggregation", "every worker in --worker-urls runs both stages")
_DISCOVERY = NotBuilt("Kubernetes discovery", "workers are named by --worker-urls and POST /add_worker")
_TRACING = NotBuilt("OpenTelemetry tracing", "traceparent and similar headers pass through unchanged")
_WASM = NotBuilt("WASM middleware", "requests pass through unchanged")
_IGW = NotBuilt("multi-model gateway mode", "all workers are one pool that serves the same models")
_PROGRAMS = NotBuilt("program scheduling", "each request is routed on its own")
_KV_AWARE = NotBuilt(
    "routing by KV events", "policies learn from the requests sent to workers and from their responses"
)
_MINI_LB = NotBuilt("the mini load balancer", "the ordinary router is small enough for debugging")
_BACKENDS = NotBuilt("backends other than vllm", "any worker that speaks HTTP is served by the default")
_PROFILE = NotBuilt("profiling around requests", "POST /start_profile and /stop_profile reach all workers")

# Groups, in the order of --help.
_SERVER = "Server"
_WORKERS = "Workers"
_POLICY = "Routing policy"
_TIMEOUTS = "Timeouts"
_LIMITS = "Connections and limits"
_HEALTH = "Health checks"
_SHUTDOWN = "Shutdown"
_LOGS = "Logging and metrics"
_PD_GROUP = "Prefill/decode"
_KUBERNETES = "Kubernetes discovery"
_RESILIENCE = "Retries, breaker, admission"
_SECURITY = "Security"
_TRACES = "Tracing and middleware"
_PROGRAM_GROUP = "Program scheduling"
_KV_GROUP = "KV events"
_OTHER = "Other modes"
_NO_EFFECT = "Accepted from older scripts, without effect"

DEFAULT_REQUEST_ID_HEADERS = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")

# Flags of forks, of unmerged proposals and of other documents: known, so that the answer is better than
# "unknown".
KNOWN_ELSEWHERE: dict[str, str] = {
    "extra_generate_paths": "is not needed: every path goes through the policy; remove it",
    **dict.fromkeys(
        (
            "kv_model",
            "kv_tokenizer_path",
            "kv_hash_algo",
            "kv_block_size",
            "kv_hash_seed",
            "kv_events_topic_filter",
            "kv_events_port",
            "kv_events_endpoint",
        ),
        "belongs to routing by KV events, which is not implemented in vllm-router "
        f"{__version__} yet; remove it",
    ),
    **dict.fromkeys(
        ("shared_cache_type", "shared_cache_multiplier"),
        "belongs to the policy kv_logit, which is not implemented in vllm-router "
        f"{__version__} yet; remove it",
    ),
    "epd_config": "belongs to encode/prefill/decode mode, which is not implemented in vllm-router "
    f"{__version__}; remove it",
    **FOREIGN_FLAGS,
}


def _names_the_nearest(cls: type[RouterArgs]) -> type[RouterArgs]:
    """The class with a constructor whose error about an unknown name says which one it may have meant."""
    make = cls.__init__

    @functools.wraps(make)
    def init(self: RouterArgs, *args: Any, **settings: Any) -> None:
        present = {}
        for name, value in settings.items():
            if name not in FLAGS and name not in FORMER_NAMES and type(self) is cls:
                raise TypeError(f"RouterArgs: {unknown_name(name, list(FLAGS))}")
            present_name = present_name_of(name)
            if present_name in present:
                raise TypeError(f"RouterArgs: {name} sets {present_name} a second time; keep one of them")
            present[present_name] = value
        make(self, *args, **present)

    setattr(cls, "__init__", init)  # noqa: B010, mypy would not have it assigned
    return cls


@_names_the_nearest
@dataclasses.dataclass(repr=False)
class RouterArgs:
    """Settings of one router; see the head of this module.

    Field names and defaults are those of vllm-project/router's class of the same name, and the fields that it
    does not have follow ours of the same group. Three defaults differ from the command's, as they do there:
    `log_level`, `prometheus_port` and `prometheus_host` are None here, so a router made in Python opens no
    metrics listener unless told to. Values are checked when they are used, by `_validate_router_args()`.
    """

    worker_urls: list[str] = option(
        [],
        Words("URL", each=_worker_url),
        "the workers' base URLs, in fleet order",
        urls=True,
        group=_WORKERS,
        scope="routing",
        more="Separated by blanks or commas; may be repeated. http://host:8000@2 is data-parallel rank 2 "
        "of a host. Without any, requests get 503 until POST /add_worker adds one.",
    )

    host: str = option(
        "127.0.0.1", Text("ADDRESS"), "the address to listen on", group=_SERVER, scope="server"
    )
    port: int = option(
        30000,
        Number(0, 65535),
        "the HTTP port to listen on",
        group=_SERVER,
        scope="server",
        more="0 takes any free port and logs it at level info.",
    )
    threads: int = option(
        0,
        Number(0, 1024),
        "the number of proxy threads",
        group=_SERVER,
        scope="server",
        more="0 means min(4, CPUs this process may use). One core carries tens of thousands of requests "
        "per second, and upstream connections are pooled per thread, so more is rarely better.",
    )
    reuse_port: bool = option(
        False,
        Switch(),
        "allow another router process on the same port (SO_REUSEPORT), for restarts without downtime",
        group=_SERVER,
        scope="server",
        more="Start the new process with it, then stop the old one. Without it, the start fails if the "
        "port is in use.",
    )
    api_key: str | None = option(
        None,
        HeaderText("KEY"),
        "the bearer key sent to workers",
        secret=True,
        group=_SERVER,
        scope="server",
        more="Used for requests without an Authorization header of their own, and for health checks.",
    )
    preserve_host: bool = option(
        False,
        Switch(),
        "send workers the client's Host header instead of their own address",
        group=_SERVER,
        scope="server",
    )
    decision_headers: bool = option(
        False,
        Switch(),
        "add x-vllm-router-* headers to responses that explain why their worker was chosen",
        group=_SERVER,
        scope="server",
        more="These headers show the workers' addresses to clients.",
    )
    sse_error_event: bool = option(
        False,
        Switch(),
        "end an event stream that is aborted with one more event that says why",
        group=_SERVER,
        scope="server",
        more='data: {"error": …} without data: [DONE]; clients of OpenAI\'s API raise it as an error.',
    )
    hold_stream_head: str = option(
        "on",
        Choice(("on", "off")),
        "the moment at which the head of an event stream with status 200 is sent to the client",
        group=_SERVER,
        scope="server",
        more="on: with the first byte of its body. Until then the request may be retried at another "
        "worker, --first-byte-timeout-secs applies and the client gets an accurate status, since vLLM "
        "sends that head before it has queued the request. off: at once, for load balancers in front "
        "that close a connection which is silent for as long as a request waits in the engine's queue.",
    )
    trust_forwarded: bool = option(
        True,
        Switch(),
        "keep and extend incoming X-Forwarded-* headers",
        group=_SERVER,
        scope="server",
        more="Turn it off if clients reach the router directly, without a trusted proxy in front of it.",
    )
    request_id_headers: list[str] | None = option(
        None,
        Words("HEADER", each=header_name),
        "the headers that may carry a request ID; the first one present wins",
        group=_SERVER,
        scope="server",
        more=f"Unset means {' '.join(DEFAULT_REQUEST_ID_HEADERS)}.",
    )

    intra_node_data_parallel_size: int = option(
        1,
        Number(1, 4096),
        "the number of data-parallel ranks behind each worker URL",
        group=_WORKERS,
        scope="routing",
        aliases=("data_parallel_size",),
        more="Above 1, each URL becomes URL@0 … URL@N-1, and the rank is sent as X-data-parallel-rank.",
    )
    dp_aware: bool = option(
        False,
        Switch(),
        "enable data-parallel ranks, as older releases did",
        group=_WORKERS,
        no_effect="--intra-node-data-parallel-size (formerly --data-parallel-size) alone sets the number "
        "of ranks",
    )
    worker_startup_timeout_secs: float = option(
        600,
        Seconds(),
        "the time limit for a worker that is added (POST /add_worker, /workers), or for the first one at "
        "the start, to pass its health check",
        group=_WORKERS,
        scope="server",
        more="At the start, the command ends with status 1 if none of --worker-urls has passed by then.",
    )
    worker_startup_check_interval: float = option(
        30,
        Seconds(),
        "the interval between health checks of a worker that is being added, in seconds",
        group=_WORKERS,
        scope="server",
        aliases=("worker_startup_check_interval_secs",),
    )
    load_poll_interval_secs: float | None = option(
        None,
        Seconds("never"),
        "the interval between load polls of each worker",
        group=_WORKERS,
        scope="server",
        more="With load polls, policies see the requests that reach workers through other clients. Unset: "
        "--worker-startup-check-interval with the policy power_of_two, else never.",
    )
    model_path: str | None = option(
        None,
        Text("PATH"),
        "the model's path, known from older releases",
        group=_WORKERS,
        no_effect="it named a tokenizer for gRPC workers; HTTP workers need none",
    )
    tokenizer_path: str | None = option(
        None,
        Text("PATH"),
        "the tokenizer's path, known from older releases",
        group=_WORKERS,
        no_effect="it was for gRPC workers; HTTP workers need none",
    )

    policy: str = option(
        None,
        _policy(),
        "the policy that chooses the worker",
        group=_POLICY,
        scope="routing",
        unset=DEFAULT_POLICY,
        more=f"Unset: {DEFAULT_POLICY}, or {_FORMER_DEFAULT_POLICY} if one of its settings is given that "
        f"{DEFAULT_POLICY} does not read, such as --cache-threshold.",
    )
    seed: int | None = option(
        None,
        Number(0, 2**64 - 1),
        "the seed of all random choices",
        group=_POLICY,
        scope="routing",
        more="With a seed, the same requests in the same order are routed alike. Unset: different in every "
        "run.",
    )
    fallback_policy: str = option(
        "least_load",
        Choice(
            ("least_load", "random", "round_robin", "power_of_two"),
            aliases={"least_loaded": "least_load", "least_request": "least_load"},
        ),
        "the policy for requests that lack the key that --policy needs",
        group=_POLICY,
        scope="routing",
        policies=(*HASH_POLICIES, *PREFIX_POLICIES, *TEXT_POLICIES),
    )
    least_load_metric: str = option(
        "requests",
        Choice(
            ("requests", "tokens"),
            later={"drain_time": "requests is exact without any report from engines; use it or tokens"},
        ),
        "the figure that least_load compares first",
        group=_POLICY,
        scope="routing",
        policies=("least_load",),
        more="requests: open requests, then outstanding tokens. tokens: the other way round.",
    )
    virtual_nodes: int | None = option(
        None,
        Number(1, 65536),
        "the number of points on the hash ring per worker",
        group=_POLICY,
        scope="routing",
        policies=("consistent_hash", *PREFIX_POLICIES, "prefix_hash"),
        more="More points make the workers' shares more equal; changing it moves sessions and prefixes. "
        "Unset: 160, for prefix_aware and prefix_hash 150.",
        unset="160, for prefix_aware and prefix_hash 150",
    )
    hash_function: str = option(
        "furc",
        Choice(("furc", "xxh3")),
        "the hash function of keys and ring points",
        group=_POLICY,
        scope="routing",
        policies=HASH_POLICIES,
        more="furc places sessions as vllm-project/router does; xxh3 is faster, most of all for "
        "rendezvous_hash.",
    )
    hash_failover: str = option(
        "next",
        Choice(("next", "first")),
        "the worker that takes a session whose own worker cannot be chosen",
        group=_POLICY,
        scope="routing",
        policies=("consistent_hash",),
        more="next: the next worker on the ring, so the load spreads. first: the first in fleet order.",
    )
    hash_load_factor: float = option(
        0,
        Number(1.0, 10.0, zero="off", whole=False),
        "the multiple of the average load above which a worker's sessions overflow to the next worker",
        group=_POLICY,
        scope="routing",
        policies=("consistent_hash",),
        more="1.25 is a good value; 0 ignores load.",
    )
    hash_key_order: str = option(
        "seed",
        Choice(("seed", "reference")),
        "the precedence of X-Request-ID and X-Correlation-ID for a request that has both",
        group=_POLICY,
        scope="routing",
        policies=HASH_POLICIES,
        more="seed: X-Request-ID before X-Correlation-ID. reference: the other way round.",
    )
    hash_key_headers: list[str] = option(
        [],
        Words("HEADER", each=header_name),
        "the headers that carry a session key, in this order",
        group=_POLICY,
        scope="routing",
        policies=HASH_POLICIES,
        more="Replaces X-Session-ID X-User-ID X-Tenant-ID X-Request-ID X-Correlation-ID X-Trace-ID.",
    )
    session_header_aliases: bool = option(
        True,
        Switch(),
        "read session headers of coding assistants and other routers as X-Session-ID if that header is "
        "absent",
        group=_POLICY,
        scope="routing",
        policies=HASH_POLICIES,
    )
    hash_key_fallback: str = option(
        "body",
        Choice(
            ("body",),
            later={
                "conversation": "let clients send X-Session-ID, or leave it at body, the digest of the "
                "whole body"
            },
        ),
        "the substitute for a missing session key",
        group=_POLICY,
        scope="routing",
        policies=HASH_POLICIES,
        more="body: a digest of the whole body.",
    )
    consistent_hash_compat: bool = option(
        False,
        Switch(),
        "determine session keys exactly as vllm-project/router does",
        group=_POLICY,
        scope="routing",
        policies=HASH_POLICIES,
        more="Sets --hash-key-order reference and --no-session-header-aliases, and keeps that router's "
        "request: key for chats. For a migration during which both routers run.",
    )
    max_prefix_length: int = option(
        1024,
        Number(1, 1_048_576),
        "the length of the system prompt's prefix that is hashed, in bytes",
        group=_POLICY,
        scope="routing",
        policies=PREFIX_POLICIES,
        more="Prompts with an equal prefix of this length go to one worker; all routers of a fleet must "
        "use the same value.",
    )
    load_factor_epsilon: float = option(
        0.25,
        Number(0.01, 10.0, whole=False),
        "the share above the average load at which a worker's prefixes overflow to the next worker",
        group=_POLICY,
        scope="routing",
        policies=PREFIX_POLICIES,
        more="0.25: a quarter. In steps of 0.001.",
    )
    prefix_load_floor: int | None = option(
        None,
        Number(0, 1_000_000),
        "the number of open requests below which a worker is never over its load bound",
        group=_POLICY,
        scope="routing",
        policies=("vllm_cache_aware", *PREFIX_POLICIES),
        more="Keeps prefixes together at low load. Unset: 8 for vllm_cache_aware (0 with --load-bound "
        "average), 0 for prefix_aware, where 8 is a good value.",
        unset="8 for vllm_cache_aware, 0 for prefix_aware",
    )
    session_ttl_secs: int = option(
        7200,
        Number(1, 31_536_000),
        "the time in seconds after its last request for which a session keeps its worker",
        group=_POLICY,
        scope="routing",
        policies=SESSION_POLICIES,
        more="POST /finish_session?session_id=… ends it at once.",
    )
    max_sessions: int = option(
        262_144,
        Number(1, 16_777_216),
        "the maximum number of sessions whose worker is remembered; the least recently used is evicted",
        group=_POLICY,
        scope="routing",
        policies=SESSION_POLICIES,
        more="Each session takes 90 bytes.",
    )
    prefix_token_count: int = option(
        256,
        Number(1, 1_000_000),
        "the length of a prefix in tokens",
        group=_POLICY,
        scope="routing",
        policies=("prefix_hash",),
        more="In a text prompt, four bytes count as a token. All routers of a fleet must use the same value.",
    )
    prefix_hash_load_factor: float = option(
        1.25,
        Number(1.0, 10.0, whole=False),
        "the multiple of the average load above which a worker's prefixes go to the least loaded worker",
        group=_POLICY,
        scope="routing",
        policies=("prefix_hash",),
        more="In steps of 0.001.",
    )
    prefix_hash_balance_abs_threshold: int = option(
        10,
        Number(0, 1_000_000),
        "the number of requests above the average up to which a worker keeps its prefixes regardless of "
        "--prefix-hash-load-factor",
        group=_POLICY,
        scope="routing",
        policies=("prefix_hash",),
        more="Keeps prefixes together at low load.",
    )
    routing_text_limit: int = option(
        4_194_304,
        Number(1024, 2**30),
        "the maximum length of a prompt that is matched, in bytes",
        group=_POLICY,
        scope="routing",
        policies=(*TEXT_POLICIES, *BLOCK_POLICIES),
        more="Longer texts are truncated to it. Token ids are always matched in full.",
    )
    cache_threshold: float = option(
        0.3,
        Number(0, 1, whole=False),
        "the minimum share of the prompt that a worker must hold for a cache hit",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware", *_HOLDER_POLICIES),
        more="Higher values send fewer prompts to the worker that holds their prefix, and make load more "
        "even.",
    )
    block_size: int | Literal["auto"] = option(
        16,
        NumberOr(1, 4096),
        "the number of tokens in a block of the engines' caches",
        group=_POLICY,
        scope="routing",
        policies=BLOCK_POLICIES,
        more="Equal to --block-size of vLLM or --page-size of SGLang. auto: each worker's own, which the "
        "server reads from its metrics, so that a fleet may mix sizes.",
    )
    max_blocks_per_worker: int = option(
        100_000,
        Number(1),
        "the KV-cache capacity, in blocks, assumed for workers that do not report it",
        group=_POLICY,
        scope="routing",
        aliases=("max_blocks_per_backend",),
        policies=BLOCK_POLICIES,
        more="The server reads the capacity from the metrics of vLLM and SGLang. Too high a value predicts "
        "hits on blocks that were evicted.",
    )
    load_factor: float = option(
        1.25,
        Number(1.0, 10.0, whole=False),
        "the multiple of the average load above which a prompt goes to another worker than the one that "
        "holds it",
        group=_POLICY,
        scope="routing",
        policies=_HOLDER_POLICIES,
    )
    load_bound: str = option(
        "room",
        Choice(("room", "average")),
        "the load that is compared with the bound set by --load-factor",
        group=_POLICY,
        scope="routing",
        policies=_HOLDER_POLICIES,
        more="room: the load with this request, so that an idle fleet uses its caches. average: the load "
        "without it.",
    )
    tokenize: str = option(
        "never",
        Choice(("never", "worker")),
        "the place where text is turned into token ids",
        group=_POLICY,
        scope="routing",
        policies=BLOCK_POLICIES,
        more="never: nowhere; prompts of token ids are matched as they are, all others by the bytes of "
        "their text. worker: the server sends each new text to a worker (POST /tokenize); "
        "Router.select does not.",
    )
    tokenize_timeout_ms: int = option(
        100,
        Number(1, 60_000),
        "the timeout in milliseconds of a call to a worker for token ids (--tokenize worker)",
        group=_POLICY,
        scope="server",
        policies=BLOCK_POLICIES,
        more="After it, the request is matched by the bytes of its text.",
    )
    balance_abs_threshold: int = option(
        64,
        Number(0, 1_000_000),
        "the difference in open requests that ends cache affinity, if --balance-rel-threshold is exceeded, "
        "too",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware",),
        more="Lower it if workers differ or traffic comes in bursts.",
    )
    balance_rel_threshold: float = option(
        1.5,
        Number(1, 1_000_000, whole=False),
        "the ratio of open requests that ends cache affinity, if --balance-abs-threshold is exceeded, too",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware",),
        more="In steps of 0.001.",
    )
    balance_gate: str = option(
        "worker",
        Choice(("worker", "fleet")),
        "the load that is compared with the least loaded worker's",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware",),
        more="worker: that of the worker that holds the prompt. fleet: the highest in the fleet, as in "
        "vllm-project/router, where one hot worker ends affinity for all.",
    )
    spread_new_conversations: bool = option(
        True,
        Switch(),
        "spread new conversations with a hot prefix over as many workers as the prefix has a share of them",
        group=_POLICY,
        scope="routing",
        aliases=(Alias("spread_starts", former=True),),
        policies=("cache_aware",),
        more="Without it, one worker gets all conversations that share a system prompt, until the load "
        "thresholds separate them.",
    )
    auto_objective: str = option(
        "balanced",
        Choice(("balanced", "ttft")),
        "the latency that auto minimises",
        group=_POLICY,
        scope="routing",
        policies=("auto",),
        more="balanced: time to first token and time of complete responses. ttft: time to first token "
        "alone; complete responses to long prompts then take 20 to 50 % longer near capacity.",
    )
    miss_choice: str = option(
        "least_load",
        Choice(("least_load", "smallest_tree")),
        "the worker that gets a prompt of which no worker holds enough",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware",),
        more="least_load: the least loaded worker, among equals the one with the fewest bytes of "
        "remembered prompts. smallest_tree: the worker with the fewest bytes of remembered prompts.",
    )
    eviction_policy: str = option(
        "lru",
        Choice(("lru", "lfu", "fifo", "mru", "filo", "priority")),
        "the order in which prompts are evicted",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware",),
        more="The names are those of the engines' own caches. priority: the lowest `priority` in their "
        "bodies first.",
    )
    eviction_interval_secs: int = option(
        120,
        Number(1, 2**31 - 1),
        "the interval between background evictions of removed workers' entries",
        group=_POLICY,
        scope="routing",
        aliases=("eviction_interval",),
        policies=("cache_aware",),
        more="--max-tree-size does not depend on it: that limit holds after every request.",
    )
    max_tree_size: int = option(
        2**26,
        Number(1024, 2**50),
        "the maximum size of distinct remembered prompts of all workers together, in bytes",
        group=_POLICY,
        scope="routing",
        policies=("cache_aware",),
        more="A token id counts as four bytes.",
    )

    connect_timeout_secs: float = option(
        5, Seconds(), "the timeout for connecting to a worker", group=_TIMEOUTS, scope="server"
    )
    first_byte_timeout_secs: float = option(
        0,
        Seconds("as --request-timeout-secs"),
        "the timeout for the first byte of a worker's response",
        group=_TIMEOUTS,
        scope="server",
        more="It includes waiting in the engine's queue and prefill. 0 means --request-timeout-secs.",
    )
    request_timeout_secs: float = option(
        1800,
        Seconds(),
        "the timeout of a response that does not stream",
        group=_TIMEOUTS,
        scope="server",
    )
    stream_idle_timeout_secs: float = option(
        600,
        Seconds("no limit"),
        "the idle timeout within a worker's response",
        group=_TIMEOUTS,
        scope="server",
        more="0 sets no limit.",
    )
    stream_total_timeout_secs: float = option(
        0,
        Seconds("no limit"),
        "the timeout of a whole stream (text/event-stream)",
        group=_TIMEOUTS,
        scope="server",
        more="0 sets no limit.",
    )
    dead_worker_grace_secs: float = option(
        10,
        Seconds(low=0),
        "the time for which a response that has begun may continue after its worker was found dead",
        group=_TIMEOUTS,
        scope="server",
        more="Dead means unhealthy and not accepting connections. Requests without a byte of a response go "
        "to another worker at once. 0 aborts responses at once.",
    )
    upstream_write_timeout_secs: float = option(
        60,
        Seconds(),
        "the write timeout towards workers, without progress",
        group=_TIMEOUTS,
        scope="server",
    )
    client_head_timeout_secs: float = option(
        30,
        Seconds(),
        "the timeout for a request's head",
        group=_TIMEOUTS,
        scope="server",
        more="It runs from accept for a connection's first request, TLS handshake included; from the first "
        "byte for later ones.",
    )
    client_body_timeout_secs: float = option(
        60,
        Seconds(),
        "the idle timeout within a request's body",
        group=_TIMEOUTS,
        scope="server",
    )
    half_closed_clients: str = option(
        "abort",
        Choice(("abort", "serve")),
        "the handling of a request whose client closes its sending side while it waits",
        group=_TIMEOUTS,
        scope="server",
        more="abort: the request is cancelled at its worker, since a client that has disconnected looks "
        "the same. serve: the client gets its response, and a disconnect is noticed when something is "
        "written to the client.",
    )
    client_min_body_rate: int = option(
        1024,
        Number(1, 2**27, zero="off", metavar="BYTES"),
        "the minimum rate of a request's body in bytes per second, averaged over 30 s of waiting for it",
        group=_TIMEOUTS,
        scope="server",
        more="Slower clients get 408, after as little as a second when other requests wait for the memory "
        "or the permit that the upload holds; the rate required in that second doubles every 5 s. A "
        "pause counts as slow, whatever --client-body-timeout-secs is.",
    )
    client_idle_timeout_secs: float = option(
        620,
        Seconds(),
        "the idle timeout of a client's connection between requests",
        group=_TIMEOUTS,
        scope="server",
        more="The default is longer than the 600 s of common load balancers, so that they close first and "
        "no request is lost.",
    )
    client_write_timeout_secs: float = option(
        300,
        Seconds(),
        "the write timeout towards clients, without progress",
        group=_TIMEOUTS,
        scope="server",
    )

    max_payload_size: int = option(
        512 * 2**20,
        Number(1, 2**50),
        "the maximum size of a request body, in bytes",
        group=_LIMITS,
        scope="server",
        more="Larger bodies get 413.",
    )
    max_connections: int = option(
        0,
        Number(0, 2**31 - 1),
        "the maximum number of open connections from clients",
        group=_LIMITS,
        scope="server",
        more="At the limit the longest idle connection is closed for a new one. Connections to the admin and "
        "metrics ports count. 0 means what the limit of open files allows.",
    )
    body_memory_mb: int = option(
        0,
        Number(16, 2**20, zero="a quarter of this process's memory, but at least 256"),
        "the memory for buffered request bodies, in MiB",
        group=_LIMITS,
        scope="server",
        more="Shared by all threads; bodies of more than 64 KiB count. When it is used up, further bodies "
        "wait, and get 503 after --queue-timeout-secs.",
    )
    upstream_pool_size: int = option(
        256,
        Number(0, 65536),
        "the maximum number of idle connections kept per worker and thread",
        group=_LIMITS,
        scope="server",
    )
    upstream_pool_idle_secs: float = option(
        4,
        Seconds(),
        "the idle timeout of a connection to a worker",
        group=_LIMITS,
        scope="server",
        more="The default is shorter than the 5 s after which uvicorn closes, so that no request meets a "
        "closing connection.",
    )

    health_check_interval_secs: float = option(
        10,
        Seconds("no checks"),
        "the interval between health checks of a healthy worker",
        group=_HEALTH,
        scope="server",
        more="An unhealthy worker is checked every 2 s, a suspected one every second, if that is sooner. 0 "
        "turns checks off.",
    )
    health_check_timeout_secs: float = option(
        5, Seconds(), "the timeout of a health check", group=_HEALTH, scope="server"
    )
    health_check_endpoint: str = option(
        "/health",
        RequestPath(),
        "the path of health checks; 2xx means healthy",
        group=_HEALTH,
        scope="server",
    )
    health_failure_threshold: int = option(
        3,
        Number(1, 2**31 - 1),
        "the number of consecutive failed checks that make a worker unhealthy",
        group=_HEALTH,
        scope="server",
    )
    health_success_threshold: int = option(
        2,
        Number(1, 2**31 - 1),
        "the number of consecutive passed checks that make an unhealthy worker healthy again",
        group=_HEALTH,
        scope="server",
    )

    health_compat: bool = option(
        False,
        Switch(),
        "return 503 from GET /health as soon as one worker is unhealthy, as vllm-project/router does",
        group=_HEALTH,
        scope="server",
        more="Otherwise it returns 200 while any worker is healthy.",
    )
    slow_start_secs: float = option(
        30,
        Seconds(low=0),
        "the slow-start window after a worker recovers, in which its share of load grows to its full weight",
        group=_HEALTH,
        scope="server",
        more="The share starts at a tenth. 0 gives the full share at once.",
    )

    shutdown_grace_period_secs: float = option(
        180,
        Seconds(low=0),
        "the time for requests in flight to finish after SIGTERM",
        group=_SHUTDOWN,
        scope="server",
    )
    drain_timeout_secs: float = option(
        300,
        Seconds(low=0),
        "the drain timeout: the time for a draining worker's requests to finish, unless POST /admin/drain "
        "sets another",
        group=_SHUTDOWN,
        scope="server",
    )
    shutdown_settle_secs: float = option(
        0,
        Seconds(low=0),
        "the time to keep accepting connections after SIGTERM, with /readiness already at 503",
        group=_SHUTDOWN,
        scope="server",
        more="About 5 is a good value behind Kubernetes.",
    )

    log_level: str | None = option(
        None,
        Choice(("debug", "info", "warn", "error", "critical"), aliases={"warning": "warn"}),
        "the minimum log level",
        group=_LOGS,
        scope="server",
        cli_default="info",
        more="warning means warn.",
    )
    log_dir: str | None = option(
        None,
        Text("DIRECTORY"),
        "the directory for log files, one per day",
        group=_LOGS,
        scope="server",
        more="In any case, the access log goes to stdout and all other messages to stderr.",
    )
    log_format: str = option(
        "text",
        Choice(("text", "json")),
        "the format of log lines, the access log included",
        group=_LOGS,
        scope="server",
    )
    record_log: str | None = option(
        None,
        Text("FILE"),
        "the file to which a line per request is written for a replay: times, lengths and salted hashes",
        group=_LOGS,
        scope="server",
        more="It holds no content. The file is appended to, and reopened on SIGHUP. With it, request "
        "bodies up to 8 MiB are buffered under every policy. See docs/reference/record_log.md.",
    )
    record_log_salt_file: str | None = option(
        None,
        Text("PATH"),
        "the file of the secret salt of the hashes in --record-log",
        group=_LOGS,
        scope="server",
        more="It has 16 bytes that only their owner may read, and is created if missing. Unset: a new salt "
        "for each run, so that hashes of different runs do not match.",
    )
    prometheus_host: str | None = option(
        None,
        Text("ADDRESS"),
        "the address of the metrics listener",
        group=_LOGS,
        scope="server",
        cli_default="127.0.0.1",
    )
    prometheus_port: int | None = option(
        None,
        Number(0, 65535),
        "the port of the metrics listener, which serves GET /metrics",
        group=_LOGS,
        scope="server",
        cli_default=29000,
        more="0 takes any free port and logs it at level info.",
    )

    max_concurrent_requests: int = option(
        32768,
        Number(1, 2**31 - 1),
        "the maximum number of concurrent requests to workers",
        group=_RESILIENCE,
        scope="server",
        more="Shared by all threads; a request counts until the last byte of its response. Requests beyond "
        "it wait in the queue. The limit of open files may allow fewer.",
    )
    queue_size: int = option(
        100,
        Number(0, 1_000_000),
        "the maximum number of requests that wait in the queue",
        group=_RESILIENCE,
        scope="server",
        more="The queue is first in, first out; requests beyond it get 429. 0: no queue.",
    )
    queue_timeout_secs: float = option(
        60,
        Seconds(),
        "the time that a request may wait in the queue before it gets 408",
        group=_RESILIENCE,
        scope="server",
    )
    rate_limit_tokens_per_second: int | None = option(
        None,
        Number(1, 1_000_000),
        "the maximum number of requests admitted per second",
        group=_RESILIENCE,
        scope="server",
        more="After a pause, one second's worth is admitted at once; requests beyond it get 429. Unset: no "
        "such limit.",
    )
    max_worker_requests: int = option(
        0,
        Number(0, 2**31 - 1),
        "the maximum number of concurrent requests of one worker",
        group=_RESILIENCE,
        scope="routing",
        more="A worker that has this many is not chosen; when all have, requests wait in the queue. 0: no "
        "limit.",
    )
    ticket_lease_secs: float = option(
        0,
        Seconds("never"),
        "the lease after which a ticket of select() that is not renewed ends, as if its client had "
        "disconnected",
        group=_RESILIENCE,
        scope="routing",
        more="For programs that embed the router and may lose tickets; see Ticket.renew().",
        on_command_line=False,
    )
    retry_max_retries: int = option(
        5,
        Number(1, 1000),
        "the maximum number of attempts of a request",
        group=_RESILIENCE,
        scope="server",
        more="1 means no retries. No request is retried once the client has a byte of a response.",
    )
    retry_lost_requests: int = option(
        1,
        Number(0, 1000),
        "maximum retries of a request whose connection was lost after the worker had all of it, or whose "
        "response was not valid HTTP",
        group=_RESILIENCE,
        scope="server",
        more="Such a request may have crashed its worker, so that each retry may cost another one. Requests "
        "that no worker had in full are retried up to --retry-max-retries.",
    )
    retry_initial_backoff_ms: int = option(
        50,
        Number(1, 3_600_000),
        "the initial back-off before a retry, in milliseconds",
        group=_RESILIENCE,
        scope="server",
        more="There is no back-off before the first retry after a connection failed or broke, if another "
        "worker is left.",
    )
    retry_max_backoff_ms: int = option(
        30000,
        Number(1, 3_600_000),
        "the maximum back-off before a retry, in milliseconds",
        group=_RESILIENCE,
        scope="server",
    )
    retry_backoff_multiplier: float = option(
        1.5,
        Number(1, 100, whole=False),
        "the factor by which the back-off grows from retry to retry",
        group=_RESILIENCE,
        scope="server",
    )
    retry_jitter_factor: float = option(
        0.2,
        Number(0, 1, whole=False),
        "the random share of the back-off, up or down",
        group=_RESILIENCE,
        scope="server",
    )
    retry_budget: float = option(
        0.2,
        Number(0, 100, whole=False),
        "the maximum number of retries, as a share of the requests of the last ten seconds",
        group=_RESILIENCE,
        scope="server",
        more="It keeps an outage from multiplying load. Ten retries per second are allowed in addition; "
        "all threads share the budget.",
    )
    disable_retries: bool = option(
        False,
        Switch(),
        "send each request only once",
        group=_RESILIENCE,
        scope="server",
    )
    cb_failure_threshold: int = option(
        10,
        Number(1, 100_000),
        "the number of consecutive failures that open a worker's circuit breaker",
        group=_RESILIENCE,
        scope="server",
        more="Only failures of the worker count: broken connections, timeouts, 5xx where other workers do "
        "better; never a client that disconnects, nor 4xx.",
    )
    cb_success_threshold: int = option(
        3,
        Number(1, 100_000),
        "the number of consecutive successful probes that close an open circuit breaker",
        group=_RESILIENCE,
        scope="server",
    )
    cb_timeout_duration_secs: float = option(
        60,
        Seconds(),
        "the time for which a circuit breaker stays open before one request at a time probes the worker",
        group=_RESILIENCE,
        scope="server",
        more="A worker that could not be reached is probed as soon as it passes its health check again.",
    )
    cb_window_duration_secs: float = option(
        120,
        Seconds(),
        "the time for which a failure counts towards --cb-failure-threshold",
        group=_RESILIENCE,
        scope="server",
    )
    disable_circuit_breaker: bool = option(
        False, Switch(), "keep all circuit breakers closed", group=_RESILIENCE, scope="server"
    )

    api_key_validation_urls: list[str] = option(
        [],
        Words("URL", each=_validation_url),
        "the URLs of services that validate clients' API keys",
        urls=True,
        group=_SECURITY,
        scope="server",
        more="Each gets a GET with the client's Authorization; status 200 from any of them makes the key "
        "valid. Keys in --client-api-key-file are not sent there. If this is unset, the command reads "
        "API_KEY_VALIDATION_URLS from the environment.",
    )
    api_key_validation_cache_secs: float = option(
        300,
        Seconds(low=0),
        "the time for which a valid API key is cached",
        group=_SECURITY,
        scope="server",
        more="An invalid key is cached for 10 s at most, a failed validation not at all.",
    )
    api_key_validation_timeout_secs: float = option(
        5,
        Seconds(),
        "the timeout of a request to one of --api-key-validation-urls",
        group=_SECURITY,
        scope="server",
    )
    client_api_key_file: str | None = option(
        None,
        Text("PATH"),
        "the file of API keys that clients must send, one per line",
        group=_SECURITY,
        scope="server",
        more="It is reloaded when it changes, and on SIGHUP. Without it, clients need no key. See "
        "docs/how-to/rotate_keys.md.",
    )
    admin_api_key_file: str | None = option(
        None,
        Text("PATH"),
        "the file of API keys for admin endpoints (the fleet, /admin), one per line",
        group=_SECURITY,
        scope="server",
        more="Without it, admin endpoints need no key, and are closed if clients need one.",
    )
    admin_host: str = option(
        "127.0.0.1",
        Text("ADDRESS"),
        "the address of the admin port",
        group=_SECURITY,
        scope="server",
    )
    admin_port: int | None = option(
        None,
        Number(0, 65535),
        "a separate port for admin endpoints, for which --port then returns 404",
        group=_SECURITY,
        scope="server",
        more="0 takes any free port and logs it at level info. Unset: admin endpoints are on --port.",
    )
    fan_out_path: list[str] = option(
        [],
        Words("PATH", each=_fan_out_path),
        "additional paths whose requests go to all workers, as those of /flush_cache do",
        group=_SECURITY,
        scope="server",
        more="Such as /own_rpc, or /hooks* for all paths with that prefix. They are admin endpoints.",
    )
    cors_allowed_origins: list[str] = option(
        [],
        Words("ORIGIN", each=_origin),
        "origins of web pages that may read responses",
        urls=True,
        group=_SECURITY,
        scope="server",
        more="Such as https://chat.example. Unset: none. * allows any, except for admin endpoints, which "
        "reject requests that browsers make for pages of origins that are not named here.",
    )
    tls_cert_path: str | None = option(
        None,
        Text("PATH"),
        "the certificate presented to clients, with its intermediate certificates (PEM)",
        group=_SECURITY,
        scope="server",
        more="With it and --tls-key-path, --port and --admin-port speak TLS only. All TLS files are "
        "reloaded on SIGHUP.",
    )
    tls_key_path: str | None = option(
        None,
        Text("PATH"),
        "the private key of --tls-cert-path (PEM, without a password)",
        group=_SECURITY,
        scope="server",
    )
    tls_client_ca_file: str | None = option(
        None,
        Text("PATH"),
        "the CA bundle (PEM) that client certificates must chain to",
        group=_SECURITY,
        scope="server",
        more="Unset: clients need no certificate.",
    )
    tls_min_version: str = option(
        "1.2",
        Choice(("1.2", "1.3"), metavar="VERSION"),
        "the minimum TLS version, with clients and with workers",
        group=_SECURITY,
        scope="server",
    )
    tls_ciphers: str = option(
        "ECDHE+AESGCM:ECDHE+CHACHA20",
        Text("CIPHERS"),
        "the cipher suites of TLS 1.2, with clients and with workers, in OpenSSL's notation",
        group=_SECURITY,
        scope="server",
        more="The default has forward secrecy and authenticated encryption. Cipher suites of TLS 1.3 are "
        "not affected.",
    )
    worker_ca_file: str | None = option(
        None,
        Text("PATH"),
        "the CA bundle (PEM) that certificates of workers at https:// must chain to",
        group=_SECURITY,
        scope="server",
        more="Unset: the system's CA bundle.",
    )
    worker_cert_path: str | None = option(
        None,
        Text("PATH"),
        "the certificate presented to workers that request one (PEM)",
        group=_SECURITY,
        scope="server",
    )
    worker_key_path: str | None = option(
        None, Text("PATH"), "the private key of --worker-cert-path (PEM)", group=_SECURITY, scope="server"
    )
    worker_tls_insecure: bool = option(
        False,
        Switch(),
        "skip the verification of workers' certificates",
        group=_SECURITY,
        scope="server",
        more="Connections to workers can then be intercepted, prompts and keys included.",
    )

    vllm_pd_disaggregation: bool = option(
        False,
        Switch(),
        "run prefill and decode on different workers",
        group=_PD_GROUP,
        not_built=_PD,
        aliases=(
            "pd_disaggregation",
            Alias("mode", kind=Choice(("regular", "pd")), meaning={"regular": False, "pd": True}),
        ),
    )
    prefill_urls: list[tuple[str, int | None]] = option(
        [],
        Raw("URL [PORT]", rows=True),
        "the prefill workers, each with a bootstrap port or none",
        urls=True,
        group=_PD_GROUP,
        spelled="prefill",
        aliases=(Alias("prefill_workers", kind=Raw("URL", split=True)),),
        not_built=_PD,
    )
    decode_urls: list[str] = option(
        [],
        Raw("URL", nargs=1, rows=True),
        "the decode workers",
        urls=True,
        group=_PD_GROUP,
        spelled="decode",
        aliases=(Alias("decode_workers", kind=Raw("URL", split=True)),),
        not_built=_PD,
    )
    prefill_policy: str | None = option(
        None, _policy(), "the policy of the prefill stage", group=_PD_GROUP, not_built=_PD
    )
    decode_policy: str | None = option(
        None, _policy(), "the policy of the decode stage", group=_PD_GROUP, not_built=_PD
    )
    vllm_discovery_address: str | None = option(
        None,
        Text("HOST:PORT"),
        "the address at which workers register themselves",
        group=_PD_GROUP,
        not_built=_PD,
        urls=True,
    )
    kv_connector: str = option(
        "nixl",
        Choice(("nixl", "mooncake", "moriio")),
        "the transfer method of KV caches from prefill to decode",
        group=_PD_GROUP,
        not_built=_PD,
    )
    profile: bool = option(
        False, Switch(), "profile workers around requests", group=_PD_GROUP, not_built=_PROFILE
    )

    service_discovery: bool = option(
        False, Switch(), "discover workers in Kubernetes", group=_KUBERNETES, not_built=_DISCOVERY
    )
    selector: dict[str, str] = option(
        {}, Raw("KEY=VALUE", "*"), "the labels of the workers' pods", group=_KUBERNETES, not_built=_DISCOVERY
    )
    service_discovery_port: int = option(
        80, Number(1, 65535), "the workers' port", group=_KUBERNETES, not_built=_DISCOVERY
    )
    service_discovery_namespace: str | None = option(
        None, Text("NAME"), "the Kubernetes namespace of the workers", group=_KUBERNETES, not_built=_DISCOVERY
    )
    prefill_selector: dict[str, str] = option(
        {}, Raw("KEY=VALUE", "*"), "the labels of prefill pods", group=_KUBERNETES, not_built=_DISCOVERY
    )
    decode_selector: dict[str, str] = option(
        {}, Raw("KEY=VALUE", "*"), "the labels of decode pods", group=_KUBERNETES, not_built=_DISCOVERY
    )
    bootstrap_port_annotation: str = option(
        "vllm.ai/bootstrap-port",
        Text(),
        "the annotation with a prefill pod's bootstrap port",
        group=_KUBERNETES,
        not_built=_DISCOVERY,
        on_command_line=False,
    )

    enable_trace: bool = option(False, Switch(), "trace requests", group=_TRACES, not_built=_TRACING)
    otlp_traces_endpoint: str | None = option(
        None,
        Text("HOST:PORT"),
        "the endpoint to which traces are exported",
        group=_TRACES,
        not_built=_TRACING,
        urls=True,
    )
    otel_sampling_ratio: float = option(
        1.0,
        Number(0, 1, whole=False),
        "the share of requests that are traced",
        group=_TRACES,
        not_built=_TRACING,
    )
    otel_excluded_paths: list[str] = option(
        ["/health", "/health_generate", "/liveness", "/readiness"],
        Words("PATH", commas=False),
        "the paths that are not traced",
        group=_TRACES,
        not_built=_TRACING,
    )
    wasm_middleware: str | None = option(
        None, Text("PATH"), "the WASM module that processes requests first", group=_TRACES, not_built=_WASM
    )
    wasm_middleware_sha256: str | None = option(
        None,
        Text("HEX"),
        "the SHA-256 digest of the module of --wasm-middleware",
        group=_TRACES,
        not_built=_WASM,
    )
    wasm_middleware_routes: list[str] = option(
        [],
        Words("PATH", commas=False),
        "the routes that the module of --wasm-middleware processes",
        group=_TRACES,
        spelled="wasm_middleware_route",
        not_built=_WASM,
    )

    enable_program_scheduling: bool = option(
        False,
        Switch(),
        "schedule the requests of one program together",
        group=_PROGRAM_GROUP,
        not_built=_PROGRAMS,
    )
    program_scheduling_config_json: str | None = option(
        None, Text("JSON"), "the settings of program scheduling", group=_PROGRAM_GROUP, not_built=_PROGRAMS
    )

    router_temperature: float = option(
        0.0, Number(whole=False), "the temperature of kv_aware's choice", group=_KV_GROUP, not_built=_KV_AWARE
    )
    kv_penalty_host: float = option(
        0.8,
        Number(high=1, whole=False),
        "kv_aware's credit for blocks in the host's memory",
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )
    kv_penalty_external: float = option(
        0.6,
        Number(high=1, whole=False),
        "kv_aware's credit for blocks in an external store",
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )
    kv_penalty_disk: float = option(
        0.3,
        Number(high=1, whole=False),
        "kv_aware's credit for blocks on disk",
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )
    kv_aware_session_affinity_ttl_secs: int | None = option(
        None,
        Number(low=1, high=31_536_000),
        "the time for which kv_aware keeps an idle session's worker",
        group=_KV_GROUP,
        unset="no affinity",
        not_built=_KV_AWARE,
    )
    kv_event_source: list[str] = option(
        [],
        Words("URL=ENDPOINT", commas=False),
        "the workers' endpoints of KV events",
        urls=True,
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )
    kv_event_replay_source: list[str] = option(
        [],
        Words("URL=ENDPOINT", commas=False),
        "the workers' endpoints for replaying past KV events",
        urls=True,
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )
    kv_event_block_size: int = option(
        16,
        Number(low=1, high=65536),
        "the number of tokens per block of KV events",
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )
    kv_event_model: str | None = option(
        None,
        Text("NAME"),
        "the model of the workers that send KV events",
        group=_KV_GROUP,
        unset="unknown",
        not_built=_KV_AWARE,
    )
    pd_kv_events: list[str] = option(
        [],
        Words("URL=ENDPOINT", commas=False),
        "the prefill workers' endpoints of KV events",
        urls=True,
        group=_KV_GROUP,
        not_built=_KV_AWARE,
    )

    enable_igw: bool = option(
        False,
        Switch(),
        "form a separate pool of workers per model",
        group=_OTHER,
        not_built=_IGW,
    )
    mini_lb: bool = option(
        False,
        Switch(),
        "run a small load balancer for debugging instead",
        group=_OTHER,
        not_built=_MINI_LB,
    )
    backend: str = option(
        "vllm",
        Choice(("vllm", "trtllm", "openai", "anthropic")),
        "the kind of worker",
        group=_OTHER,
        aliases=("runtime",),
        not_built=_BACKENDS,
    )
    history_backend: str = option(
        "memory",
        Choice(("memory", "none")),
        "the store of responses of /v1/responses",
        group=_OTHER,
        no_effect="the router stores no responses; /v1/responses reaches a worker as any other path does",
    )

    def __new__(cls, *_: Any, **given: Any) -> RouterArgs:
        """Keeps which settings are given until `__post_init__`, since some choose the policy."""
        self = super().__new__(cls)
        self.__dict__["given"] = tuple(given)
        return self

    def __repr__(self) -> str:
        """The settings that differ from their defaults; secrets are left out."""
        usual = RouterArgs()
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.repr and getattr(self, field.name) != getattr(usual, field.name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        given = [FORMER_NAMES.get(name, name) for name in self.__dict__.pop("given")]
        if self.policy is None:
            self.policy = _default_policy(given)

    # Command line

    @staticmethod
    def add_cli_args(
        parser: argparse.ArgumentParser, use_router_prefix: bool = False, exclude_host_port: bool = False
    ) -> None:
        """Add every flag to `parser`, in groups.

        Args:
            parser: yours or the command's.
            use_router_prefix: spell the flags `--router-…`, for a parser that has flags of its own.
                `--worker-urls`, `--host` and `--port` are left as they are.
            exclude_host_port: leave out `--host` and `--port`.

        A flag that vllm-project/router does not have (`--seed`, `--block-size`) is left out where the parser
        has one of that name; `--help` names those, and `from_cli_args()` leaves them at their defaults.

        Raises:
            argparse.ArgumentError: the parser has a flag that vllm-project/router has as well.
        """
        groups: dict[str, Any] = {}
        taken = {name for action in parser._actions for name in (*action.option_strings, action.dest)}
        left_out: list[Flag] = []
        for flag in sorted(FLAGS.values(), key=lambda flag: bool(flag.no_effect)):
            if not flag.on_command_line or (exclude_host_port and flag.field in ("host", "port")):
                continue
            if not use_router_prefix and flag.spelling not in REFERENCE_FLAGS:
                spellings = {"--" + name for name in flag.spellings}
                spellings |= {"--" + name.replace("-", "_") for name in flag.spellings}
                if taken & (spellings | {flag.dest}):
                    left_out.append(flag)
                    continue
            title = _NO_EFFECT if flag.no_effect else flag.group
            title = f"Router: {title}" if use_router_prefix else title
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            prefix = "router" if use_router_prefix and flag.field not in _NEVER_PREFIXED else ""
            add_flag(groups[title], flag, prefix)
        if left_out:
            names = ", ".join(flag.spelling for flag in left_out)
            parser.add_argument_group(
                "Router: left out",
                f"This command has flags of its own with these names, which are not the router's: {names}.",
            )
            logger.info("flags of the router that the parser has already are left out: %s", names)
            parser.set_defaults(**{_LEFT_OUT: frozenset(flag.field for flag in left_out)})

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace, use_router_prefix: bool = False) -> RouterArgs:
        """Settings from a parsed command line; what it does not name has its default.

        Raises:
            ValueError: a bootstrap port of `--prefill` is neither a number nor `none`.
        """
        values: dict[str, Any] = {}
        left_out: frozenset[str] = getattr(args, _LEFT_OUT, frozenset())
        given: frozenset[str] = getattr(args, GIVEN, frozenset())
        for former, present in getattr(args, FORMER_GIVEN, {}).items():
            _warn_of_former_name(former, present)
        for flag in FLAGS.values():
            if flag.field in left_out:
                continue
            prefix = "router_" if use_router_prefix and flag.field not in _NEVER_PREFIXED else ""
            name = prefix + flag.dest
            value = getattr(args, name, flag.default)
            if flag.field in given or value != flag.default:
                values[flag.field] = cls._from_raw(flag, value)
        return cls(**values)

    @classmethod
    def _from_raw(cls, flag: Flag, value: Any) -> Any:
        parse = _RAW_PARSERS.get(flag.field)
        if parse is not None:
            return parse(value)
        # Lists are copied: the parser's default must not be changed by whoever changes these settings.
        return list(value) if isinstance(value, list) else value

    @staticmethod
    def _parse_selector(selector: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
        """`["app=vllm", "tier=a=b"]` as `{"app": "vllm", "tier": "a=b"}`; items without `=` are skipped."""
        if isinstance(selector, Mapping):
            return dict(selector)
        return dict(item.split("=", 1) for item in selector or () if "=" in item)

    @staticmethod
    def _parse_prefill_urls(prefill: Sequence[Any] | None) -> list[tuple[str, int | None]]:
        """`[["http://a", "8998"], ["http://b", "none"], ["http://c"]]` as (URL, bootstrap port or None)."""
        pairs: list[tuple[str, int | None]] = []
        for row in prefill or ():
            url, *more = (row,) if isinstance(row, str) else row
            port = more[0] if more else None
            if isinstance(port, str) and port.lower() == "none":
                port = None
            if len(more) > 1:
                shown = FLAGS["prefill_urls"].shown([url, *more])
                raise ValueError(f"--prefill takes one URL and one bootstrap port, not {shown}")
            if port is not None:
                try:
                    port = int(port)
                except ValueError:
                    port = 0
                if not 1 <= port <= 65535:
                    together = FLAGS["prefill_urls"].shown([url, *more])
                    # What follows a URL may be the rest of a password with a blank in it.
                    which = (
                        f"{quoted(more[0])} of prefill worker {url}"
                        if together == f"{url} {more[0]}"
                        else f"of prefill worker {together}"
                    )
                    raise ValueError(
                        f"Invalid bootstrap port {which}: it must be a number between 1 and 65535, or none"
                    )
            pairs.append((url, port))
        return pairs

    @staticmethod
    def _parse_decode_urls(decode: Sequence[Any] | None) -> list[str]:
        """`[["http://a"], ["http://b"]]` as a list of URLs."""
        return [row if isinstance(row, str) else row[0] for row in decode or ()]

    # YAML

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the settings") -> RouterArgs:
        """Settings by name, in any accepted spelling.

        Raises:
            ValueError: an unknown name (with the nearest known one), a name given twice, or a value that does
                not fit.
        """
        return cls(**cls.values_of_dict(values, source))

    @classmethod
    def from_yaml(cls, text: str, source: str = "the YAML text") -> RouterArgs:
        """Settings from YAML: one mapping, names as in Python or as flags. Raises as from_dict() does."""
        return cls(**cls.values_of_yaml(text, source))

    def to_yaml(self) -> str:
        """YAML that from_yaml() reads back: the settings that differ from their defaults."""
        import yaml

        values: dict[str, Any] = {}
        for name, flag in FLAGS.items():
            value = getattr(self, name)
            if value != flag.default:
                values[name] = [_plain(item) for item in value] if isinstance(value, list) else value
        text: str = yaml.safe_dump(values, sort_keys=False)
        return text

    @classmethod
    def values_of_dict(cls, values: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Field name to checked value, of the names that are given. Raises as from_dict() does."""
        found: dict[str, Any] = {}
        for given, value in values.items():
            spelling = _SPELLINGS.get(str(given).replace("-", "_"))
            if spelling is None:
                raise ValueError(f"{source}: {unknown_name(str(given))}")
            flag, alias = spelling
            if alias and alias.former:
                _warn_of_former_name(str(given), flag.field)
            if flag.field in found:
                raise ValueError(f"{source}: {given} sets {flag.field} a second time; keep one of them")
            kind = (alias and alias.kind) or flag.kind
            try:
                checked = (
                    None if value is None and flag.default is None else kind.check(kind.from_config(value))
                )
                if alias and alias.meaning:
                    checked = alias.meaning[str(checked)]
                found[flag.field] = cls._from_raw(flag, checked)
            except Unfit as unfit:
                raise ValueError(f"{source}: {flag.complaint(value, unfit, alias)}") from None
            except (TypeError, AttributeError, LookupError):
                raise ValueError(
                    f"{source}: {given} is {flag.shown(value)}; write it as {_YAML_FORMS[flag.field]}"
                ) from None
        return found

    @classmethod
    def values_of_yaml(cls, text: str, source: str) -> dict[str, Any]:
        """Field name to checked value, of the names that the text has. Raises as from_yaml() does."""
        values = mapping_of_yaml(text, source)
        flat = _without_sections(_without_unbuilt_sections(values, source), source)
        return cls.values_of_dict(_without_prefix_section(flat, source), source)

    # Checks

    def _validate_router_args(self) -> None:
        """Check every value, and refuse what is not implemented.

        Raises:
            ValueError: names the thing, the value, the limit and the remedy; or the flag whose function is
                not implemented.
        """
        for name, flag in FLAGS.items():
            value = getattr(self, name)
            flag.check_built(value)
            flag.check(value)
        if self.client_api_key_file is not None and self.client_api_key_file == self.admin_api_key_file:
            raise ValueError(
                f"client_api_key_file and admin_api_key_file are both {self.client_api_key_file}, so every "
                "client could change the fleet; use a separate file for admins"
            )
        for cert, key in (("tls_cert_path", "tls_key_path"), ("worker_cert_path", "worker_key_path")):
            if (getattr(self, cert) is None) != (getattr(self, key) is None):
                given, missing = (cert, key) if getattr(self, key) is None else (key, cert)
                raise ValueError(
                    f"{given} is {getattr(self, given)} and {missing} is not set; a certificate and its key "
                    "go together, so give both"
                )
        if self.tls_client_ca_file is not None and self.tls_cert_path is None:
            raise ValueError(
                f"tls_client_ca_file is {self.tls_client_ca_file}, and clients connect without TLS; set "
                "tls_cert_path and tls_key_path, too"
            )
        if self.record_log_salt_file is not None and (
            self.record_log is None
            or os.path.realpath(self.record_log) == os.path.realpath(self.record_log_salt_file)
        ):
            raise ValueError(
                f"record_log_salt_file is {self.record_log_salt_file}, and record_log is "
                f"{'not set' if self.record_log is None else 'the same'}; the salt belongs to a record "
                "log, and must be in a separate file"
            )
        if self.health_check_endpoint[:1] != "/":
            raise ValueError(
                f"health_check_endpoint is {show(self.health_check_endpoint)}; it is a path and must start "
                "with /, as /health does"
            )
        if self.retry_max_backoff_ms < self.retry_initial_backoff_ms:
            raise ValueError(
                f"retry_max_backoff_ms is {self.retry_max_backoff_ms}; it is the maximum back-off and must "
                "not be below the initial one, retry_initial_backoff_ms, which is "
                f"{self.retry_initial_backoff_ms}"
            )

    def warnings(self) -> list[str]:
        """Sentences about settings that are accepted and will not do what somebody may expect."""
        read = () if self.record_log is None else ("block_size", "routing_text_limit")  # by the record log
        sentences = _unread_options(
            {name: getattr(self, name) for name in POLICY_OPTIONS if name not in read}
        )
        if self.dp_aware and self.intra_node_data_parallel_size == 1:
            sentences.append(
                "--dp-aware has no effect by itself; --intra-node-data-parallel-size sets the number of "
                "ranks per URL"
            )
        sentences += [
            f"{flag.spelling} has no effect: {flag.no_effect}"
            for name, flag in FLAGS.items()
            if flag.no_effect and isinstance(flag.kind, Text) and getattr(self, name) is not None
        ]
        clients_need_keys = self.client_api_key_file is not None or self.api_key_validation_urls
        if clients_need_keys and self.admin_api_key_file is None and self.admin_port is None:
            sentences.append(
                "clients need API keys and no admin keys are set, so admin endpoints are closed; open them "
                "with --admin-api-key-file or --admin-port"
            )
        elif self.admin_api_key_file is None:
            flag, host = (
                ("--host", self.host) if self.admin_port is None else ("--admin-host", self.admin_host)
            )
            if not _is_loopback(host):
                sentences.append(
                    f"{flag} {host} is not a loopback address, and admin endpoints need no key: every "
                    "client that can reach the port can add and remove workers; set --admin-api-key-file, "
                    "or " + ("--admin-port" if flag == "--host" else "--admin-host 127.0.0.1")
                )
        if self.worker_tls_insecure:
            sentences.append(
                "--worker-tls-insecure: worker certificates are not verified, so connections can be "
                "intercepted; to trust your own CA, use --worker-ca-file"
            )
        alone = len(self.worker_urls) == self.intra_node_data_parallel_size == 1
        if alone and FLAGS["policy"].check(self.policy) == "power_of_two":
            sentences.append("power_of_two has nothing to choose between while there is only one worker")
        if not self.worker_urls:
            sentences.append(
                "no worker URLs are given: requests get 503 until POST /add_worker?url=http://host:8000 "
                "adds one"
            )
        return sentences

    # What the C++ core takes

    def router_options(self) -> dict[str, Any]:
        """Options of the routing core: `worker_urls` and everything that check_policy_options() returns."""
        options = check_policy_options({name: getattr(self, name) for name in POLICY_OPTIONS}, warn=_ignore)
        return {"worker_urls": FLAGS["worker_urls"].check(self.worker_urls), **options}

    def server_options(self) -> dict[str, Any]:
        """Options of the server, by field name; nothing is left open but keys and places that are unset.

        `threads` is above 0; `log_level` one of debug, info, warn, error, critical; `request_id_headers` a
        list in lower case. `prometheus_host` and `prometheus_port` are both None when metrics are off.
        """
        options = {
            name: flag.check(getattr(self, name)) for name, flag in FLAGS.items() if flag.scope == "server"
        }
        options["threads"] = options["threads"] or min(4, available_cpus())
        options["body_memory_mb"] = options["body_memory_mb"] or max(256, available_memory() // 4 // 2**20)
        options["log_level"] = options["log_level"] or "info"
        headers = options["request_id_headers"] or DEFAULT_REQUEST_ID_HEADERS
        options["request_id_headers"] = [header.lower() for header in headers]
        if options["prometheus_host"] is None or options["prometheus_port"] is None:
            options["prometheus_host"] = options["prometheus_port"] = None
        return options


_NEVER_PREFIXED = ("worker_urls", "host", "port")

FLAGS: dict[str, Flag] = flags_of(RouterArgs)

# What Router(policy, worker_urls, **options) takes: the fleet itself is an argument of its own there.
POLICY_OPTIONS = tuple(
    name for name, flag in FLAGS.items() if name != "worker_urls" and flag.scope == "routing"
)

_RAW_PARSERS: dict[str, Callable[[Any], Any]] = {
    "selector": RouterArgs._parse_selector,
    "prefill_selector": RouterArgs._parse_selector,
    "decode_selector": RouterArgs._parse_selector,
    "prefill_urls": RouterArgs._parse_prefill_urls,
    "decode_urls": RouterArgs._parse_decode_urls,
}
_YAML_FORMS = {
    "selector": "{app: vllm}",
    "prefill_selector": "{app: vllm}",
    "decode_selector": "{app: vllm}",
    "prefill_urls": "[[http://host:8000, 8998], [http://host:8001, none]]",
    "decode_urls": "[http://host:8000, http://host:8001]",
}


class _Spelling(NamedTuple):
    flag: Flag
    alias: Alias | None


_SPELLINGS: dict[str, _Spelling] = {
    name: _Spelling(flag, alias)
    for flag in FLAGS.values()
    for name, alias in [
        (flag.field, None),
        *((alias.name.replace("-", "_"), alias) for alias in flag.all_aliases),
        *([(flag.spelled, None)] if flag.spelled else []),
    ]
}


# Names of an earlier release, by which settings may be given until the next minor release.
FORMER_NAMES: dict[str, str] = {
    alias.name: flag.field for flag in FLAGS.values() for alias in flag.former_names
}


def present_name_of(name: str) -> str:
    """The name of a setting; a former name is replaced, and the log says so."""
    if name not in FORMER_NAMES:
        return name
    _warn_of_former_name(name, FORMER_NAMES[name])
    return FORMER_NAMES[name]


def _warn_of_former_name(former: str, present: str) -> None:
    logger.warning("%s is deprecated and will be removed in the next minor release; use %s", former, present)


def _add_former_attribute(former: str, present: str) -> None:
    setattr(
        RouterArgs,
        former,
        property(
            lambda self: getattr(self, present),
            lambda self, value: setattr(self, present, value),
            doc=f"Deprecated: use `{present}`.",
        ),
    )


for _former, _present in FORMER_NAMES.items():
    _add_former_attribute(_former, _present)


def unknown_name(name: str, known: Sequence[str] | None = None) -> str:
    """A sentence about a name that is no setting: what it may have meant, or that other routers have it."""
    name = name_only(name)
    plain = name.replace("-", "_")
    if len(name) > LONGEST_SHOWN_VALUE:
        return (
            f"a name of {len(name)} characters is not a known setting; docs/reference/cli.md lists them all"
        )
    if plain in KNOWN_ELSEWHERE:
        return f"{name} {KNOWN_ELSEWHERE[plain]}"
    return f"{name} is not a known setting" + did_you_mean(
        name,
        list(_SPELLINGS) if known is None else known,
        "; docs/reference/cli.md lists them all",
        FLAG_SIMILARITY,
    )


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _plain(item: Any) -> Any:
    """A tuple as the list that YAML knows."""
    return list(item) if isinstance(item, tuple) else item


def _ignore(_sentence: str) -> None:
    """For those who have been warned already."""


def _warn(sentence: str) -> None:
    # Past this function and check_policy_options, to the line that called it.
    warnings.warn(sentence, UnusedOptionWarning, stacklevel=3)


def _default_policy(given: Iterable[str]) -> str:
    """The policy where none is named. cache_aware was it, so a setting of cache_aware still chooses it."""
    own = [
        FLAGS[name].spelling
        for name in given
        if _FORMER_DEFAULT_POLICY in FLAGS[name].policies and DEFAULT_POLICY not in FLAGS[name].policies
    ]
    if not own:
        return DEFAULT_POLICY
    logger.warning(
        "policy %s is chosen because of %s; set --policy %s to keep it, or remove that option to get the "
        "default, %s",
        _FORMER_DEFAULT_POLICY,
        ", ".join(own),
        _FORMER_DEFAULT_POLICY,
        DEFAULT_POLICY,
    )
    return _FORMER_DEFAULT_POLICY


def _unread_options(options: Mapping[str, Any]) -> list[str]:
    """Sentences about options that the chosen policy does not read."""
    policy = FLAGS["policy"].check(options["policy"])
    return [
        f"{name} has no effect on the policy {policy}; it belongs to {' and '.join(FLAGS[name].policies)}"
        for name, value in options.items()
        if FLAGS[name].policies and policy not in FLAGS[name].policies and not FLAGS[name].is_default(value)
    ]


def _without_sections(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of `routing:` and of the policies' sections in it among the others."""
    routing = values.get("routing")
    if routing is None:
        return values
    if not isinstance(routing, dict):
        raise ValueError(
            f"{source}: routing is {show(routing)}; it is a mapping, such as `policy: least_load`"
        )
    flat = {name: value for name, value in values.items() if name != "routing"}
    for name, value in routing.items():
        section = value if isinstance(value, dict) and name in BUILT_POLICIES else {name: value}
        for inner, setting in section.items():
            if name in BLOCK_POLICIES and inner == "eviction_interval_secs":
                continue  # nothing waits for it: the limit on blocks holds after every request
            if inner in flat:
                raise ValueError(f"{source}: {inner} appears twice; keep one of them")
            flat[inner] = setting
    return flat


# Sections of other routers' files: what they ask for when they are enabled, and what happens today.
_UNBUILT_SECTIONS = {
    "response_cache": "caching of complete responses: every request reaches a worker",
    "kv_cache_index": "an index of KV events: policies learn from the requests sent to workers",
}


def _without_unbuilt_sections(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings without `response_cache:` and `kv_cache_index:`, which must not be enabled."""
    for name, function in _UNBUILT_SECTIONS.items():
        section = values.get(name)
        if section is None:
            continue
        if not isinstance(section, dict):
            raise ValueError(f"{source}: {name} is {show(section)}; write it as {{enabled: false}}")
        enabled = section.get("enabled", False)
        if not isinstance(enabled, bool):
            raise ValueError(f"{source}: {name}.enabled is {show(enabled)}; it must be true or false")
        if enabled:
            raise ValueError(
                f"{source}: {name}.enabled is true, which is not implemented in vllm-router {__version__} "
                f"yet ({function}); set it to false or remove the section"
            )
    return {name: value for name, value in values.items() if name not in _UNBUILT_SECTIONS}


def _without_prefix_section(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of `prefix_routing:` among the others; its `enabled` chooses the policy.

    Raises:
        ValueError: it is no mapping, has a name that is not its own, asks for what is not implemented, or for
            another policy than `policy` does.
    """
    if values.get("prefix_routing") is None:
        return {name: value for name, value in values.items() if name != "prefix_routing"}
    flat = dict(values)
    section = flat.pop("prefix_routing")
    if not isinstance(section, dict):
        raise ValueError(f"{source}: prefix_routing is {show(section)}; write it as {{enabled: true}}")
    own = [name for name, flag in FLAGS.items() if set(PREFIX_POLICIES) & set(flag.policies)]
    switches = ["enabled", "anthropic_cache_control_injection"]
    for name, value in section.items():
        where = f"{source}: prefix_routing.{name}"
        if name not in own and name not in switches:
            otherwise = f"; it has {', '.join(switches + own)}"
            raise ValueError(f"{where} is not a known setting{did_you_mean(str(name), own, otherwise)}")
        if name in own and name in flat:
            raise ValueError(f"{where} and {name} set the same option; keep one of them")
        if name in own:
            flat[name] = value
        elif not isinstance(value, bool):
            raise ValueError(f"{where} is {show(value)}; it must be true or false")
        elif value and name == "anthropic_cache_control_injection":
            raise ValueError(
                f"{where} is not implemented in vllm-router {__version__} yet: requests pass through "
                "unchanged; remove it"
            )
        elif value:
            named = str(flat.setdefault("policy", "prefix_aware"))
            plain = named.strip().lower().replace("-", "_")
            if _POLICY_ALIASES.get(plain, plain) != "prefix_aware":
                raise ValueError(f"{where} chooses prefix_aware, and policy is {named}; keep one of them")
    return flat


# Options whose default is the policy's own.
OWN_DEFAULTS = ("virtual_nodes", "prefix_load_floor")


def check_policy_options(options: Mapping[str, Any], warn: Callable[[str], None] = _warn) -> dict[str, Any]:
    """The options of `Router(**options)`, checked and complete.

    Args:
        options: by field name; `policy` and `seed` may be among them. Accepted aliases count too.
        warn: hears of options that the policy does not read; they are accepted, since scripts share them.

    Returns:
        Every routing option that is built, in canonical form: `policy` without aliases, `hash_load_factor` 0
        or 1.0 to 10.0, `seed` None or 0 to 2^64-1, `virtual_nodes` and `prefix_load_floor` the policy's own
        where they were None.
        `consistent_hash_compat` has set what it implies.

    Raises:
        TypeError: an unknown name, with the nearest known one; or a setting of the server.
        ValueError: a value out of range, or one whose function is not implemented yet.
    """
    given: dict[str, Any] = {}
    for name, value in options.items():
        spelling = _SPELLINGS.get(name)
        if spelling is None:
            if name in ("worker_url", "workers", "urls"):
                raise TypeError(f"{name} is not a known setting; did you mean worker_urls?")
            raise TypeError(unknown_name(name, POLICY_OPTIONS))
        flag = spelling.flag
        if spelling.alias and spelling.alias.former:
            _warn_of_former_name(name, flag.field)
        if flag.field not in POLICY_OPTIONS:
            raise TypeError(
                f"{name} is not an option of Router but of the server; RouterArgs and Router.serve() take it"
            )
        if flag.field in given:
            raise TypeError(f"{name} sets {flag.field} a second time; keep one of them")
        flag.check_built(value)
        given[flag.field] = flag.check(value)
    if given.get("policy") is None:
        given["policy"] = _default_policy(given)
    for sentence in _unread_options(given):
        warn(sentence)
    complete = {
        name: given.get(
            name, [*FLAGS[name].default] if isinstance(FLAGS[name].default, list) else FLAGS[name].default
        )
        for name in POLICY_OPTIONS
        if FLAGS[name].not_built is None
    }
    if complete["virtual_nodes"] is None:
        complete["virtual_nodes"] = 150 if complete["policy"] in (*PREFIX_POLICIES, "prefix_hash") else 160
    if complete["prefix_load_floor"] is None:
        # The bound "average" is there for its formula, which a floor would change.
        holds = complete["policy"] == "vllm_cache_aware" and complete["load_bound"] == "room"
        complete["prefix_load_floor"] = 8 if holds else 0
    if complete["consistent_hash_compat"]:
        complete["hash_key_order"] = "reference"
        complete["session_header_aliases"] = False
    return complete


def check_server_names(names: Iterable[str]) -> None:
    """That all are names which `Router.serve(**options)` takes.

    Raises:
        TypeError: an unknown name, with the nearest known one; or a setting of the routing itself, which is
            fixed when the router is made.
    """
    for name in names:
        if name not in FLAGS:
            raise TypeError(
                unknown_name(name, [known for known, flag in FLAGS.items() if flag.scope == "server"])
            )
        if name == "worker_urls" or name in POLICY_OPTIONS:
            raise TypeError(f"{name} is not an option of serve() but of Router; pass it to Router()")


def available_cpus(root: str = "/") -> int:
    """How many CPUs this process may use: its affinity and its cgroup's quota, rounded up, at least 1."""
    cpus = len(os.sched_getaffinity(0))
    for quota in _cgroup_quotas(Path(root)):
        cpus = min(cpus, max(1, math.ceil(quota)))
    return cpus


def available_memory(root: str = "/") -> int:
    """How many bytes this process may use: the machine's, or what its cgroup allows."""
    top = Path(root)
    limits = []
    files = [directory / "memory.max" for directory in _cgroups(top)]
    for file in [*files, top / "sys/fs/cgroup/memory/memory.limit_in_bytes"]:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
            limits.append(int(file.read_text()))
    try:
        total = re.search(r"^MemTotal: +([0-9]+) kB$", (top / "proc/meminfo").read_text(), re.MULTILINE)
        limits += [int(total[1]) * 1024] if total else []
    except OSError:
        pass
    return min(limits, default=0)


def _cgroups(root: Path) -> list[Path]:
    """The process's cgroup of version 2 and those above it."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    path = next((line[3:] for line in groups if line.startswith("0::")), "/")
    top = root / "sys/fs/cgroup"
    group = top / path.lstrip("/")
    return [directory for directory in [group, *group.parents] if directory.is_relative_to(top)]


def _cgroup_quotas(root: Path) -> list[float]:
    """CPU quotas of the process's cgroup and those above it, in CPUs; version 2, else version 1."""
    quotas = []
    for directory in _cgroups(root):
        try:
            quota, period = (directory / "cpu.max").read_text().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):
            pass
    try:
        cpu = root / "sys/fs/cgroup/cpu"
        quota_us = int((cpu / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            quotas.append(quota_us / int((cpu / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):
        pass
    return quotas
