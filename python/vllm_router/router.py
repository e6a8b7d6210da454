"""Router: routing as a library, over the same C++ core as the server.

    router = Router(policy="consistent_hash", worker_urls=["http://w1:8000", "http://w2:8000"])
    with router.select(prompt="Hello", headers={"X-Session-ID": "s1"}) as ticket:
        response = post(ticket.worker_url, ...)
    # leaving the block returns the load that select() reserved

A `Ticket` is a promise that load returns: by `finish()`, by leaving its `with` block, or when it is dropped,
exactly once. Everything here is thread-safe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import importlib
import logging
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from vllm_router import _core, _html
from vllm_router._core import Batch, Ticket
from vllm_router._log_streams import CoreHandler, configure_log
from vllm_router._messages import quoted
from vllm_router._secrets import is_open_url
from vllm_router.discovery.source import (
    Difference,
    Follower,
    Source,
    WorkerSpec,
    check_source_name,
    only_specs,
)
from vllm_router.errors import UnusedOptionWarning
from vllm_router.peers import PEER_OPTIONS, Peers
from vllm_router.reload import SettingsFile
from vllm_router.router_args import RouterArgs
from vllm_router.server import Server
from vllm_router.settings.args import PEER_SYNC_STRIDE_TOKENS
from vllm_router.settings.checks import (
    OWN_DEFAULTS,
    check_policy_options,
    check_server_names,
    check_settings,
    has_stages,
)
from vllm_router.settings.names import FLAGS, POLICY_OPTIONS, suggestion

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from vllm_router.option_types import PolicyName, RouterOptions, ServerOptions

__all__ = ["Batch", "PolicyType", "Router", "Ticket", "WorkerInfo", "policy_from_str"]


class PolicyType(enum.Enum):
    """Policies by the names that `vllm_router_rs.PolicyType` has; accepted wherever a policy's name is."""

    Random = "random"
    RoundRobin = "round_robin"
    CacheAware = "cache_aware"
    KvAware = "kv_aware"
    PowerOfTwo = "power_of_two"
    ConsistentHash = "consistent_hash"
    RendezvousHash = "rendezvous_hash"
    StickyLeastLoaded = "sticky_least_loaded"


def policy_from_str(policy: str | None) -> PolicyType | None:
    """The PolicyType of a canonical policy name; None for None.

    Raises:
        KeyError: the name has no PolicyType. (`Router` takes more names: every policy and alias.)
    """
    if policy is None:
        return None
    try:
        return PolicyType(policy)
    except ValueError:
        known = ", ".join(member.value for member in PolicyType)
        raise KeyError(
            f"policy {quoted(policy)} has no PolicyType; those that have one are {known}"
        ) from None


class WorkerInfo(NamedTuple):
    """One worker as it was when `Router.workers` was read. Tokens are estimates."""

    url: str
    """As registered, with `@rank`; its name in every call."""
    healthy: bool
    """False after `set_healthy(url, False)`: not chosen until it is True again."""
    draining: bool
    """True after `drain_worker(url)`: not chosen any more."""
    load: int
    """Open requests: tickets that are not finished."""
    weight: float
    """Relative capacity, 0.01 to 100."""
    rank: int | None
    """Data-parallel rank, for `http://host:8000@2`."""
    queued_prefill_tokens: int
    """Prompt tokens of open requests before their first token."""
    expected_output_tokens: int
    """Output tokens that open requests are expected to make."""
    context_tokens: int
    """Prompt tokens of open requests."""
    selections: int
    """Decisions that chose this worker, ever."""
    waiting_requests: int
    """Open requests before their first token."""
    worker_type: str = "regular"
    """`prefill` or `decode` in a fleet that has these two stages."""


# Of this process: those that a child, made by fork, gets as copies.
_made_here: weakref.WeakSet[Router] = weakref.WeakSet()


def _warn_in_child() -> None:
    """After a fork, in the child: routers that it has inherited warn at their next use, once each."""
    inherited = set(_made_here)
    if not inherited:
        return
    parent = os.getppid()

    def warn(router: Router) -> None:
        if router in inherited:
            inherited.discard(router)
            warnings.warn(
                f"this Router was made in process {parent} and is used in {os.getpid()} after a fork: it is "
                "a copy, which neither counts what the other routes nor hears of workers; make a Router in "
                "each process, or serve one and send requests to it",
                RuntimeWarning,
                stacklevel=3,
            )

    for name in ("select", "select_batch", "select_bypass", "serve", "join_peers"):
        setattr(Router, name, _warning_first(getattr(Router, name), warn))


def _warning_first(method: Callable[..., Any], warn: Callable[[Router], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(router: Router, *args: Any, **options: Any) -> Any:
        warn(router)
        return method(router, *args, **options)

    return call


os.register_at_fork(after_in_child=_warn_in_child)


class _Workers(list[WorkerInfo]):
    """Workers, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return _html.table(WorkerInfo._fields, self)


class Router(_core.Router):
    """Chooses a worker for each request, and keeps count of what every worker has in hand.

    Args:
        policy: A policy's name or alias (`-` and `_` are the same), or a `PolicyType`: `random`,
            `round_robin`, `least_load`, `power_of_two`, `consistent_hash`, `rendezvous_hash`,
            `cache_aware`, `vllm_cache_aware`, `prefix_aware`, `prefix_hash`, `auto`, `sticky_least_loaded`,
            `kv_logit`, `kv_aware`, `kv_overlap`.
            None: `auto`, or `cache_aware` if an option is given that `cache_aware` reads and `auto` does
            not, such as `cache_threshold`.
        worker_urls: URLs of the first workers, in fleet order: `http://host:port[/prefix][@rank]`; or a
            mapping of URLs to weights, as in `add_worker()`. A program that connects to its workers itself
            may give names instead, `ray://<id>` or `name://<id>`; a router with names cannot be served.
        seed: 0 to 2^64-1 makes random choices repeat; None draws one.
        **options: The routing flags of the command line by name, such as `virtual_nodes=160`; `vllm-router
            --help` and docs/reference/cli.md describe them. An option that the policy does not read is
            accepted with an `UnusedOptionWarning`. Flags of the server, such as `host` and `port`, are kept
            for `start()`, and those of `peer_sync` for `join_peers()`.

    Raises:
        TypeError: an unknown option; the message names the nearest one.
        ValueError: an unknown policy, a value out of range, a bad URL.
        WorkerExistsError: a URL appears twice.
    """

    def __init__(
        self,
        policy: PolicyName | PolicyType | None = None,
        worker_urls: Iterable[str] | Mapping[str, float] = (),
        *,
        seed: int | None = None,
        **options: Unpack[RouterOptions],
    ) -> None:
        """The arguments are those of the class."""
        served: dict[str, Any] = {name: value for name, value in options.items() if _is_served(name)}
        routing = {name: value for name, value in options.items() if name not in served}
        if isinstance(worker_urls, str):
            raise TypeError(
                f"worker_urls is {quoted(worker_urls)}; it must be a list of URLs: "
                f"pass [{quoted(worker_urls)}]"
            )
        if not isinstance(worker_urls, Iterable):
            raise TypeError(f"worker_urls is {quoted(worker_urls)}; it must be a list of URLs")
        if policy is not None and not isinstance(policy, (str, PolicyType)):
            raise TypeError(
                f"policy is of type {type(policy).__name__}; it must be the name of a policy, and URLs of "
                "workers come as worker_urls=[...]"
            )
        urls = list(worker_urls)
        for url in urls:
            if not isinstance(url, str):
                raise TypeError(
                    f"worker_urls holds {quoted(url)}; it must hold URLs as str. For weights pass a mapping "
                    "of URLs to weights"
                )
            _check_for_secrets(url)
        name = policy.value if isinstance(policy, PolicyType) else policy
        given = {"policy": name, "seed": seed, **routing}
        checked = check_policy_options(given, warn=_warn)
        if served.get("peer_sync") is not None and checked.get("peer_sync_stride_tokens") == 0:
            # As the command does.
            given["peer_sync_stride_tokens"] = checked["peer_sync_stride_tokens"] = PEER_SYNC_STRIDE_TOKENS
        stages = _stages_of(given, checked)
        _made_here.add(self)
        self._args = RouterArgs(**served)
        self._settings_file: SettingsFile | None = None
        self._set_by: Mapping[str, str] | None = None  # of the command: where settings come from
        self._routing = {name: checked[name] for name in POLICY_OPTIONS if name in checked}
        self._has_stages = stages is not None
        self._routing["vllm_pd_disaggregation"] = self._has_stages
        self._followers: weakref.WeakValueDictionary[str, Follower] = weakref.WeakValueDictionary()
        self._follow_lock = threading.Lock()
        self._peers: Peers | None = None
        if served:
            self._check_served(self._args)
        if stages is not None:
            if checked["prefill_policy"] is not None:
                checked = check_policy_options({**given, "policy": checked["prefill_policy"]}, warn=_quiet)
            super().__init__(urls, checked, stages)
        elif isinstance(worker_urls, Mapping):
            super().__init__([], checked)
            for url, weight in worker_urls.items():
                self.add_worker(url, weight)
        else:
            super().__init__(urls, checked)

    @classmethod
    def from_args(cls, args: RouterArgs) -> Router:
        """A router with the settings of `args`, as the command makes it; `start()` serves with them."""
        options = args.router_options()
        for name in OWN_DEFAULTS:  # their values here are the policy's own where nothing was given
            if getattr(args, name) is None:
                del options[name]
        router = cls(**options)
        router._args = args
        return router

    def serve(self, host: str = "127.0.0.1", port: int = 0, **options: Unpack[ServerOptions]) -> Server:
        """Serve this router over HTTP, in threads of its own.

        Args:
            host: The address to listen on.
            port: The port; 0 takes any free one, see `Server.port`.
            **options: The server's flags of the command line by name, such as `threads=2`,
                `request_timeout_secs=60`, `prometheus_port=0`. Metrics have no port unless one is given.
                The log is the process's: `log_level`, `log_format` and `log_dir` hold for all its servers;
                without any of them it stays as it was, at first `info` and `text`, access log included.
                Those of peer sync are as the router was made with unless they are given; `peer_sync=None` for
                none. The sources of workers, such as `worker_file`, `worker_dns` and `service_discovery`, are
                followed until the server has stopped.

        Raises:
            TypeError: an unknown option, or one of `Router` itself.
            ValueError: a value out of range, a function that is not implemented yet, a `log_dir` that cannot
                be written, or a worker that has a name (`ray://`, `name://`) and no address.
            OSError: the port cannot be had.
            ImportError: `worker_dns` or another setting of DNS is given and the package dnspython is not
                installed, or `service_discovery` and the package kubernetes is not.
        """
        given: dict[str, Any] = dict(options)
        check_server_names(given)
        if given.setdefault("peer_sync", self._args.peer_sync) is not None:
            for name in (*PEER_OPTIONS, "peer_sync_admin"):
                given.setdefault(name, getattr(self._args, name))
        if given.get("prometheus_port") is not None:
            given.setdefault("prometheus_host", "127.0.0.1")
        args = RouterArgs(host=host, port=port, **given)
        self._check_served(args)
        server_options = args.server_options()
        sources = _sources_of(server_options, self._has_stages)
        if any(name.startswith("log_") for name in options):
            configure_log(server_options)
        return Server(self, self._with_routing(args), sources)

    def _check_served(self, args: RouterArgs) -> None:
        staged = self._has_stages
        check_settings(dataclasses.replace(args, vllm_pd_disaggregation=staged), embedded=staged)

    def _with_routing(self, args: RouterArgs) -> RouterArgs:
        """The settings, those of the router itself among them."""
        urls = [] if self._has_stages else self.worker_urls
        return dataclasses.replace(args, worker_urls=urls, **self._routing)

    def start(self) -> int:
        """Serve until SIGTERM or SIGINT, as the command does.

        The settings are those of `from_args()`, or those of the server that the router was made with.

        Returns:
            The exit status: 0, or 3 if requests in flight had to be cut when the grace period ended.

        Raises:
            OSError: a port cannot be had.
            ImportError: `worker_dns` or another setting of DNS is set and the package dnspython is not
                installed, or `service_discovery` and the package kubernetes is not.
        """
        options = self._args.server_options()
        sources = _sources_of(options, self._has_stages)
        configure_log(options)
        with _discovery_in_the_log():
            args = self._with_routing(self._args) if self._set_by is None else self._args
            server = Server(self, args, sources, self._settings_file, self._set_by)
            at, metrics_at, admin_at = server._addresses()
            metrics = f", metrics on {metrics_at}/metrics" if metrics_at else ""
            admin = f", admin endpoints on {admin_at}" if admin_at else ""
            return server.run(f"vllm-router {_core.__version__} serves {at}: {self!r}{metrics}{admin}")

    def reconcile(
        self,
        source: str,
        workers: Iterable[WorkerSpec] | None,
        *,
        complete: bool = True,
        deleted: Iterable[str] = (),
    ) -> Difference:
        """Declare all the workers that a source has now; the fleet changes by what is different from before.

        A worker that is new joins, while a server runs once it passes its health check. One that is not in
        the list any more is drained and removed, unless another source declares it, too; while a server
        runs, as many stay as new ones of the list wait for their first check, for `discovery_hold_secs` at
        most. A list that leaves out too many at once (`discovery_guard`, by default half of those that serve)
        is held for that time; `adopt()` applies it at once.

        Args:
            source: Whose list it is: a name of your own, of a-z, 0-9, `_` and `-`, at most 32 characters.
            workers: All its workers; None: the same as at the last call, whose list may take effect now if it
                was held.
            complete: False: workers that are not in the list stay, unless they are in `deleted`.
            deleted: URLs of workers that were seen to go; they leave at once, however many they are.

        Returns:
            The URLs that joined, left, changed or are held; of ranks each one, `URL@rank`.

        Raises:
            TypeError: `workers` holds something else than `WorkerSpec`, or `deleted` something else than str.
            ValueError: a URL that is none, or is there twice; a name that no source may have; None before the
                first list, or with `deleted`.
            RouterError: the fleet would have more than 4,096 workers.

        Whatever is raised, nothing has changed.
        """
        check_source_name(source)
        specs = None
        if workers is not None:
            if isinstance(workers, (str, Mapping)) or not isinstance(workers, Iterable):
                raise TypeError(
                    f"workers is of type {type(workers).__name__}; it must be a list of WorkerSpec, or None"
                )
            specs = only_specs(workers)
        if not isinstance(deleted, Iterable) or isinstance(deleted, Mapping):
            raise TypeError(
                f"deleted is of type {type(deleted).__name__}; it must be a list of URLs, which may be empty"
            )
        gone = [deleted] if isinstance(deleted, str) else list(deleted)
        for url in (*(spec.url for spec in specs or ()), *gone):
            if not isinstance(url, str):
                raise TypeError(f"deleted holds {quoted(url)}; it must hold URLs as str")
            _check_for_secrets(url)
        if specs is None and gone:
            raise ValueError(
                "workers is None, so the list is the last one; deleted URLs need a list beside them"
            )
        return Difference(*self._reconcile(source, specs, complete, gone))

    def adopt(self, source: str) -> list[str]:
        """Apply the list of a source that is held because it leaves out too many workers.

        Args:
            source: The name of the source.

        Returns:
            The URLs of the workers that leave now; empty if nothing was held.

        Raises:
            ValueError: there is no such source.
        """
        check_source_name(source)
        return self._adopt(source)

    def follow(self, source: Source) -> Follower:
        """List the workers of a source again and again, in a thread of its own, and declare them.

        A router that is made with `worker_file`, `worker_dns`, `worker_srv` or `service_discovery` follows
        those by itself while it is served. A program that does not serve follows them, or sources of its
        own, by this.

        Args:
            source: Such as `FileSource("workers.yaml")`, or one of your own.

        Returns:
            The thread: `first(timeout_secs)` waits for the first list, and `stop()` ends it, as leaving its
            `with` block does. The workers stay in the fleet.

        Raises:
            TypeError: `source` is no `vllm_router.discovery.Source`.
            ValueError: its name cannot be one, or a source of that name is followed already.
        """
        follower = self._announced(source)
        follower.start()
        return follower

    def _announced(self, source: Source) -> Follower:
        """A thread for the source that is not started yet."""
        follower = Follower(self, source)
        with self._follow_lock:
            other = self._followers.get(source.name)
            if other is not None and other.running:
                raise ValueError(
                    f"a source named {source.name} is followed already; stop() that one first, or give this "
                    "one another name"
                )
            follower.announce()
            self._followers[source.name] = follower
        return follower

    def join_peers(self, redis_url: str | None = None, /, **options: Unpack[ServerOptions]) -> Peers:
        """Share what this router knows with others in front of the same workers, without being served.

        They tell each other loads, and decisions under policies that match blocks, such as `auto`, through a
        Redis; so several processes choose as one would. No choice waits for that: without Redis each chooses
        by what it knows itself. A router that is served has `peer_sync` among its settings instead, and both
        kinds may be of one fleet.

        Args:
            redis_url: `redis://host:6379/0`, or `rediss://` for TLS; None: the `peer_sync` that the router
                was made with.
            **options: The flags of peer sync by name, each as the router was made with unless it is given:
                `peer_sync_fleet`, `router_name`, `peer_sync_secret_file`, `peer_sync_password_file`,
                `peer_sync_ca_file`, `peer_sync_cert_path`, `peer_sync_key_path`, `peer_sync_interval_ms`,
                `peer_sync_max_mbps`.

        Returns:
            What `stop()` ends, as leaving its `with` block does, and the end of the router.

        Raises:
            TypeError: an option that is none of these.
            ValueError: no URL, or one that is no Redis's; a value out of range; the router shares with others
                already; or it was made without `peer_sync` and `peer_sync_stride_tokens`, and its policy
                matches blocks.
            OSError: a file cannot be read, or has a secret that is too short.
        """
        for name in options:
            if name not in PEER_OPTIONS:
                raise TypeError(
                    f"{name} is not an option of join_peers()"
                    + suggestion(name, PEER_OPTIONS, f"; those are {', '.join(PEER_OPTIONS)}")
                )
        given: dict[str, Any] = dict(options)
        if redis_url is not None:
            given["peer_sync"] = redis_url
        args = dataclasses.replace(self._args, **given)
        if args.peer_sync is None:
            raise ValueError(
                "redis_url is None, and the router was made without peer_sync; pass the URL of a Redis, "
                "such as redis://host:6379/0"
            )
        self._check_served(args)
        settings = args.server_options()
        self._peers = Peers(self, {name: settings[name] for name in PEER_OPTIONS})
        return self._peers

    def forget(self, url: str | None = None) -> None:
        """A worker's cache is empty, as after a restart of its engine or a change of the model's weights.

        No prompt sent before is believed to be there any more. Loads and sessions stay, and so do counts. A
        server forgets by itself: after `POST /flush_cache`, and when it sees that an engine has restarted.
        Routers that this one has joined are told.

        Args:
            url: A worker of the fleet; without `@rank` all its ranks. None: every worker.

        Raises:
            WorkerNotFoundError: it is not in the fleet.
        """
        super().forget(url)
        if self._peers is not None:
            self._peers._forgot(url)

    @property
    def is_following(self) -> bool:
        """Whether a source of workers is followed now."""
        return any(follower.running for follower in list(self._followers.values()))

    @property
    def workers(self) -> list[WorkerInfo]:
        """Every worker of the fleet, in fleet order, as it is now."""
        return _Workers(WorkerInfo(*row) for row in self._worker_rows())

    def load_index(self, path: str | bytes | PathLike[str] | PathLike[bytes]) -> list[str]:
        """Take over from a file what workers' caches hold, as after a restart of the router alone.

        Each worker of the fleet that the file names is taken to have used what it says, after whatever the
        policy knows of that worker already. Capacities, loads and counts of requests stay as they are. A
        worker that has restarted since holds nothing; leave such workers out of the fleet until after this.

        Args:
            path: The file, from `save_index()` or `BlockCacheTracker.save()`.

        Returns:
            The URLs of the workers that the file and the fleet have in common.

        Raises:
            OSError: the file cannot be read.
            IndexFileError: it is no such index, damaged, or of another block size; a ValueError.
            ValueError: the policy has no block index, or the router has `peer_sync_stride_tokens`. In all
                these cases nothing has changed.
        """
        stride = self._routing["peer_sync_stride_tokens"]
        if stride and self.policy in FLAGS["peer_sync_stride_tokens"].policies:
            raise ValueError(
                f"peer_sync_stride_tokens is {stride}, and a file has no strides, without which its blocks "
                "would count as evicted; leave peer_sync_stride_tokens at 0 to load an index"
            )
        return super().load_index(path)

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: a router belongs to one process."""
        raise TypeError(
            "a Router belongs to one process, in which it counts the load of workers; make another one with "
            "the same arguments; save_index() and load_index() keep what auto and vllm_cache_aware learned"
        )

    def _repr_html_(self) -> str:
        return _html.titled(repr(self)[1:-1], _html.table(WorkerInfo._fields, self.workers))

    def __repr__(self) -> str:
        workers = len(self.worker_urls)
        return f"<Router {self.policy}, {workers} worker{'' if workers == 1 else 's'}>"


def _check_for_secrets(url: str) -> None:
    """Raises ValueError for a URL with a password in it, which the core's message would show."""
    if "@" in url and not is_open_url(url) and not _is_name(url):
        FLAGS["worker_urls"].check([url])


def _sources_of(options: Mapping[str, Any], staged: bool) -> list[Source]:
    """The sources of workers that settings of the server name; `staged`: of prefill and decode workers.

    Raises:
        ImportError: a package that one of them needs is missing.
    """
    discovery = importlib.import_module("vllm_router.discovery")
    sources: list[Source] = []
    if options["worker_file"] is not None:
        sources.append(discovery.FileSource(options["worker_file"]))
    hosts, srv = options["worker_dns"], options["worker_srv"]
    names = ("prefill_dns", "prefill_srv", "decode_dns", "decode_srv")
    of_stages = {name.replace("dns", "hosts"): options[name] for name in names if staged and options[name]}
    if hosts or srv or of_stages:
        try:
            importlib.import_module("dns.resolver")
        except ImportError:
            flags = [
                FLAGS[name].spelling
                for name in ("worker_dns", "worker_srv", *names)
                if options[name] and (staged or name not in names)
            ]
            given = " and ".join(flags)
            needs = "needs" if len(flags) == 1 else "need"
            raise ImportError(
                f"{given} {needs} the package dnspython: pip install 'vllm-router[dns]'"
            ) from None
        sources.append(
            discovery.DnsSource(
                hosts,
                srv,
                **of_stages,
                server=options["dns_server"],
                min_secs=options["dns_min_secs"],
                max_secs=options["dns_max_secs"],
            )
        )
    if options["service_discovery"]:
        kubernetes = importlib.import_module("vllm_router.discovery.kubernetes")
        selectors = (
            {
                name: options[name]
                for name in ("prefill_selector", "decode_selector", "bootstrap_port_annotation")
            }
            if staged
            else {
                "selector": options["selector"],
                "service": options["service_discovery_service"] or "",
                "pool": options["inference_pool"] or "",
            }
        )
        of_pool = bool(options["inference_pool"])
        sources.append(
            (discovery.InferencePoolSource if of_pool else discovery.KubernetesSource)(
                kubernetes.KubernetesOptions(
                    **selectors,
                    ports=options["service_discovery_port"],
                    namespaces=options["service_discovery_namespace"] or (),
                    kubeconfig=options["kubeconfig"],
                    context=options["kube_context"],
                    resync_secs=options["discovery_resync_secs"],
                )
            )
        )
    return sources


def _is_name(url: str) -> bool:
    """Whether it names a worker to which the router never connects."""
    return url.lower().startswith(("ray://", "name://"))


def _stages_of(given: Mapping[str, Any], checked: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Workers and policy options of the two stages as the core takes them; None: the fleet has no stages."""
    if not has_stages(checked):
        return None
    prefill = RouterArgs._parse_prefill_urls(checked["prefill_urls"])
    decode = RouterArgs._parse_decode_urls(checked["decode_urls"])
    for url in (*(url for url, _ in prefill), *decode):
        if not isinstance(url, str):
            raise TypeError(f"prefill_urls or decode_urls holds {quoted(url)}; both must hold URLs as str")
        _check_for_secrets(url)
    named = checked["decode_policy"]
    options = check_policy_options({**given, "policy": named or checked["policy"]}, warn=_quiet)
    return prefill, decode, options, named is None


def _quiet(_sentence: str) -> None:
    """For options that were checked before."""


def _is_served(name: str) -> bool:
    """Whether it is a setting of the server, which `start()` serves with."""
    return name in FLAGS and name != "worker_urls" and name not in POLICY_OPTIONS


@contextlib.contextmanager
def _discovery_in_the_log() -> Iterator[None]:
    """What sources of workers have to say, among all else that the command says."""
    logger, handler = logging.getLogger("vllm_router.discovery"), CoreHandler()
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)  # the core has its own level
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _warn(sentence: str) -> None:
    # Past this function, check_policy_options and Router.__init__, to the line that made the router.
    warnings.warn(sentence, UnusedOptionWarning, stacklevel=4)
