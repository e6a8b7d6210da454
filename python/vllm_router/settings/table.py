"""Table: every setting that does something, with its default, range, help and the policies that read it.

    port: int = _server(30000, Number(0, 65535), "the HTTP port to listen on", more="0 takes any free port …")

A field here is a flag of the command, a key of its YAML file and an option in Python (`flag.py`). Names and
defaults are those of vllm-project/router where it has the setting. What it has and does nothing here is in
`reference_flags.py`; `RouterArgs` (`args.py`) is made of both.
"""

from __future__ import annotations

# ruff: noqa: RUF009, since option() is how this class makes its fields
import dataclasses
from functools import partial
from typing import Literal

from vllm_router.settings.clients import TenantHeader, alias_class
from vllm_router.settings.connectors import KV_CONNECTOR
from vllm_router.settings.flag import Alias, option
from vllm_router.settings.kinds import (
    Choice,
    CollectorUrl,
    HeaderText,
    JsonObject,
    ListenAddress,
    Name,
    NameServer,
    Number,
    NumberOr,
    Raw,
    RedisUrl,
    RequestPath,
    Seconds,
    Switch,
    Text,
    Words,
    header_name,
)
from vllm_router.settings.kubernetes import (
    AnnotationName,
    LabelSelector,
    ObjectName,
    OneOrMore,
    object_name,
    pod_port,
)
from vllm_router.settings.policies import (
    BLOCK_POLICIES,
    DEFAULT_POLICY,
    FALLBACK_POLICY,
    FORMER_DEFAULT_POLICY,
    HASH_POLICIES,
    LOGIT_POLICIES,
    POLICY,
    TEXT_POLICIES,
)
from vllm_router.settings.response_cache import (
    CACHED_ROUTES,
    IGNORED_MEMBERS,
    INVALIDATING_PATHS,
    MAX_TTL_SECS,
    HeaderName,
    KeyPrefix,
    cached_route,
    ignored_member,
    invalidating_path,
    kept_header,
)
from vllm_router.settings.urls import (
    bind_endpoint,
    dns_url,
    event_source,
    fan_out_path,
    ip_range,
    master_url,
    model_alias,
    model_name,
    origin,
    pd_route,
    prefix_source,
    srv_name,
    validation_url,
    worker_url,
)

DEFAULT_REQUEST_ID_HEADERS = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")

# Groups, as --help shows them, each with the scope that most of its settings have, and with what a change
# of them needs.
_server = partial(option, group="Server", scope="server", live="restart")
_workers = partial(option, group="Workers", scope="server", live="restart")
_models = partial(option, group="Models", scope="server", live="request")
_stages = partial(option, group="Prefill/decode", scope="routing", live="restart")
_pd = partial(option, group="Prefill/decode", scope="server", live="request")
_scaling = partial(option, group="Scaling", scope="server", live="request")
_policy = partial(option, group="Routing policy", scope="routing", live="restart")
_cache = partial(option, group="Response cache", scope="server", live="request")
_timeouts = partial(option, group="Timeouts", scope="server", live="request")
_limits = partial(option, group="Connections and limits", scope="server", live="restart")
_health = partial(option, group="Health checks", scope="server", live="request")
_shutdown = partial(option, group="Shutdown", scope="server", live="request")
_logs = partial(option, group="Logging and metrics", scope="server", live="restart")
_traces = partial(option, group="Tracing", scope="server", live="restart")
_holdout = partial(option, group="Hold-out", scope="server", live="restart")
_picker = partial(option, group="Endpoint picker", scope="server", live="restart")
_resilience = partial(option, group="Retries, breaker, admission", scope="server", live="request")
_continued = partial(option, group="Continued streams", scope="server", live="request")
_security = partial(option, group="Security", scope="server", live="restart")


@dataclasses.dataclass(init=False, repr=False, eq=False)
class Table:
    """Settings that do something; see the head of this module."""

    worker_urls: list[str] = _workers(
        [],
        Words("URL", each=worker_url),
        "the workers' base URLs, in fleet order",
        urls=True,
        scope="routing",
        more="Separated by blanks or commas; may be repeated. http://host:8000@2 is data-parallel rank 2 "
        "of a host. Without any, requests get 503 until POST /add_worker adds one.",
        live="new",
    )

    host: str = _server(
        "127.0.0.1",
        Text("ADDRESS"),
        "the address to listen on",
        more="A name is listened on at each of its addresses, such as localhost at 127.0.0.1 and ::1.",
    )
    port: int = _server(
        30000,
        Number(0, 65535),
        "the HTTP port to listen on",
        more="0 takes any free port and logs it at level info.",
    )
    config_reload: str = _server(
        "signal",
        Choice(("off", "signal", "watch")),
        "the occasions on which the file of --config is read again",
        more="signal: SIGHUP and POST /admin/reload. watch: a change of the file, too. off: none. A file "
        "with a mistake, or with a change that needs a restart, changes nothing. See "
        "docs/how-to/change_settings.md.",
    )
    threads: int = _server(
        0,
        Number(0, 1024),
        "the number of proxy threads",
        more="0 means min(4, CPUs this process may use). One core carries tens of thousands of "
        "requests per second, so more is rarely better.",
    )
    reuse_port: bool = _server(
        False,
        Switch(),
        "allow another router process on the same port (SO_REUSEPORT), for restarts without downtime",
        more="Start the new process with it, then stop the old one.",
    )
    api_key: str | None = _server(
        None,
        HeaderText("KEY"),
        "the bearer key sent to workers",
        secret=True,
        more="Used for requests without an Authorization header of their own, and for health checks.",
    )
    preserve_host: bool = _server(
        False,
        Switch(),
        "send workers the client's Host header instead of their own address",
        live="request",
    )
    decision_headers: bool = _server(
        False,
        Switch(),
        "add x-vllm-router-* headers to responses that explain why their worker was chosen",
        more="These headers show the workers' addresses to clients.",
        live="request",
    )
    allow_request_overrides: bool = _server(
        False,
        Switch(),
        "let clients set overlap_weight, router_temperature and shared_cache_multiplier for a request",
        more='By the header x-vllm-router-override: {"router_temperature": 0.5}. The policies kv_logit'
        " and kv_aware read it.",
        live="request",
    )
    sse_error_event: bool = _server(
        False,
        Switch(),
        "end an event stream that is aborted with one more event that says why",
        more="It has the form of its API; the SDKs raise it as an error.",
        live="request",
    )
    anthropic_cache_control_injection: bool = _server(
        False,
        Switch(),
        "add a cache_control marker to the system prompt of requests to POST /v1/messages that have none",
        more="So that Anthropic's API caches the prompt up to there. The section prefix_routing of a "
        "settings file may hold it.",
        live="request",
    )
    strip_anthropic_billing_header: bool = _server(
        False,
        Switch(),
        "remove Claude Code's block x-anthropic-billing-header from the system prompt of requests to "
        "/v1/messages",
        more="For engines that make it a part of the prompt, so that nothing behind it is found in "
        "their caches. vLLM drops it itself, and Anthropic's API needs it.",
        live="request",
    )
    hold_stream_head: str = _server(
        "on",
        Choice(("on", "off")),
        "the moment at which the head of an event stream with status 200 is sent to the client",
        more="on: with the first byte of its body, so that until then the request may be retried and "
        "the client gets an accurate status. off: at once, for load balancers in front that close"
        " silent connections.",
        live="request",
    )
    sse_keepalive_secs: float = _server(
        0,
        Seconds(low=0),
        "the interval at which a client that waits for the first event of its stream is sent a comment",
        more="Set it below the idle timeout of proxies between client and router. The first comment "
        "commits the router to status 200: a later error is an event of the stream, and the "
        "worker's response headers are not sent. Bodies of up to 8 MiB are read for it. 0: no "
        "comments.",
        live="request",
    )
    trust_forwarded: bool = _server(
        True,
        Switch(),
        "keep and extend incoming X-Forwarded-* headers",
        more="Turn it off if clients reach the router directly, without a trusted proxy in front of it.",
        live="request",
    )
    request_id_headers: list[str] | None = _server(
        None,
        Words("HEADER", each=header_name),
        "the headers that may carry a request ID; the first one present wins",
        more=f"Unset means {' '.join(DEFAULT_REQUEST_ID_HEADERS)}.",
        live="request",
    )

    model_refresh_secs: float = _models(
        30,
        Seconds(low=0),
        "the interval at which each worker is polled for the models that it serves (GET /v1/models)",
        more="Requests then go only to workers that list their model. Also polled: a worker that joins, and "
        "one that returns 404 for a model that it lists. 0: no polls, and each worker may serve any model.",
    )
    models: list[str] = _models(
        [],
        Words("NAME", each=model_name),
        "the models that requests may name even while no worker serves them",
        more="Such a request gets 503 no_workers_for_model instead of 404, and counts in "
        "vllm_router_model_demand_total.",
    )
    model_memory_hours: float = _models(
        24,
        Number(0, 8760, whole=False),
        "the time for which a model that workers have served is known after the last of them left",
        more="In hours. A request for it gets 503 no_workers_for_model instead of 404.",
    )
    model_wait_secs: float = _models(
        0,
        Seconds(low=0),
        "the maximum time for which a request waits for a worker of its model, where none is left",
        more="It goes to the first worker that joins, else gets 503 no_workers_for_model. Up to "
        "--queue-size requests wait. 0: none does.",
    )
    unknown_model: str = _models(
        "404",
        Choice(("404", "forward")),
        "the treatment of requests for a model that no worker has listed",
        more="404: they are rejected with model_not_found. forward: they go to any worker. While all "
        "workers list the same models, they are forwarded in any case.",
    )
    default_model: str | None = _models(
        None,
        Text("NAME"),
        "the model of requests that name none, where workers serve several",
        more="Unset: 400 model_required, unless there is one base model only.",
    )
    model_alias: list[str] = _models(
        [],
        Words("NAME=MODEL", commas=False, each=model_alias),
        "another name of a model; may be repeated",
        more="The name in the request's body is replaced; the response is not changed. prod=a:90,b:10 sends "
        "nine of ten sessions to a. GET /v1/models lists aliases with their model as root.",
    )
    lora_spread: bool = _models(
        False,
        Switch(),
        "send requests for a LoRA adapter also to workers of its parent model that do not list it",
        more="For engines that load adapters by themselves. Workers that list the adapter are preferred; see "
        "--lora-load-tokens.",
    )

    scale_target: float = _scaling(
        0.8,
        Number(0.01, 1, whole=False),
        "the saturation at which the number of replicas is right",
        more="1 is all that the ready workers can take. A lower target keeps more in reserve for the "
        "time in which a replica starts. See docs/how-to/scale_workers.md.",
    )
    scale_target_wait_secs: float = _scaling(
        1,
        Seconds(),
        "the time to compute all prompts that wait at which workers are saturated",
        more="Raise it where prompts are so long that one of them takes longer.",
    )
    scale_min: int = _scaling(
        0,
        Number(0, 10_000),
        "the minimum of vllm_router_scale_desired_replicas of each model",
        more="0: none are desired without load, so that an autoscaler may scale to zero.",
    )
    scale_max: int = _scaling(
        0,
        Number(1, 10_000, zero="none"),
        "the maximum of vllm_router_scale_desired_replicas of each model",
    )
    scale_public: bool = _scaling(
        False,
        Switch(),
        "serve GET /scale without an admin key, on every port that serves /health",
        more="For KEDA's metrics-api without a secret. It shows names of models and addresses of workers.",
    )

    intra_node_data_parallel_size: int = _workers(
        1,
        Number(1, 4096),
        "the number of data-parallel ranks behind each worker URL",
        scope="routing",
        aliases=("data_parallel_size",),
        more="Above 1, each URL becomes URL@0 … URL@N-1, and the rank is sent as X-data-parallel-rank.",
    )
    worker_startup_timeout_secs: float = _workers(
        600,
        Seconds(),
        "the time limit for a worker that is added (POST /add_worker, /workers), or for the first one at "
        "the start, to pass its health check",
        more="At the start, the command ends with status 1 if none of --worker-urls has passed by "
        "then, unless sources may bring more.",
        live="request",
    )
    worker_startup_check_interval: float = _workers(
        30,
        Seconds(),
        "the interval between health checks of a worker that is being added, in seconds",
        aliases=("worker_startup_check_interval_secs",),
        live="request",
    )
    load_poll_interval_secs: float | None = _workers(
        None,
        Seconds("never"),
        "the interval between load polls of each worker",
        more="So policies see the requests of other clients. Unset: 1 with --exclude-waiting-above, "
        "--exclude-kv-above or --admission-config, --worker-startup-check-interval with the "
        "policy power_of_two, else never.",
        live="request",
    )
    exclude_waiting_above: int = _workers(
        0,
        Number(1, 2**31 - 1, zero="no limit"),
        "the number of waiting requests in a worker's last load poll above which other workers are preferred",
        more="Under every policy, sessions included, until it has fallen to four fifths of that, "
        "unless no other worker is left. Set it to what a worker works off within the wait that "
        "you allow.",
        live="request",
    )
    exclude_kv_above: float = _workers(
        0,
        Number(0.01, 1, zero="no limit", whole=False),
        "the share of its KV cache that a worker uses by its last load poll, above which other workers are "
        "preferred",
        more="As --exclude-waiting-above. Engines fill their caches on purpose, so a value below 0.9 passes "
        "over workers that serve well.",
        live="request",
    )
    worker_file: str | None = _workers(
        None,
        Text("FILE"),
        "a YAML or JSON file that lists workers, which is read again when it changes",
        more="A file with a mistake changes nothing, and the log says what is wrong. See "
        "docs/how-to/discover_workers.md.",
    )
    worker_dns: list[str] = _workers(
        [],
        Words("URL", each=dns_url),
        "the URLs whose host stands for one worker per address that DNS has for it",
        urls=True,
        more="Such as http://vllm.svc:8000; a URL of --worker-urls is one worker, whatever its name "
        "resolves to. Needs the package dnspython.",
    )
    worker_srv: list[str] = _workers(
        [],
        Words("NAME", each=srv_name),
        "the names of DNS SRV records, each of which is a worker",
        more="Such as _http._tcp.vllm.svc. Needs the package dnspython.",
    )
    dns_server: str | None = _workers(
        None,
        NameServer(),
        "the DNS server for --worker-dns and --worker-srv, which replaces those of /etc/resolv.conf",
        more="Such as 127.0.0.1:8600 for Consul. Port 53 if there is none.",
    )
    dns_min_secs: float = _workers(
        1,
        Seconds(low=0.1),
        "the minimum time after which a DNS name is resolved again, however short the TTL of its records",
    )
    dns_max_secs: float = _workers(
        30,
        Seconds(low=0.1),
        "the maximum time after which a DNS name is resolved again, however long the TTL of its records",
    )
    service_discovery: bool = _workers(
        False,
        Switch(),
        "take workers from Kubernetes",
        more="Those that --selector, --service-discovery-service or --inference-pool names, or "
        "--prefill-selector and --decode-selector in a fleet of two stages. Needs the package kubernetes. "
        "See docs/how-to/discover_workers.md.",
    )
    selector: dict[str, str] | list[str] = _workers(
        {},
        LabelSelector(),
        "the labels of the workers' pods",
        more="Terms as kubectl takes them, such as app=vllm, 'tier in (a,b)' or '!old'. All of them must "
        "match.",
    )
    service_discovery_port: int | str | list[int | str] = _workers(
        80,
        OneOrMore(
            "PORT",
            each=pod_port,
            what="port numbers between 1 and 65535, or names of container ports, such as 8000 or http",
        ),
        "the ports of each pod, by number or by name of a container port",
        more="Each is a worker.",
    )
    service_discovery_namespace: str | list[str] | None = _workers(
        None,
        OneOrMore(
            "NAMESPACE",
            each=object_name,
            what="names of namespaces, of a-z, 0-9 and -, such as models",
        ),
        "the namespaces in which pods or EndpointSlices are looked for",
        unset="all namespaces",
        more="Unset: all of them, which takes a ClusterRole.",
    )
    service_discovery_service: str | None = _workers(
        None,
        ObjectName(),
        "the name of a Service whose EndpointSlices are taken instead of pods",
    )
    inference_pool: str | None = _workers(
        None,
        ObjectName(),
        "the name of an InferencePool whose pods are taken",
        more="Instead of --selector and --service-discovery-port: the pool says labels and ports. See "
        "docs/how-to/pick_endpoints_for_a_gateway.md.",
    )
    kubeconfig: str | None = _workers(
        None,
        Text("FILE"),
        "the kubeconfig file, as for kubectl",
        unset="the pod's service account, or $KUBECONFIG, or ~/.kube/config",
        more="Unset: the pod's service account, else $KUBECONFIG or ~/.kube/config.",
    )
    kube_context: str | None = _workers(
        None,
        Text("NAME"),
        "the context of the kubeconfig file, as for kubectl",
        unset="its current context",
        more="Unset: its current context.",
    )
    pod_deletion_cost: bool = _workers(
        False,
        Switch(),
        "annotate each worker's pod with its deletion cost, so that a ReplicaSet removes idle pods first",
        more="The router's Role needs the verb patch of pods. See docs/how-to/scale_workers.md.",
    )
    discovery_resync_secs: float = _workers(
        60,
        Number(1, 3600, whole=False, seconds=True, metavar="SECS"),
        "the maximum time after which pods or EndpointSlices are listed again, even if no event came",
        more="It heals events that were lost.",
    )
    discovery_guard: float = _workers(
        0.5,
        Number(0.001, 1, whole=False),
        "the share of a source's workers that a new list may leave out without delay",
        scope="routing",
        more="A list that leaves out more of those that serve is held for --discovery-hold-secs: the "
        "workers stay unless they fail their health checks. Of --worker-file only an empty list "
        "is held so. 1: only a list without any worker is.",
        live="new",
    )
    discovery_hold_secs: float = _workers(
        60,
        Seconds(low=0),
        "the time for which a worker is held that a list leaves out: where the list leaves out too many, and "
        "while as many new workers of the list wait for their first health check",
        scope="routing",
        more="Raise it above the time in which an engine loads its model, where a list is changed "
        "before the new engines are ready. POST /admin/discovery/adopt?source=… applies a list at"
        " once. 0: no worker is held for others.",
        live="new",
    )
    policy: str = _policy(
        None,
        POLICY,
        "the policy that chooses the worker",
        unset=DEFAULT_POLICY,
        more=f"Unset: {DEFAULT_POLICY}, or {FORMER_DEFAULT_POLICY} if one of its settings is given that "
        f"{DEFAULT_POLICY} does not read, such as --cache-threshold.",
    )
    seed: int | None = _policy(
        None,
        Number(0, 2**64 - 1),
        "the seed of all random choices",
        more="With a seed, the same requests in the same order are routed alike. Unset: different in every "
        "run.",
    )
    fallback_policy: str = _policy(
        "least_load",
        FALLBACK_POLICY,
        "the policy for requests that lack the key that --policy needs",
    )
    least_load_metric: str = _policy(
        "requests",
        Choice(
            ("requests", "tokens"),
            later={"drain_time": "requests is exact without any report from engines; use it or tokens"},
        ),
        "the figure that least_load compares first",
        more="requests: open requests, then outstanding tokens. tokens: the other way round.",
    )
    virtual_nodes: int | None = _policy(
        None,
        Number(1, 65536),
        "the number of points on the hash ring per worker",
        more="More points make shares more equal; changing it moves sessions. Unset: 160, for "
        "prefix_aware, prefix_hash and kv_overlap 150.",
        unset="160, for prefix_aware, prefix_hash and kv_overlap 150",
    )
    hash_function: str = _policy(
        "furc",
        Choice(("furc", "xxh3")),
        "the hash function of keys and ring points",
        more="furc places sessions as vllm-project/router does; xxh3 is faster, most of all for "
        "rendezvous_hash.",
    )
    hash_failover: str = _policy(
        "next",
        Choice(("next", "first")),
        "the worker that takes a session whose own worker cannot be chosen",
        more="next: the next worker on the ring, so the load spreads. first: the first in fleet order.",
    )
    hash_load_factor: float = _policy(
        0,
        Number(1.0, 10.0, zero="off", whole=False),
        "the multiple of the average load above which a worker's sessions overflow to the next worker",
        more="1.25 is a good value; 0 ignores load.",
    )
    hash_key_order: str = _policy(
        "seed",
        Choice(("seed", "reference")),
        "the precedence of X-Request-ID and X-Correlation-ID for a request that has both",
        policies=HASH_POLICIES,
        more="seed: X-Request-ID before X-Correlation-ID. reference: the other way round.",
    )
    hash_key_headers: list[str] = _policy(
        [],
        Words("HEADER", each=header_name),
        "the headers that carry a session key, in this order",
        policies=HASH_POLICIES,
        more="Replaces X-Session-ID X-User-ID X-Tenant-ID X-Request-ID X-Correlation-ID X-Trace-ID.",
    )
    session_header_aliases: bool = _policy(
        True,
        Switch(),
        "read session headers of coding assistants and other routers as X-Session-ID if that header is "
        "absent",
        policies=HASH_POLICIES,
    )
    hash_key_fallback: str = _policy(
        "opening",
        Choice(("opening", "body")),
        "the substitute for a missing session key",
        policies=HASH_POLICIES,
        more="opening: a digest of what precedes a conversation's first response (system prompt, tools, "
        "messages), the same in all its turns; of other requests, of the whole body. body: a digest of the "
        "whole body.",
    )
    consistent_hash_compat: bool = _policy(
        False,
        Switch(),
        "determine session keys exactly as vllm-project/router does",
        policies=HASH_POLICIES,
        more="Sets --hash-key-order reference, --no-session-header-aliases and --hash-key-fallback "
        "body, and ignores what that router ignores. For a migration during which both routers "
        "run.",
    )
    max_prefix_length: int = _policy(
        1024,
        Number(1, 1_048_576),
        "the length of the system prompt's prefix that is hashed, in bytes",
        policies=("prefix_aware", *BLOCK_POLICIES),
        more="Prompts with an equal prefix of this length go to one worker, or have one entry in the prefix "
        "index (--kv-index-max-entries); all routers of a fleet must use the same value.",
    )
    load_factor_epsilon: float = _policy(
        0.25,
        Number(0.01, 10.0, whole=False),
        "the share above the average load at which a worker's prefixes overflow to the next worker",
        more="0.25: a quarter. In steps of 0.001.",
    )
    prefix_load_floor: int | None = _policy(
        None,
        Number(0, 1_000_000),
        "the number of open requests below which a worker is never over its load bound",
        more="Keeps prefixes together at low load. Unset: 8 for vllm_cache_aware (0 with --load-bound "
        "average), 4 for prefix_aware and kv_overlap.",
        unset="8 for vllm_cache_aware, 4 for prefix_aware and kv_overlap",
    )
    session_ttl_secs: int = _policy(
        7200,
        Number(1, 31_536_000),
        "the time in seconds after its last request for which a session keeps its worker",
        more="POST /finish_session?session_id=… ends it at once.",
    )
    max_sessions: int = _policy(
        262_144,
        Number(1, 16_777_216),
        "the maximum number of sessions whose worker is remembered; the least recently used is evicted",
        more="Each session takes 90 bytes.",
    )
    prefix_token_count: int = _policy(
        256,
        Number(1, 1_000_000),
        "the length of a prefix in tokens",
        more="In a text prompt, four bytes count as a token. All routers of a fleet must use the same value.",
    )
    prefix_hash_load_factor: float = _policy(
        1.25,
        Number(1.0, 10.0, whole=False),
        "the multiple of the average load above which a worker's prefixes go to the least loaded worker",
        more="In steps of 0.001.",
    )
    prefix_hash_balance_abs_threshold: int = _policy(
        10,
        Number(0, 1_000_000),
        "the number of requests above the average up to which a worker keeps its prefixes regardless of "
        "--prefix-hash-load-factor",
        more="Keeps prefixes together at low load.",
    )
    routing_text_limit: int = _policy(
        4_194_304,
        Number(1024, 2**30),
        "the maximum length of a prompt that is matched, in bytes",
        policies=(*TEXT_POLICIES, *BLOCK_POLICIES),
        more="Longer texts are truncated to it. Token ids are always matched in full.",
    )
    routing_text_tools: str = _policy(
        "auto",
        Choice(("auto", "first", "after")),
        "where the routing text has a request's tools: before or after the system prompt",
        policies=(*TEXT_POLICIES, *BLOCK_POLICIES),
        more="auto: where the model's chat template prints them, as two calls to a worker's /tokenize show; "
        "after, until that is known.",
    )
    cache_threshold: float = _policy(
        0.3,
        Number(0, 1, whole=False),
        "the minimum share of the prompt that a worker must hold for a cache hit",
        more="Higher values send fewer prompts to the worker that holds their prefix, and make load more "
        "even.",
    )
    block_size: int | Literal["auto"] = _policy(
        16,
        NumberOr(1, 4096),
        "the number of tokens in a block of the engines' caches",
        aliases=("page_size",),
        more="Equal to --block-size of vLLM or --page-size of SGLang. auto: each worker's own, which the "
        "server reads from its metrics, so that a fleet may mix sizes.",
    )
    max_blocks_per_worker: int = _policy(
        100_000,
        Number(1),
        "the KV-cache capacity, in blocks, assumed for workers that do not report it",
        aliases=("max_blocks_per_backend",),
        more="Too high a value predicts hits on blocks that were evicted.",
    )
    load_factor: float = _policy(
        1.25,
        Number(1.0, 10.0, whole=False),
        "the multiple of the average load above which a prompt goes to another worker than the one that "
        "holds it",
    )
    load_bound: str = _policy(
        "room",
        Choice(("room", "average")),
        "the load that is compared with the bound set by --load-factor",
        more="room: the load with this request, so that an idle fleet uses its caches. average: the load "
        "without it.",
    )
    tokenize: str = _policy(
        "auto",
        Choice(("auto", "never", "worker")),
        "the place where text is turned into token ids",
        policies=BLOCK_POLICIES,
        more="never: nowhere; prompts of token ids are matched as they are, all others by the bytes of "
        "their text. worker: the server sends each new text to a worker (POST /tokenize); "
        "Router.select does not. auto: worker while any worker publishes KV events, which name blocks of "
        "token ids, or decisions read a shared pool; else never.",
    )
    tokenize_timeout_ms: int = _policy(
        100,
        Number(1, 60_000),
        "the timeout in milliseconds of a call to a worker for token ids (--tokenize worker, auto)",
        scope="server",
        policies=BLOCK_POLICIES,
        more="After it, the request is matched by the bytes of its text.",
        live="request",
    )
    kv_events: str = _policy(
        "auto",
        Choice(("auto", "on", "off")),
        "the use of KV events, by which engines publish what their caches hold",
        scope="server",
        policies=BLOCK_POLICIES,
        more="auto: of workers that name their publisher (GET /kv_event_sources) and of --kv-event-source. "
        "on: also a warning for each worker without a source. off: caches are inferred from the requests "
        "sent.",
    )
    kv_events_engine: str = _policy(
        "auto",
        Choice(("auto", "trtllm")),
        "the engine whose way of telling KV events the router uses",
        scope="server",
        policies=BLOCK_POLICIES,
        more="auto: vLLM's and SGLang's, over ZeroMQ. trtllm: the router polls /kv_cache_events of "
        "workers without --kv-event-source; only one client may do that.",
    )
    kv_events_push: bool = _policy(
        False,
        Switch(),
        "take KV events by POST /admin/kv-events/push",
        scope="server",
        policies=BLOCK_POLICIES,
        more="For engines that the router cannot reach, and converters of other events.",
    )
    kv_events_bind: list[str] = _policy(
        [],
        Words("ENDPOINT", commas=False, each=bind_endpoint),
        "the ZeroMQ endpoints at which the router listens for publishers of KV events that connect to it",
        scope="server",
        policies=BLOCK_POLICIES,
        more="Such as tcp://*:5557. Their topic is kv@HOST:PORT@MODEL, with the worker's host and port.",
    )
    kv_event_source: list[str] = _policy(
        [],
        Words("URL=ENDPOINT", commas=False, each=event_source),
        "the ZeroMQ endpoint at which a worker publishes KV events, one per data-parallel rank",
        scope="server",
        urls=True,
        policies=BLOCK_POLICIES,
        more="Such as http://gpu-0:8000=tcp://gpu-0:5557. For workers that do not name it themselves.",
    )
    kv_event_replay_source: list[str] = _policy(
        [],
        Words("URL=ENDPOINT", commas=False, each=event_source),
        "the ZeroMQ endpoint at which a worker replays KV events, one per data-parallel rank",
        scope="server",
        urls=True,
        policies=BLOCK_POLICIES,
        more="Of workers in --kv-event-source. Without it a lost message is not recovered.",
    )
    kv_event_model: str | None = _policy(
        None,
        Text("NAME"),
        "the base model's name in requests, for workers that do not report it",
        scope="server",
        policies=BLOCK_POLICIES,
        more="Unset: the first model without a parent in /v1/models of the worker.",
    )
    kv_predict_ttl_secs: float = _policy(
        0.3,
        Seconds(),
        "the maximum time for which a worker is assumed to hold a prompt that its KV events do not show yet",
        scope="server",
        policies=BLOCK_POLICIES,
        more="Counted from the first token. Longer than events take to come, and short beside the time"
        " for which an idle cache keeps a prompt.",
        live="request",
    )
    shared_cache_type: str = _policy(
        "none",
        Choice(("none", "hicache")),
        "the kind of pool that workers share and the server queries for the blocks of prompts",
        scope="server",
        policies=LOGIT_POLICIES,
        more="hicache: a Mooncake store that SGLang's HiCache writes to. DYN_SHARED_CACHE_TYPE sets it too.",
    )
    shared_cache_url: list[str] = _policy(
        [],
        Words("URL", each=master_url),
        "the URL of the Mooncake master's HTTP port (its --metrics_port, 9003)",
        scope="server",
        urls=True,
        policies=LOGIT_POLICIES,
        more="Several for a master with standbys. Unset: as SGLang workers report it (GET /server_info).",
    )
    shared_cache_layout: str | None = _policy(
        None,
        JsonObject(),
        "the description of the pages in the shared pool, by the names of Dynamo",
        scope="server",
        policies=LOGIT_POLICIES,
        more='Such as {"page_size": 64, "tp_size": 2, "is_mla_model": false}. Unset: as SGLang workers '
        "report it (GET /server_info).",
    )
    shared_cache_timeout_ms: int = _policy(
        5,
        Number(1, 1000),
        "the maximum time in milliseconds that a request waits for the shared pool",
        scope="server",
        policies=LOGIT_POLICIES,
        more="What is known by then counts.",
    )
    shared_cache_verify: str = _policy(
        "edges",
        Choice(("edges", "all")),
        "the objects of a page that are queried in the shared pool",
        scope="server",
        policies=LOGIT_POLICIES,
        more="edges: the first of each page, and all of the last page of a hit. all: all of every page, for "
        "pools that lose single objects.",
    )
    kv_prefix_source: list[str] = _policy(
        [],
        Words("NAME=URL", commas=False, each=prefix_source),
        "the URL at which a worker streams events (SSE) about prefixes in its cache, after the source's name",
        scope="server",
        urls=True,
        policies=BLOCK_POLICIES,
        more="Such as gpu-0=http://gpu-0:8000/v1/kv_events, which may be followed by "
        ",reconnect_interval_ms=1000 and ,worker=http://gpu-0:8000. Needs --kv-index-max-entries.",
    )
    kv_index_max_entries: int = _policy(
        0,
        Number(100, 10_000_000, zero="keep none"),
        "the maximum number of entries of the prefix index, one for each worker of a prefix",
        more="About 160 bytes each. When it is reached, the least recently used tenth goes.",
    )
    kv_index_ttl_secs: int = _policy(
        600,
        Number(1, 86_400),
        "the time in seconds after its last event for which an entry of the prefix index counts",
    )
    kv_index_backend: str = _policy(
        "memory",
        Choice(("memory", "redis")),
        "the place of the prefix index",
        scope="server",
        policies=BLOCK_POLICIES,
        more="memory: each router's own. redis: also in the Redis at --redis-url, which routers share, so "
        "that a router knows what others read of their sources. Needs --kv-index-max-entries.",
    )
    kv_lookup_timeout_ms: int = _policy(
        5,
        Number(1, 1000),
        "the maximum time in milliseconds for which a request waits for the prefix index in Redis",
        scope="server",
        policies=BLOCK_POLICIES,
        more="After it the router's own index decides.",
    )
    redis_url: str | None = _server(
        None,
        RedisUrl(),
        "the URL of the Redis or Valkey of --kv-index-backend redis and --response-cache-backend redis",
        secret=True,
        more="Such as redis://user@host:6379/0, or rediss://host for TLS; valkey:// and valkeys:// mean the "
        "same. On the command line without a password, for which there is --redis-password-file.",
    )
    redis_password_file: str | None = _server(
        None,
        Text("FILE"),
        "the file of the password for Redis, which replaces one in its URL",
        more="Read at the start.",
    )
    redis_ca_file: str | None = _server(
        None,
        Text("FILE"),
        "the file of CA certificates (PEM) that the certificate of Redis is checked against, with rediss://",
        more="Unset: the system's.",
    )
    redis_cert_path: str | None = _server(
        None,
        Text("FILE"),
        "the file of the certificate (PEM) presented to Redis, with rediss://",
    )
    redis_key_path: str | None = _server(
        None, Text("FILE"), "the file of the private key (PEM) of --redis-cert-path"
    )
    redis_pool_size: int = _server(
        8,
        Number(1, 256),
        "the number of connections to Redis, over all proxy threads",
        more="Each thread has one at least; the control thread has one more, which writes.",
    )
    redis_connect_timeout_ms: int = _server(
        3000,
        Number(1, 60_000),
        "the time in milliseconds to connect to Redis and log in",
        more="No request waits for it.",
    )
    redis_command_timeout_ms: int = _server(
        1000,
        Number(1, 60_000),
        "the time in milliseconds without a byte from Redis while a reply is awaited, after which its "
        "connection is closed",
        more="Requests wait for --kv-lookup-timeout-ms or --response-cache-lookup-budget-ms only.",
    )
    peer_sync: str | None = _server(
        None,
        RedisUrl(password_flag="--peer-sync-password-file"),
        "the URL of the Redis or Valkey through which the routers of one fleet tell each other their loads "
        "and decisions",
        secret=True,
        more="Such as redis://user@host:6379/0, or rediss://host for TLS. Redis 6.2 or later. See "
        "docs/how-to/run_several_routers.md.",
    )
    peer_sync_fleet: str = _server(
        "default",
        Name(),
        "the name of the fleet, which all routers in front of the same workers share",
        more="Keys in Redis have it: vr:{NAME}:… and, of stored responses, cr:resp:{NAME}:…",
    )
    router_name: str | None = _server(
        None,
        Name(),
        "the name of this router in /ha/status and in the metrics of the others",
        more="Unset: the host's.",
    )
    peer_sync_interval_ms: int = _server(
        250,
        Number(50, 2000),
        "the time in milliseconds between two messages of a router to the others",
        more="Routers may differ.",
    )
    peer_sync_stride_tokens: int = _policy(
        0,
        Number(1, 4096, zero="256 with --peer-sync, else tell no decisions"),
        "the number of tokens for which routers tell each other one hash of a prompt",
        more="All routers of a fleet need the same, and the same --block-size; decisions of others are "
        "ignored.",
    )
    peer_sync_secret_file: str | None = _server(
        None,
        Text("FILE"),
        "the file of the secret, of 16 bytes at least, with which routers encrypt and authenticate what they "
        "tell each other",
        more="All routers of a fleet need the same. Without it every client that can write to that Redis can "
        "tell routers anything.",
    )
    peer_sync_password_file: str | None = _server(
        None,
        Text("FILE"),
        "the file of the password for the Redis of --peer-sync, which replaces one in its URL",
        more="Read for each new connection.",
    )
    peer_sync_ca_file: str | None = _server(
        None,
        Text("FILE"),
        "the file of CA certificates (PEM) that the certificate of the Redis of --peer-sync is checked "
        "against, with rediss://",
        more="Unset: the system's.",
    )
    peer_sync_cert_path: str | None = _server(
        None,
        Text("FILE"),
        "the file of the certificate (PEM) presented to the Redis of --peer-sync",
    )
    peer_sync_key_path: str | None = _server(
        None, Text("FILE"), "the file of the private key (PEM) of --peer-sync-cert-path"
    )
    peer_sync_max_mbps: int = _server(
        200,
        Number(1, 10_000),
        "the maximum rate of decisions that this router tells the others, in megabits per second",
        more="Beyond it the oldest are dropped, and counted.",
    )
    peer_sync_admin: bool = _server(
        False,
        Switch(),
        "carry out at all routers of the fleet what an admin says of workers at one of them",
        more="Needs --peer-sync-secret-file, since a worker that is added reads prompts.",
    )
    kv_storage_offloading: str = _policy(
        "off",
        Choice(("off", "offloads", "evictions")),
        "the events that leave a prefix with its worker, in storage instead of on the GPU",
        more="offloads: cache_offloaded. evictions: cache_evicted too, for workers that tell no offloads. "
        "off: none, both end the entry.",
    )
    balance_abs_threshold: int = _policy(
        64,
        Number(0, 1_000_000),
        "the difference in open requests that ends cache affinity, if --balance-rel-threshold is exceeded, "
        "too",
        more="Lower it if workers differ or traffic comes in bursts.",
    )
    balance_rel_threshold: float = _policy(
        1.5,
        Number(1, 1_000_000, whole=False),
        "the ratio of open requests that ends cache affinity, if --balance-abs-threshold is exceeded, too",
        more="In steps of 0.001.",
    )
    balance_gate: str = _policy(
        "worker",
        Choice(("worker", "fleet")),
        "the load that is compared with the least loaded worker's",
        more="worker: that of the worker that holds the prompt. fleet: the highest in the fleet, as in "
        "vllm-project/router, where one hot worker ends affinity for all.",
    )
    spread_new_conversations: bool = _policy(
        True,
        Switch(),
        "spread new conversations with a hot prefix over as many workers as the prefix has a share of them",
        aliases=(Alias("spread_starts", former=True),),
        more="Without it, one worker gets all conversations that share a system prompt.",
    )
    auto_objective: str = _policy(
        "balanced",
        Choice(("balanced", "ttft")),
        "the latency that auto minimises",
        more="balanced: time to first token and time of complete responses. ttft: complete responses weigh a "
        "third of that.",
    )
    lora_load_tokens: int = _policy(
        2000,
        Number(0, 10_000_000),
        "the prompt tokens whose computation costs as much as loading a LoRA adapter (--lora-spread)",
        more="Raise it if loading an adapter takes longer.",
    )
    overlap_weight: float = _policy(
        1.0,
        Number(0, 1000, whole=False),
        "the weight of a block of the prompt to compute, against one that an open request decodes with",
        more="0 compares decoding alone. Dynamo calls it --router-kv-overlap-score-weight.",
    )
    router_temperature: float = _policy(
        0.0,
        Number(0, 100, whole=False),
        "the temperature at which a worker is drawn by its cost",
        more="0 takes the lowest cost; 1 and more spread requests over workers of higher cost.",
    )
    host_cache_hit_weight: float = _policy(
        0.75,
        Number(0, 1, whole=False),
        "the share of a token's computation that is saved if it is cached in the worker's host memory",
    )
    disk_cache_hit_weight: float = _policy(
        0.25,
        Number(0, 1, whole=False),
        "the share of a token's computation that is saved if it is cached on the worker's own storage",
    )
    shared_cache_multiplier: float = _policy(
        0.0,
        Number(0, 1, whole=False),
        "the share of a token's computation that is saved if every worker can load it from the shared pool",
        more="0 ignores the pool; 0.3 to 0.7 are typical, by how long a load takes against computing.",
    )
    logit_prefill_tokens: str = _policy(
        "uncached",
        Choice(("uncached", "prompt")),
        "the tokens of a prompt that count as work of the worker that gets it",
        more="uncached: those that are not cached on its GPU. prompt: all of them.",
    )
    logit_decode_blocks: str = _policy(
        "potential",
        Choice(("active", "potential")),
        "the open requests whose distinct blocks count as work of decoding",
        more="potential: those that the worker has and this one, which favours workers that decode with the "
        "same prefix. active: those that it has.",
    )
    kv_penalty_host: float = _policy(
        0.8,
        Number(0, 1, whole=False),
        "the share of a token's computation that is saved if it is cached in the worker's host memory, for "
        "kv_aware",
    )
    kv_penalty_disk: float = _policy(
        0.3,
        Number(0, 1, whole=False),
        "the share of a token's computation that is saved if it is cached on the worker's own storage, for "
        "kv_aware",
    )
    kv_overlap_weight: float = _policy(
        0.6,
        Number(0, 1, whole=False),
        "the share of cached tokens in the score of kv_overlap",
        more="With --kv-load-weight and --kv-health-weight it sums to 1.",
    )
    kv_load_weight: float = _policy(
        0.3,
        Number(0, 1, whole=False),
        "the share of a low load in the score of kv_overlap",
        more="With --kv-overlap-weight and --kv-health-weight it sums to 1.",
    )
    kv_health_weight: float = _policy(
        0.1,
        Number(0, 1, whole=False),
        "the share of the success rate of a worker's last 100 requests in the score of kv_overlap",
        more="With --kv-overlap-weight and --kv-load-weight it sums to 1.",
    )
    kv_gpu_tier_weight: float = _policy(
        1.0,
        Number(0, 1, whole=False),
        "the weight of a token that is cached on the worker's GPU",
    )
    kv_storage_tier_weight: float = _policy(
        0.6,
        Number(0, 1, whole=False),
        "the weight of a token that is cached in the worker's host memory or storage",
    )
    kv_min_overlap_threshold: float = _policy(
        0.3,
        Number(0, 1, whole=False),
        "the minimum share of the prompt that a worker must hold for kv_overlap to compare workers",
        more="Below it the worker is the one that prefix_aware would choose.",
    )
    kv_overlap_basis: str = _policy(
        "prompt",
        Choice(("prompt", "fleet_max")),
        "the number of tokens that --kv-min-overlap-threshold is a share of",
        more="prompt: the prompt's. fleet_max: the maximum that a worker holds, so that any cached "
        "block suffices.",
    )
    kv_load_factor: float = _policy(
        2.0,
        Number(1.0, 10.0, whole=False, zero="no bound"),
        "the multiple of the average load above which kv_overlap passes a worker over",
        more="0 sets no bound; then the sole holder of a prefix gets all its requests.",
    )
    miss_choice: str = _policy(
        "least_load",
        Choice(("least_load", "smallest_tree")),
        "the worker that gets a prompt of which no worker holds enough",
        more="least_load: the least loaded worker, among equals the one with the fewest bytes of "
        "remembered prompts. smallest_tree: the worker with the fewest bytes of remembered prompts.",
    )
    eviction_policy: str = _policy(
        "lru",
        Choice(("lru", "lfu", "fifo", "mru", "filo", "priority")),
        "the order in which prompts are evicted",
        more="The names are those of the engines' own caches. priority: the lowest `priority` in their "
        "bodies first.",
    )
    eviction_interval_secs: int = _policy(
        120,
        Number(1, 2**31 - 1),
        "the interval between background evictions of removed workers' entries",
        aliases=("eviction_interval",),
        more="--max-tree-size does not depend on it: that limit holds after every request.",
    )
    max_tree_size: int = _policy(
        2**26,
        Number(1024, 2**50),
        "the maximum size of distinct remembered prompts of all workers together, in bytes",
        more="A token id counts as four bytes.",
    )

    response_cache: bool = _cache(
        False,
        Switch(),
        "give repeated requests with temperature 0 the stored response to the first one, without a worker",
        more="Responses have X-Cache: HIT, MISS or BYPASS. See docs/how-to/cache_responses.md.",
    )
    response_cache_backend: str = _cache(
        "memory",
        Choice(("memory", "redis")),
        "the place of stored responses",
        more="memory: each router's own. redis: the Redis at --redis-url, which routers share; while it is "
        "down, each router has its own.",
        live="restart",
    )
    response_cache_ttl_secs: float = _cache(
        300,
        Number(1, MAX_TTL_SECS, whole=False, seconds=True, metavar="SECS"),
        "the time in seconds for which a stored response is used",
        more="A change counts for responses that are stored from then on.",
    )
    response_cache_capacity: int = _cache(
        1000,
        Number(1, 10_000_000),
        "the maximum number of responses in memory",
        more="Beyond it the least recently used is evicted. Without effect on --response-cache-backend"
        " redis.",
    )
    response_cache_max_memory_bytes: int = _cache(
        256 * 2**20,
        Number(2**20, 2**50, metavar="BYTES"),
        "the maximum size in bytes of all responses in memory",
        more="Beyond it the least recently used is evicted. No response may take more than a quarter of it.",
    )
    response_cache_max_response_size: int = _cache(
        2**20,
        Number(1024, 256 * 2**20, metavar="BYTES"),
        "the maximum size in bytes of a stored response that is no stream",
    )
    response_cache_max_stream_buffer_size: int = _cache(
        10 * 2**20,
        Number(1024, 256 * 2**20, zero="requests for streams bypass the cache", metavar="BYTES"),
        "the maximum size in bytes of a stored event stream",
    )
    response_cache_max_request_size: int = _cache(
        2**20,
        Number(1024, 256 * 2**20, metavar="BYTES"),
        "the maximum size in bytes of a request's body that is looked up",
        more="Longer ones bypass the cache. Bodies up to it are held in --body-memory-mb.",
    )
    response_cache_capture_memory_bytes: int = _cache(
        256 * 2**20,
        Number(2**20, 2**50, metavar="BYTES"),
        "the maximum size in bytes of all responses that are being copied on their way to clients",
        more="Beyond it responses are not stored.",
    )
    response_cache_routes: list[str] = _cache(
        [*CACHED_ROUTES[:2]],
        Words("PATH", each=cached_route),
        "the routes whose responses are stored",
        more=f"May be added: {', '.join(CACHED_ROUTES[2:])}.",
    )
    response_cache_temperature_absent: str = _cache(
        "bypass",
        Choice(("bypass", "cache"), metavar="WHAT"),
        "the treatment of requests that set no temperature",
        more="bypass: engines sample then, so they are not cached. cache: as temperature 0, for models whose "
        "generation config is greedy.",
    )
    response_cache_key_scheme: str = _cache(
        "canonical",
        Choice(("canonical", "seed004"), metavar="SCHEME"),
        "what of a request must be equal for the response to be shared",
        more="canonical: path, query and every member of the body. seed004: model, messages, temperature, "
        "max_tokens and top_p, of requests that have no other members.",
    )
    response_cache_key_ignore: list[str] = _cache(
        [],
        Words("MEMBER", each=ignored_member),
        "the members of a body that may differ between requests which share a response",
        more=f"Of {', '.join(IGNORED_MEMBERS)}.",
    )
    response_cache_tenant_source: str = _cache(
        "credential",
        Choice(
            ("credential", "header", "header_credential", "shared"),
            aliases={"header+credential": "header_credential"},
            metavar="SOURCE",
        ),
        "what tells tenants apart, which never share a response",
        more="credential: Authorization, x-api-key and api-key. header: --response-cache-tenant-header, "
        "which a gateway in front must set. header_credential, also header+credential: both. shared: "
        "nothing, so that all clients share responses.",
    )
    response_cache_tenant_header: str | None = _cache(
        None,
        HeaderName(),
        "the header that names the tenant, for --response-cache-tenant-source header and header_credential",
        more="Requests without it bypass the cache.",
    )
    response_cache_store_headers: list[str] = _cache(
        [],
        Words("HEADER", each=kept_header),
        "the headers of a response that are stored besides its Content-Type",
    )
    response_cache_coalesce: str = _cache(
        "answers",
        Choice(
            ("off", "answers"),
            later={"all": "streams are not followed live: use answers"},
            metavar="WHICH",
        ),
        "the requests that wait for the response to an equal one that is under way",
        more="answers: those whose response is no stream. off: none.",
    )
    response_cache_coalesce_wait_ms: int = _cache(
        30_000,
        Number(1, 3_600_000),
        "the maximum time in milliseconds for which a request waits for the response to an equal one",
        more="After it the request goes to a worker.",
    )
    response_cache_coalesce_max_followers: int = _cache(
        256,
        Number(1, 65_536),
        "the maximum number of requests that wait for the response to one",
        more="Further ones go to a worker.",
    )
    response_cache_coalesce_max_promotions: int = _cache(
        2,
        Number(0, 1000),
        "the maximum number of waiting requests that take the place of a failed one, one after the other",
        more="After it all that wait go to workers.",
    )
    response_cache_replay_events_per_second: int = _cache(
        0,
        Number(1, 1_000_000, zero="as fast as the client reads"),
        "the rate at which the events of a stored stream are sent",
        more="For interfaces that animate text.",
    )
    response_cache_invalidate_on: list[str] = _cache(
        [*INVALIDATING_PATHS],
        Words("PATH", each=invalidating_path),
        "the paths of requests after which stored responses of their model are not used any more",
        more="With * at the end all paths with that prefix.",
    )
    response_cache_redis_key_prefix: str = _cache(
        "cr:resp:",
        KeyPrefix(),
        "the prefix of the response cache's keys in Redis",
        more="The default is followed by the fleet's name (--peer-sync-fleet) or, while that is "
        "default, by a digest of the workers' URLs; another prefix is used as it is. Fleets must "
        "have different ones.",
        live="restart",
    )
    response_cache_lookup_budget_ms: int = _cache(
        100,
        Number(1, 60_000),
        "the maximum time in milliseconds for which a request waits for a stored response in Redis",
        more="After it the request goes to a worker.",
        live="restart",
    )
    response_cache_store_queue_bytes: int = _cache(
        16 * 2**20,
        Number(2**20, 2**40, metavar="BYTES"),
        "the maximum size in bytes of responses that wait to be sent to Redis, per thread",
        more="Beyond it the newest are dropped.",
        live="restart",
    )
    response_cache_integrity_key_file: str | None = _cache(
        None,
        Text("FILE"),
        "the file of the secret, of 32 bytes at least, with which responses in Redis are signed",
        more="All routers of a fleet need the same. With it, responses that are not signed are ignored: for "
        "a Redis that others can write to. Read at the start.",
        live="restart",
    )
    response_cache_health_interval_secs: float = _cache(
        30,
        Number(1, 3600, whole=False, seconds=True, metavar="SECS"),
        "the interval in seconds between probes of a Redis that stays down",
        more="The first five come 1, 2, 4, 8 and 16 s after the failure.",
        live="restart",
    )
    response_cache_fallback_to_memory: bool = _cache(
        True,
        Switch(),
        "keep responses in memory while Redis is down",
        more="Otherwise requests bypass the cache meanwhile.",
        live="restart",
    )
    response_cache_fallback_capacity: int = _cache(
        1000,
        Number(1, 10_000_000),
        "the maximum number of responses in memory while Redis is down",
        live="restart",
    )
    response_cache_fallback_ttl_secs: float = _cache(
        300,
        Number(1, MAX_TTL_SECS, whole=False, seconds=True, metavar="SECS"),
        "the time in seconds for which a response is used that was stored in memory while Redis was down",
        live="restart",
    )

    connect_timeout_secs: float = _timeouts(5, Seconds(), "the timeout for connecting to a worker")
    first_byte_timeout_secs: float = _timeouts(
        0,
        Seconds("as --request-timeout-secs"),
        "the timeout for the first byte of a worker's response",
        more="It includes waiting in the engine's queue and prefill. 0 means --request-timeout-secs.",
    )
    request_timeout_secs: float = _timeouts(1800, Seconds(), "the timeout of a response that does not stream")
    stream_idle_timeout_secs: float = _timeouts(
        600, Seconds("no limit"), "the idle timeout within a worker's response", more="0 sets no limit."
    )
    stream_total_timeout_secs: float = _timeouts(
        0, Seconds("no limit"), "the timeout of a whole stream (text/event-stream)", more="0 sets no limit."
    )
    dead_worker_grace_secs: float = _timeouts(
        10,
        Seconds(low=0),
        "the time for which a response that has begun may continue after its worker was found dead",
        more="Dead means unhealthy and not accepting connections. 0 aborts responses at once.",
    )
    upstream_write_timeout_secs: float = _timeouts(
        60, Seconds(), "the write timeout towards workers, without progress"
    )
    client_head_timeout_secs: float = _timeouts(
        30,
        Seconds(),
        "the timeout for a request's head",
        more="It runs from accept for a connection's first request, TLS handshake included; from the first "
        "byte for later ones.",
    )
    client_body_timeout_secs: float = _timeouts(60, Seconds(), "the idle timeout within a request's body")
    half_closed_clients: str = _timeouts(
        "abort",
        Choice(("abort", "serve")),
        "the handling of a request whose client closes its sending side while it waits",
        more="abort: the request is cancelled at its worker, since a client that has disconnected looks "
        "the same. serve: the client gets its response, and a disconnect is noticed when something is "
        "written to the client.",
    )
    client_min_body_rate: int = _timeouts(
        1024,
        Number(1, 2**27, zero="off", metavar="BYTES"),
        "the minimum rate of a request's body in bytes per second, averaged over 30 s of waiting for it",
        more="Slower clients get 408, after as little as a second when other requests wait for the "
        "memory or the permit that the upload holds. A pause counts as slow.",
    )
    client_idle_timeout_secs: float = _timeouts(
        620,
        Seconds(),
        "the idle timeout of a client's connection between requests",
        more="Longer than that of load balancers in front, so that they close first and no request is lost.",
    )
    client_write_timeout_secs: float = _timeouts(
        300, Seconds(), "the write timeout towards clients, without progress"
    )

    max_payload_size: int = _limits(
        512 * 2**20,
        Number(1, 2**50),
        "the maximum size of a request body, in bytes",
        more="Larger bodies get 413.",
        live="request",
    )
    max_connections: int = _limits(
        0,
        Number(0, 2**31 - 1),
        "the maximum number of open connections from clients",
        more="At the limit the longest idle connection is closed for a new one. Connections to the admin and "
        "metrics ports count. 0 means what the limit of open files allows.",
        live="request",
    )
    body_memory_mb: int = _limits(
        0,
        Number(16, 2**20, zero="a quarter of this process's memory, but at least 256"),
        "the memory for buffered request bodies, in MiB",
        more="Shared by all threads; bodies of more than 64 KiB count. When it is used up, further bodies "
        "wait, and get 503 after --queue-timeout-secs.",
    )
    upstream_pool_size: int = _limits(
        256, Number(0, 65536), "the maximum number of idle connections kept per worker and thread", live="new"
    )
    upstream_pool_idle_secs: float = _limits(
        4,
        Seconds(),
        "the idle timeout of a connection to a worker",
        more="The default is shorter than the 5 s after which uvicorn closes, so that no request meets a "
        "closing connection.",
        live="new",
    )

    health_check_interval_secs: float = _health(
        10,
        Seconds("no checks"),
        "the interval between health checks of a healthy worker",
        more="An unhealthy worker is checked every 2 s, a suspected one every second, if that is sooner. 0 "
        "turns checks off, which needs a restart.",
    )
    health_check_timeout_secs: float = _health(5, Seconds(), "the timeout of a health check")
    health_check_endpoint: str = _health(
        "/health",
        RequestPath(),
        "the path of health checks; 2xx means healthy",
    )
    health_failure_threshold: int = _health(
        3,
        Number(1, 2**31 - 1),
        "the number of consecutive failed checks that make a worker unhealthy",
    )
    health_success_threshold: int = _health(
        2,
        Number(1, 2**31 - 1),
        "the number of consecutive passed checks that make an unhealthy worker healthy again",
    )

    health_compat: bool = _health(
        False,
        Switch(),
        "return 503 from GET /health as soon as one worker is unhealthy, as vllm-project/router does",
        more="Otherwise it returns 200 while any worker is healthy.",
    )
    hang_detection_factor: float = _health(
        5,
        Number(2, 1000, zero="no detection", whole=False),
        "how many times longer than usual a worker may be silent, while requests wait there and other "
        "workers serve, until it gets no new requests",
        more="Never below 5 s in all. Finds a worker that passes its health check and serves nothing. "
        "Raise it if workers pause one by one, as for weight updates.",
    )
    slow_start_secs: float = _health(
        30,
        Seconds(low=0),
        "the slow-start window after a worker recovers, in which its share of load grows to its full weight",
        more="The share starts at a tenth. 0 gives the full share at once.",
    )

    shutdown_grace_period_secs: float = _shutdown(
        180,
        Seconds(low=0),
        "the time for requests in flight to finish after SIGTERM",
    )
    drain_timeout_secs: float = _shutdown(
        300,
        Seconds(low=0),
        "the drain timeout: the time for a draining worker's requests to finish, unless POST /admin/drain "
        "sets another",
    )
    shutdown_settle_secs: float = _shutdown(
        0,
        Seconds(low=0),
        "the time to keep accepting connections after SIGTERM, with /readiness already at 503",
        more="About 5 is a good value behind Kubernetes.",
    )

    log_level: str | None = _logs(
        None,
        Choice(("debug", "info", "warn", "error", "critical"), aliases={"warning": "warn"}),
        "the minimum log level",
        cli_default="info",
        more="warning means warn.",
        live="request",
    )
    log_dir: str | None = _logs(
        None,
        Text("DIRECTORY"),
        "the directory for log files, one per day",
        more="In any case, the access log goes to stdout and all other messages to stderr.",
    )
    log_format: str = _logs(
        "text", Choice(("text", "json")), "the format of log lines, the access log included"
    )
    receipts: int = _logs(
        8192,
        Number(0, 1_000_000),
        "the number of receipts that each thread keeps; a receipt is the record of one routing decision",
        scope="routing",
        more="GET /admin/receipts shows them. A receipt takes 192 bytes. 0: none are kept.",
    )
    receipt_detail_every: int = _logs(
        16,
        Number(0, 2**31 - 1),
        "one request in so many has a receipt that shows the candidates of its decision",
        more="Explaining a decision takes some microseconds. The last 1,024 lists are kept. 0: none has.",
    )
    dashboard: bool = _logs(
        True,
        Switch(),
        "serve a page that shows the fleet in a browser, at /dashboard beside the admin endpoints",
        more="It has no data before an admin's key, if admins have keys, and changes nothing.",
    )
    record_log: str | None = _logs(
        None,
        Text("FILE"),
        "the file to which a line per request is written for a replay: times, lengths and salted hashes",
        more="It holds no content. The file is appended to, and reopened on SIGHUP. With it, request "
        "bodies up to 8 MiB are buffered under every policy. See docs/reference/record_log.md.",
    )
    record_log_salt_file: str | None = _logs(
        None,
        Text("PATH"),
        "the file of the secret salt of the hashes in --record-log",
        more="It has 16 bytes that only their owner may read, and is created if missing. Unset: a new salt "
        "for each run, so that hashes of different runs do not match.",
    )
    prometheus_host: str | None = _logs(
        None, Text("ADDRESS"), "the address of the metrics listener", cli_default="127.0.0.1"
    )
    prometheus_port: int | None = _logs(
        None,
        Number(0, 65535),
        "the port of the metrics listener, which serves GET /metrics",
        cli_default=29000,
        more="0 takes any free port and logs it at level info.",
    )

    enable_trace: bool = _traces(
        False,
        Switch(),
        "send spans of requests to a collector of OpenTelemetry",
        more="Workers get a traceparent of each attempt. See docs/how-to/monitor.md.",
    )
    otlp_traces_endpoint: str | None = _traces(
        None,
        CollectorUrl(),
        "the collector that gets the spans of --enable-trace, by OTLP over HTTP",
        more="Without a path, /v1/traces is meant. Unset: as OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or "
        "OTEL_EXPORTER_OTLP_ENDPOINT of the environment says, or else http://localhost:4318.",
        aliases=("otel_endpoint",),
        urls=True,
    )
    otel_sampling_ratio: float = _traces(
        1.0,
        Number(0, 1, whole=False),
        "the share of traces whose spans are sent",
        more="It is for traces that start here: of others the client's traceparent decides.",
    )
    otel_excluded_paths: list[str] = _traces(
        ["/health", "/health_generate", "/liveness", "/readiness"],
        Words("PATH", commas=False),
        "the paths that are not traced",
        more="The list replaces the default one.",
    )
    otel_service_name: str | None = _traces(
        None,
        Text("NAME"),
        "the name of this service in traces",
        more="Unset: as OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES of the environment says, or else "
        "vllm-router.",
    )

    holdout_percent: float = _holdout(
        0,
        Number(0, 20, whole=False),
        "the share of conversations, in percent, that --holdout-policy routes instead of --policy, to "
        "measure what the policy saves",
        more="1 is a good value; it counts in steps of 0.01. 0: none. See "
        "docs/how-to/measure_what_the_policy_saves.md.",
    )
    holdout_policy: str = _holdout(
        "least_load",
        Choice(
            ("least_load", "power_of_two", "random"),
            aliases={"least_loaded": "least_load", "least_request": "least_load"},
        ),
        "the policy that chooses the workers of conversations that --holdout-percent holds out",
    )
    holdout_secret_file: str | None = _holdout(
        None,
        Text("PATH"),
        "the file of the secret that decides which conversations --holdout-percent holds out",
        more="It has 16 bytes or more. Routers with the same secret hold the same conversations out, also "
        "after a restart. Unset: a new secret for each run.",
    )

    epp_port: int | None = _picker(
        None,
        Number(0, 65535),
        "the port at which gateways have workers picked for their requests, by Envoy's ext_proc",
        more="Plain gRPC unless --epp-tls is set; it is for a network of your own. 0 takes any free port and "
        "logs it at level info. Unset: no such port. See docs/how-to/pick_endpoints_for_a_gateway.md.",
    )
    epp_host: str = _picker("0.0.0.0", Text("ADDRESS"), "the address of --epp-port and --epp-health-port")
    epp_health_port: int | None = _picker(
        None,
        Number(0, 65535),
        "a second port for the health service of --epp-port, alone",
        more="For probes that expect it elsewhere: those of the Gateway API Inference Extension use 9003.",
    )
    epp_metadata_namespace: str = _picker(
        "envoy.lb",
        Text("NAMESPACE"),
        "the namespace of dynamic metadata in which the gateway gets the worker, and names the one that "
        "served",
    )
    epp_subset_namespace: str = _picker(
        "envoy.lb.subset_hint",
        Text("NAMESPACE"),
        "the namespace of metadata in which the gateway lists the endpoints to pick from",
    )
    epp_fallbacks: int = _picker(
        0,
        Number(0, 8),
        "how many endpoints the gateway is told besides the chosen one, for attempts after the first",
        more="Each costs about a decision; the gateway's cluster has to take a list.",
    )
    epp_tls: bool = _picker(
        False,
        Switch(),
        "serve --epp-port by TLS, with the certificate of --tls-cert-path",
        more="--tls-client-ca-file and --tls-min-version hold there, too. --epp-health-port stays plain.",
    )
    epp_only: bool = _picker(
        False,
        Switch(),
        "proxy no requests: --port serves the router's own endpoints alone",
        more="Health, metrics and administration go on there.",
    )

    max_concurrent_requests: int = _resilience(
        32768,
        Number(1, 2**31 - 1),
        "the maximum number of concurrent requests to workers",
        more="Shared by all threads; a request counts until the last byte of its response. Requests beyond "
        "it wait in the queue. The limit of open files may allow fewer.",
    )
    queue_size: int = _resilience(
        100,
        Number(0, 1_000_000),
        "the maximum number of requests that wait in the queue",
        more="The queue is first in, first out; requests beyond it get 429. 0: no queue.",
    )
    queue_timeout_secs: float = _resilience(
        60, Seconds(), "the time that a request may wait in the queue before it gets 408"
    )
    admission_config: str | None = _resilience(
        None,
        Text("FILE"),
        "the YAML file of priority classes: how many requests of each may wait, and for which workers",
        more="It is read again when it changes. Without it, requests are dispatched as they come. See "
        "docs/how-to/share_a_fleet.md.",
    )
    program_admission: str = _resilience(
        "off",
        Choice(("off", "observe", "on")),
        "what is done where agents' programs need more KV cache than the workers have",
        more="on: some wait, so that the others keep their prompts cached. observe: counts what on would do. "
        "See docs/how-to/share_a_fleet.md.",
    )
    max_programs: int = _resilience(
        65536,
        Number(1, 1_000_000),
        "the number of programs that --program-admission tells apart",
        more="About 400 bytes each. Of more, the one that was paused first is forgotten.",
        live="restart",
    )
    enable_program_scheduling: bool = _resilience(
        False,
        Switch(),
        "set --program-admission on, as in the reference router",
        live="restart",
    )
    program_scheduling_config_json: str | None = _resilience(
        None,
        JsonObject(),
        "the settings of --enable-program-scheduling, by the names of the reference router",
        more="What has no counterpart here is named in a warning. The member programs of "
        "--admission-config counts more.",
        live="restart",
    )
    rate_limit_tokens_per_second: int | None = _resilience(
        None,
        Number(1, 1_000_000),
        "the maximum number of requests admitted per second",
        more="Requests beyond it get 429. Unset: no such limit.",
    )
    rate_limit_scope: str = _resilience(
        "fleet",
        Choice(("fleet", "router")),
        "the routers that share --rate-limit-tokens-per-second and the limits of tenants, when --peer-sync "
        "connects them",
        more="fleet: all of them, which lease parts of it from Redis and tell each other what tenants used; "
        "while it is down each has its share. router: each has all of it.",
        live="restart",
    )
    max_worker_requests: int = _resilience(
        0,
        Number(0, 2**31 - 1),
        "the maximum number of concurrent requests of one worker",
        scope="routing",
        more="A worker that has this many is not chosen; when all have, requests wait in the queue. 0: no "
        "limit.",
        live="restart",
    )
    ticket_lease_secs: float = _resilience(
        0,
        Seconds("never"),
        "the lease after which a ticket of select() that is not renewed ends, as if its client had "
        "disconnected",
        scope="routing",
        more="For programs that embed the router and may lose tickets; see Ticket.renew().",
        on_command_line=False,
        live="restart",
    )
    retry_max_retries: int = _resilience(
        5,
        Number(1, 1000),
        "the maximum number of attempts of a request",
        more="1 means no retries. No request is retried once the client has a byte of a response, unless by "
        "--continue-streams.",
    )
    retry_lost_requests: int = _resilience(
        1,
        Number(0, 1000),
        "maximum retries of a request whose connection was lost after the worker had all of it, or whose "
        "response was not valid HTTP",
        more="Such a request may have crashed its worker. Requests that no worker had in full are "
        "retried up to --retry-max-retries.",
    )
    retry_initial_backoff_ms: int = _resilience(
        50,
        Number(1, 3_600_000),
        "the initial back-off before a retry, in milliseconds",
        more="There is no back-off before the first retry after a connection failed or broke, if another "
        "worker is left.",
    )
    retry_max_backoff_ms: int = _resilience(
        30000, Number(1, 3_600_000), "the maximum back-off before a retry, in milliseconds"
    )
    retry_backoff_multiplier: float = _resilience(
        1.5, Number(1, 100, whole=False), "the factor by which the back-off grows from retry to retry"
    )
    retry_jitter_factor: float = _resilience(
        0.2, Number(0, 1, whole=False), "the random share of the back-off, up or down"
    )
    retry_budget: float = _resilience(
        0.2,
        Number(0, 100, whole=False),
        "the maximum number of retries, as a share of the requests of the last ten seconds",
        more="It keeps an outage from multiplying load. Ten retries per second are allowed in addition; "
        "all threads share the budget.",
    )
    disable_retries: bool = _resilience(False, Switch(), "send each request only once")
    cb_failure_threshold: int = _resilience(
        10,
        Number(1, 100_000),
        "the number of consecutive failures that open a worker's circuit breaker",
        more="Broken connections, timeouts and 5xx where other workers do better count; clients that "
        "disconnect and 4xx do not.",
    )
    cb_success_threshold: int = _resilience(
        3,
        Number(1, 100_000),
        "the number of consecutive successful probes that close an open circuit breaker",
    )
    cb_timeout_duration_secs: float = _resilience(
        60,
        Seconds(),
        "the time for which a circuit breaker stays open before one request at a time probes the worker",
        more="A worker that could not be reached is probed as soon as it passes its health check again.",
    )
    cb_window_duration_secs: float = _resilience(
        120, Seconds(), "the time for which a failure counts towards --cb-failure-threshold"
    )
    disable_circuit_breaker: bool = _resilience(False, Switch(), "keep all circuit breakers closed")

    continue_streams: str = _continued(
        "off",
        Choice(("off", "verified", "tokens")),
        "the event streams that go on at another worker when their own is lost, fails or drains for too long",
        more="verified: those of completions and chats with temperature 0 or a seed. The request runs again, "
        "and what the client has must be the start of that run; else the stream is cut. tokens: sampled ones "
        "as well. Requests have vLLM return token ids, which clients do not see, and these are the prompt of "
        "a request for the rest. off: none; they are cut. See docs/how-to/continue_streams.md.",
    )
    continue_max: int = _continued(
        2,
        Number(1, 255),
        "the maximum number of times that one stream goes on",
        more="Each is a retry as well: the limits of retries hold.",
    )
    continue_memory_mb: int = _continued(
        256,
        Number(1, 2**20),
        "the memory for requests whose streams may go on, in MiB",
        more="Shared by all threads. A stream that begins while it is used up is cut if its worker is lost.",
        live="restart",
    )
    continue_keepalive_secs: float = _continued(
        5,
        Seconds(low=0),
        "the interval at which a client that waits for the rest of its stream is sent a comment",
        more="0: no comments.",
    )
    continue_wait_secs: float = _continued(
        30,
        Seconds(low=0),
        "the time for which a stream waits for a place while all workers that may have it are at "
        "--max-worker-requests",
        more="It stands before requests that came later. 0: it is cut at once.",
    )
    continue_drain_secs: float = _continued(
        0,
        Seconds(low=0),
        "the time from the begin of a worker's drain until its streams are handed over to other workers",
        more="Each moves once its second run has all that the client has. 0: streams stay until the drain's "
        "time is over.",
    )
    continue_stall_secs: float = _continued(
        0,
        Seconds(low=0),
        "the time for which a worker sends nothing of a stream until another one gets the request as well",
        more="The first of the two that has something new goes on. 0: none does.",
    )
    continue_rerun_tokens: int = _continued(
        512,
        Number(0, 2**32 - 1),
        "the number of generated tokens up to which a stream runs again, if it may, though its ids are known",
        more="Only with --continue-streams tokens.",
    )
    continue_max_tokens: int = _continued(
        131_072,
        Number(1, 2**32 - 1),
        "the number of token ids that are kept of one stream, its prompt's included",
        more="A longer one goes on by running again, or is cut. Only with --continue-streams tokens.",
    )

    api_key_validation_urls: list[str] = _security(
        [],
        Words("URL", each=validation_url),
        "the URLs of services that validate clients' API keys",
        urls=True,
        more="Status 200 from any of them makes a key valid that --client-api-key-file has not. If "
        "this is unset, the command reads API_KEY_VALIDATION_URLS from the environment.",
    )
    api_key_validation_cache_secs: float = _security(
        300,
        Seconds(low=0),
        "the time for which a valid API key is cached",
        more="An invalid key is cached for 10 s at most, a failed validation not at all.",
    )
    api_key_validation_timeout_secs: float = _security(
        5, Seconds(), "the timeout of a request to one of --api-key-validation-urls"
    )
    client_api_key_file: str | None = _security(
        None,
        Text("PATH"),
        "the file of API keys that clients must send, one per line",
        more="It is reloaded when it changes, and on SIGHUP. Without it, clients need no key. See "
        "docs/how-to/rotate_keys.md.",
    )
    tenant_header: str | None = _security(
        None,
        TenantHeader(),
        "the header by which a trusted gateway names the tenant of a request",
        more="A gateway is trusted by the attribute trusted of its key, or by --trusted-addresses. Of others "
        "the header is ignored and counted (tenant_headers_ignored_total).",
    )
    trusted_addresses: list[str] = _security(
        [],
        Words("CIDR", each=ip_range),
        "the IP addresses, or ranges of them such as 10.0.0.0/8, of gateways whose headers count",
        more="Their headers name tenants and any priority class, so they must remove those that their own "
        "clients send. The address is that of the connection, never that of X-Forwarded-For.",
    )
    model_alias_class: list[str] = _security(
        [],
        Words("ALIAS=CLASS", commas=False, each=alias_class),
        "the priority class of requests for a --model-alias: interactive, default or batch; may be repeated",
        more="It counts where neither a header nor the body claims a class, and up to the highest class that "
        "the client's key permits.",
    )
    max_tenants: int = _security(
        65536,
        Number(1, 1_000_000),
        "the number of tenants whose tokens are counted apart, and of those whose limits are",
        more="About 200 bytes each. Of more, the least recently seen is forgotten, unless its limits "
        "are in use; then newcomers share limits.",
    )
    admin_api_key_file: str | None = _security(
        None,
        Text("PATH"),
        "the file of API keys for admin endpoints (the fleet, /admin), one per line",
        more="Without it, admin endpoints need no key, and are closed if clients need one.",
    )
    admin_host: str = _security("127.0.0.1", Text("ADDRESS"), "the address of the admin port")
    admin_port: int | None = _security(
        None,
        Number(0, 65535),
        "a separate port for admin endpoints, for which --port then returns 404",
        more="0 takes any free port and logs it at level info. Unset: admin endpoints are on --port.",
    )
    fan_out_path: list[str] = _security(
        [],
        Words("PATH", each=fan_out_path),
        "additional paths whose requests go to all workers, as those of /flush_cache do",
        more="Such as /own_rpc, or /hooks* for all paths with that prefix. They are admin endpoints. GET and "
        "HEAD go to one worker, as other requests do; an entry 'GET /own_rpc' sends those to all, too.",
    )
    cors_allowed_origins: list[str] = _security(
        [],
        Words("ORIGIN", each=origin),
        "origins of web pages that may read responses",
        urls=True,
        more="Such as https://chat.example. Unset: none. * allows any, except for admin endpoints, which "
        "reject requests that browsers make for pages of origins that are not named here.",
        live="request",
    )
    tls_cert_path: str | None = _security(
        None,
        Text("PATH"),
        "the certificate presented to clients, with its intermediate certificates (PEM)",
        more="With it and --tls-key-path, --port and --admin-port speak TLS only. All TLS files are "
        "reloaded on SIGHUP.",
    )
    tls_key_path: str | None = _security(
        None, Text("PATH"), "the private key of --tls-cert-path (PEM, without a password)"
    )
    tls_client_ca_file: str | None = _security(
        None,
        Text("PATH"),
        "the CA bundle (PEM) that client certificates must chain to",
        more="Unset: clients need no certificate.",
    )
    tls_min_version: str = _security(
        "1.2",
        Choice(("1.2", "1.3"), metavar="VERSION"),
        "the minimum TLS version, with clients and with workers",
    )
    tls_ciphers: str = _security(
        "ECDHE+AESGCM:ECDHE+CHACHA20",
        Text("CIPHERS"),
        "the cipher suites of TLS 1.2, with clients and with workers, in OpenSSL's notation",
        more="The default has forward secrecy and authenticated encryption. Cipher suites of TLS 1.3 are "
        "not affected.",
    )
    worker_ca_file: str | None = _security(
        None,
        Text("PATH"),
        "the CA bundle (PEM) that certificates of workers at https:// must chain to",
        more="Unset: the system's CA bundle.",
    )
    worker_cert_path: str | None = _security(
        None, Text("PATH"), "the certificate presented to workers that request one (PEM)"
    )
    worker_key_path: str | None = _security(None, Text("PATH"), "the private key of --worker-cert-path (PEM)")
    worker_tls_insecure: bool = _security(
        False,
        Switch(),
        "skip the verification of workers' certificates",
        more="Connections to workers can then be intercepted, prompts and keys included.",
    )

    vllm_pd_disaggregation: bool = _stages(
        False,
        Switch(),
        "serve each request with two workers: one computes the prompt's KV blocks (prefill), the other "
        "generates (decode)",
        aliases=(
            Alias("pd_disaggregation", selects={"kv_connector": "auto"}),
            Alias("mode", kind=Choice(("regular", "pd")), meaning={"regular": False, "pd": True}),
        ),
        more="--worker-urls is ignored then. --pd-disaggregation also selects --kv-connector auto, unless "
        "one is given.",
    )
    prefill_urls: list[tuple[str, int | None]] = _stages(
        [],
        Raw("URL [PORT]", rows=True),
        "the URL of a prefill worker, and its bootstrap port or none",
        urls=True,
        spelled="prefill",
        aliases=(Alias("prefill_workers", kind=Raw("URL", split=True)),),
        more="May be repeated. --prefill-workers takes several URLs, separated by blanks or commas. Without "
        "a port: --bootstrap-port.",
    )
    decode_urls: list[str] = _stages(
        [],
        Raw("URL", nargs=1, rows=True),
        "the URL of a decode worker",
        urls=True,
        spelled="decode",
        aliases=(Alias("decode_workers", kind=Raw("URL", split=True)),),
        more="May be repeated. --decode-workers takes several URLs, separated by blanks or commas.",
    )
    prefill_selector: dict[str, str] | list[str] = _stages(
        {},
        LabelSelector(),
        "the labels of the prefill workers' pods",
        scope="server",
        more="With --service-discovery; terms as of --selector. A pod that --decode-selector matches, "
        "too, is no worker. The annotation vllm.ai/bootstrap-port of a pod is its bootstrap port.",
    )
    decode_selector: dict[str, str] | list[str] = _stages(
        {},
        LabelSelector(),
        "the labels of the decode workers' pods",
        scope="server",
        more="With --service-discovery; terms as of --selector. Without a label in common with "
        "--prefill-selector, all pods of the namespaces are listed.",
    )
    bootstrap_port_annotation: str = _stages(
        "vllm.ai/bootstrap-port",
        AnnotationName(),
        "the annotation with a prefill pod's bootstrap port",
        scope="server",
        on_command_line=False,
    )
    prefill_dns: list[str] = _stages(
        [],
        Words("URL", each=dns_url),
        "the URLs whose host stands for one prefill worker per address that DNS has for it",
        scope="server",
        urls=True,
        more="As --worker-dns. A worker that --decode-dns or --decode-srv finds, too, is left out.",
    )
    decode_dns: list[str] = _stages(
        [],
        Words("URL", each=dns_url),
        "the URLs whose host stands for one decode worker per address that DNS has for it",
        scope="server",
        urls=True,
        more="As --worker-dns.",
    )
    prefill_srv: list[str] = _stages(
        [],
        Words("NAME", each=srv_name),
        "the names of DNS SRV records, each of which is a prefill worker",
        scope="server",
        more="As --worker-srv.",
    )
    decode_srv: list[str] = _stages(
        [],
        Words("NAME", each=srv_name),
        "the names of DNS SRV records, each of which is a decode worker",
        scope="server",
        more="As --worker-srv.",
    )
    prefill_policy: str | None = _stages(
        None, POLICY, "the policy that chooses the prefill worker", more="Unset: that of --policy."
    )
    decode_policy: str | None = _stages(
        None,
        POLICY,
        "the policy that chooses the decode worker",
        more="Unset: that of --policy; or, if that matches prompts, least_load by tokens, since a decode "
        "worker gets a prompt's blocks from elsewhere.",
    )
    prefill_data_parallel_size: int = _stages(
        0,
        Number(1, 4096, zero="as --intra-node-data-parallel-size"),
        "the number of data-parallel ranks behind each prefill worker URL",
    )
    decode_data_parallel_size: int = _stages(
        0,
        Number(1, 4096, zero="as --intra-node-data-parallel-size"),
        "the number of data-parallel ranks behind each decode worker URL",
    )
    vllm_discovery_address: str | None = _pd(
        None,
        ListenAddress(),
        "the address at which prefill and decode workers register themselves by ZeroMQ messages",
        more="As vLLM's MoRI-IO and P2P-NCCL connectors do. --prefill and --decode are ignored then. "
        "Any process that reaches it can register workers.",
        live="restart",
    )
    vllm_discovery_allow: list[str] = _pd(
        [],
        Words("CIDR", each=ip_range),
        "the IP addresses, or ranges of them such as 10.0.0.0/8, of workers that may register",
        more="Unset: any. Of both a worker's address and the one that its messages come from. Only workers "
        "that are named so get --api-key.",
        live="restart",
    )
    discovery_forget_secs: float = _pd(
        60,
        Seconds(),
        "the time without a message after which a worker that has registered is removed",
        more="After 5 s it gets no new requests.",
        live="restart",
    )
    pd_bypass_uncached_tokens: int = _stages(
        0,
        Number(0, 2**31 - 1),
        "the maximum number of tokens of a prompt that a decode worker computes by itself, so that the "
        "request bypasses prefill: tokens beyond those in its cache, and all of a short prompt",
        more="0: no request bypasses prefill. Decode workers of SGLang cannot compute prompts.",
    )
    pd_bypass_queued_tokens: int = _stages(
        4096,
        Number(0, 2**31 - 1),
        "the maximum number of prompt tokens that wait to be computed at a decode worker, with those of the "
        "request, for a request that bypasses prefill",
        more="Its running requests slow down meanwhile.",
    )
    kv_connector: str = _pd(
        "nixl",
        KV_CONNECTOR,
        "how KV blocks get from prefill to decode workers, as the engines' --kv-transfer-config says",
        more="auto: nixl or sglang, by the engine that workers name in their lists of models; all must be of "
        "one engine.",
        live="restart",
    )
    bootstrap_port: int = _pd(
        8998,
        Number(1, 65535),
        "the bootstrap port of prefill workers for which --prefill names none",
        more="It is where mooncake learns of engines. sglang takes the port of --prefill, or none.",
    )
    pd_transfer_timeout_secs: float = _pd(
        30,
        Seconds(),
        "the maximum time from a decode worker's request for a stream, with blocks to fetch, to its first "
        "byte",
        more="Other responses begin when they are complete.",
    )
    pd_prefill_timeout_secs: float = _pd(
        0,
        Seconds("as --request-timeout-secs"),
        "the maximum time of a prefill worker's request",
    )
    pd_handoff_limit_ms: int = _pd(
        10000,
        Number(100, 60000),
        "the maximum age in milliseconds of a prefill worker's blocks when a decode worker is sent for them",
        more="Keep it below the engines' lease of such blocks, 30 s.",
    )
    pd_grace_ms: int = _pd(
        500,
        Number(0, 10000),
        "the time in milliseconds for which a request that is of no use any more stays open, so that its "
        "engine has seen it before it is aborted",
    )
    pd_drain_secs: float = _pd(
        60,
        Number(1, 600, whole=False, seconds=True, metavar="SECS"),
        "the maximum time in seconds for which a prefill runs on whose client has left, where the engines do "
        "not bear its end",
    )
    pd_orphan: str = _pd(
        "reject",
        Choice(("reject", "collect", "expire"), aliases={"refuse": "reject"}, metavar="WHAT"),
        "what frees blocks at a prefill worker that no decode worker will fetch",
        more="reject: a request with their parameters that a decode worker rejects, for vLLM 0.32 and newer; "
        "collect: one that fetches them and generates one token; expire: the engine, once their lease ends.",
    )
    pd_orphan_max: int = _pd(
        64,
        Number(0, 4096),
        "the maximum number of requests of --pd-orphan that are under way at once",
        more="0: none is made.",
    )
    pd_cancel_prefill: str = _pd(
        "auto",
        Choice(("auto", "always", "never"), metavar="WHEN"),
        "when a prefill that is of no use any more is aborted",
        more="auto: where the engines bear it; always: also where blocks may then stay held at a decode "
        "worker; never: it runs to its end.",
    )
    pd_on_prefill_loss: str = _pd(
        "503",
        Choice(("503", "local"), metavar="WHAT"),
        "what becomes of requests for which no prefill worker can be chosen or reached",
        more="503: they fail; local: a decode worker computes their prompts, too.",
    )
    pd_request_id: str = _pd(
        "addresses",
        Choice(("addresses", "plain"), metavar="FORM"),
        "the form of X-Request-Id that both workers get",
        more="addresses: with the addresses of both, which some connectors read; plain: an id of the "
        "router's and 8 hexadecimal digits.",
    )
    pd_extra_routes: list[str] = _pd(
        [],
        Words("PATH", each=pd_route),
        "additional paths whose POST requests are served by two workers, as those of /v1/completions are",
    )
    pd_pass_paths: list[str] = _pd(
        [],
        Words("PATH", each=pd_route),
        "additional paths whose requests one prefill worker serves, such as /abort_request",
        more="With prefill and decode workers, requests to paths that the router does not know get "
        "404, except GET, HEAD and OPTIONS. Name only what neither generates nor reads workers' "
        "addresses from requests. WebSockets have to be named, too.",
    )
    pd_prefill_response_bytes: int = _pd(
        64 * 2**20,
        Number(1024, 2**32),
        "the maximum size in bytes of a prefill worker's response",
    )
    pd_usage: str = _pd(
        "decode",
        Choice(("decode", "merge"), metavar="WHOSE"),
        "which worker's count of the prompt's tokens a response of two workers has",
        more="decode: the decode worker's response as it is; merge: the prefill worker's prompt_tokens, and "
        "the total anew, in /v1/completions and /v1/chat/completions.",
    )
    pd_logprobs: str = _pd(
        "merge",
        Choice(("merge", "decode"), metavar="WHOSE"),
        "which worker's log probabilities of the prompt a response of two workers has",
        more="merge: the prefill worker's are put into the decode worker's response; decode: that response "
        "as it is.",
    )
    pd_sglang_rank_fields: bool = _pd(
        False,
        Switch(),
        "send data-parallel ranks to prefill and decode workers of SGLang as members of requests, too: "
        "routed_dp_rank, and disagg_prefill_dp_rank to the decode worker",
        more="SGLang knows them since 0.5.10; older versions ignore them.",
    )
    pd_strip_client_params: str = _pd(
        "auto",
        Choice(("auto", "always", "never"), metavar="WHEN"),
        "when members of clients' requests that steer transfers of KV blocks, such as kv_transfer_params, "
        "are removed",
        more="auto: in front of prefill and decode workers; always: also without stages, where each "
        "request body is then read whole; never: not where one worker serves the request.",
    )
