"""Router: routing as a library, over the same C++ core as the server.

    router = Router(policy="consistent_hash", worker_urls=["http://w1:8000", "http://w2:8000"])
    with router.select(prompt="Hello", headers={"X-Session-ID": "s1"}) as ticket:
        response = post(ticket.worker_url, ...)
    # leaving the block returns the load that select() reserved

A `Ticket` is a promise that load returns: by `finish()`, by leaving its `with` block, or when it is dropped,
exactly once. Everything here is thread-safe.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from vllm_router import _core, _html
from vllm_router._core import Batch, Ticket
from vllm_router._messages import quoted
from vllm_router._secrets import is_open_url
from vllm_router.errors import UnusedOptionWarning
from vllm_router.router_args import RouterArgs
from vllm_router.server import Server
from vllm_router.settings.checks import OWN_DEFAULTS, check_policy_options, check_server_names
from vllm_router.settings.names import FLAGS, POLICY_OPTIONS

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


class _Workers(list[WorkerInfo]):
    """Workers, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return _html.table(WorkerInfo._fields, self)


class Router(_core.Router):
    """Chooses a worker for each request, and keeps count of what every worker has in hand.

    Args:
        policy: A policy's name or alias (`-` and `_` are the same), or a `PolicyType`: `random`,
            `round_robin`, `least_load`, `power_of_two`, `consistent_hash`, `rendezvous_hash`,
            `cache_aware`, `vllm_cache_aware`, `prefix_aware`, `prefix_hash`, `auto`, `sticky_least_loaded`.
            None: `auto`, or `cache_aware` if an option is given that `cache_aware` reads and `auto` does
            not, such as `cache_threshold`.
        worker_urls: URLs of the first workers, in fleet order: `http://host:port[/prefix][@rank]`; or a
            mapping of URLs to weights, as in `add_worker()`. A program that connects to its workers itself
            may give names instead, `ray://<id>` or `name://<id>`; a router with names cannot be served.
        seed: 0 to 2^64-1 makes random choices repeat; None draws one.
        **options: The routing flags of the command line by name, such as `virtual_nodes=160`; `vllm-router
            --help` and docs/reference/cli.md describe them. An option that the policy does not read is
            accepted with an `UnusedOptionWarning`. Flags of the server, such as `host` and `port`, are kept
            for `start()`.

    Raises:
        TypeError: an unknown option; the message names the nearest one.
        ValueError: an unknown policy, a value out of range, a bad URL.
        WorkerExistsError: a URL appears twice.
    """

    def __init__(
        self,
        policy: str | PolicyType | None = None,
        worker_urls: Iterable[str] | Mapping[str, float] = (),
        *,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """The arguments are those of the class."""
        served = {name: options.pop(name) for name in list(options) if _is_served(name)}
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
            if "@" in url and not is_open_url(url) and not _is_name(url):
                FLAGS["worker_urls"].check([url])  # the core's message would show a password
        name = policy.value if isinstance(policy, PolicyType) else policy
        checked = check_policy_options({"policy": name, "seed": seed, **options}, warn=_warn)
        self._args = RouterArgs(**served)
        if served:
            self._args._validate_router_args()
        if isinstance(worker_urls, Mapping):
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

    def serve(self, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Server:
        """Serve this router over HTTP, in threads of its own.

        Args:
            host: The address to listen on.
            port: The port; 0 takes any free one, see `Server.port`.
            **options: The server's flags of the command line by name, such as `threads=2`,
                `request_timeout_secs=60`, `prometheus_port=0`. Metrics have no port unless one is given.
                The log is the process's: `log_level`, `log_format` and `log_dir` hold for all its servers;
                without any of them it stays as it was, at first `info` and `text`, access log included.

        Raises:
            TypeError: an unknown option, or one of `Router` itself.
            ValueError: a value out of range, a function that is not implemented yet, a `log_dir` that cannot
                be written, or a worker that has a name (`ray://`, `name://`) and no address.
            OSError: the port cannot be had.
        """
        check_server_names(options)
        if options.get("prometheus_port") is not None:
            options.setdefault("prometheus_host", "127.0.0.1")
        args = RouterArgs(host=host, port=port, **options)
        args._validate_router_args()
        server_options = args.server_options()
        if any(name.startswith("log_") for name in options):
            _configure_log(server_options)
        return Server(self, server_options)

    def start(self) -> int:
        """Serve until SIGTERM or SIGINT, as the command does.

        The settings are those of `from_args()`, or those of the server that the router was made with.

        Returns:
            The exit status: 0, or 3 if requests in flight had to be cut when the grace period ended.

        Raises:
            OSError: a port cannot be had.
        """
        options = self._args.server_options()
        _configure_log(options)
        server = Server(self, options)
        metrics = f", metrics on {server.metrics_url}" if server.metrics_url else ""
        admin = f", admin endpoints on {server.admin_url}" if server.admin_url else ""
        return server.run(f"vllm-router {_core.__version__} serves {server.url}: {self!r}{metrics}{admin}")

    @property
    def workers(self) -> list[WorkerInfo]:
        """Every worker of the fleet, in fleet order, as it is now."""
        return _Workers(WorkerInfo(*row) for row in self._worker_rows())

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


def _is_name(url: str) -> bool:
    """Whether it names a worker to which the router never connects."""
    return url.lower().startswith(("ray://", "name://"))


def _is_served(name: str) -> bool:
    """Whether it is a setting of the server, which `start()` serves with."""
    return name in FLAGS and name != "worker_urls" and name not in POLICY_OPTIONS


def _configure_log(options: dict[str, Any]) -> None:
    _core.configure_log(options["log_level"], options["log_format"], options["log_dir"] or "")


def _warn(sentence: str) -> None:
    # Past this function, check_policy_options and Router.__init__, to the line that made the router.
    warnings.warn(sentence, UnusedOptionWarning, stacklevel=4)
