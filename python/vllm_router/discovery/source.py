"""Source: something that can list workers, and Follower, the thread that lists them again and again.

    class Consul(Source):
        name = "consul"

        def look(self) -> Listing:
            return Listing([WorkerSpec(url) for url in ask_consul()], again_secs=5)

    with router.follow(Consul()) as follower:
        follower.first(timeout_secs=10)     # True once the first list has been declared

A look that fails changes nothing: the fleet stays as it is, the error is logged and counted, and the next
look comes after a back-off.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import logging
import math
import numbers
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_router._messages import show
from vllm_router._secrets import described, shown_urls, without_userinfo
from vllm_router.errors import RouterError
from vllm_router.settings.urls import is_model_name

if TYPE_CHECKING:
    from vllm_router.router import Router

__all__ = ["Difference", "Follower", "Listing", "Source", "SourceError", "WorkerSpec"]

logger = logging.getLogger("vllm_router.discovery")

LONGEST_DETAIL = 200
MAX_SECS = 31_536_000  # a year, as in settings
MAX_WORKERS = 4096  # of a list, each rank counted, as in the core
OWN_SOURCES = ("static", "api")  # the router's own: flags, and the admin endpoints

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KIND = re.compile(r"[a-z_]{1,32}")
_FIRST_BACKOFF_SECS = 0.5
_MAX_BACKOFF_SECS = 30.0
_REPEAT_SECS = 60.0  # the same message is logged again after this
_MAX_MESSAGES = 64  # that are remembered for it
_SHORTEST_PAUSE_SECS = 0.01  # a look() that returns at once with again_secs=0 must not keep a core busy
WORKER_TYPES = ("regular", "prefill", "decode")
MAX_MODELS = 1024  # of a worker
MAX_KV_GROUP_BYTES = 128
_MAX_SHOWN = 3  # workers that are left out, in a message
_FEWEST_WORKERS = 64  # a list that the core finds too long is not cut below this


class _WithDetail:
    """Room for a detail that is made once, since a source declares the same specs again and again."""

    __slots__ = ("_detail",)
    _detail: str


# The core reads each field by its name: WorkerDeclaration::ForEachField() in cpp/worker/worker_declaration.h.
@dataclasses.dataclass(frozen=True, slots=True)
class WorkerSpec(_WithDetail):
    """A worker as a source declares it.

    Raises:
        TypeError: a value of the wrong type.
        ValueError: a value out of its range. Whether the URL is one is checked by `Router.reconcile()`.
    """

    url: str
    """`http://host:port[/prefix][@rank]`."""
    _: dataclasses.KW_ONLY
    weight: float = 1.0
    """Relative capacity, 0.01 to 100."""
    ready: bool = True
    """False: it stays in the fleet and gets no new requests."""
    leaving: bool = False
    """True: it ends soon. Its requests may finish, and it gets no new ones."""
    drain_secs: float | None = None
    """How long its requests may take to finish once it leaves; None: the server's drain timeout."""
    incarnation: str = ""
    """Any text; another one than before means that the engine has started anew, with an empty cache."""
    data_parallel_size: int | None = None
    """How many ranks it has, 1 to 4096; None: the router's `intra_node_data_parallel_size`, or that of its
    stage."""
    worker_type: str = "regular"
    """`prefill` or `decode` in a fleet that has these two stages, else `regular`."""
    bootstrap_port: int | None = None
    """Where decode workers learn of a prefill worker's engine, 1 to 65535."""
    kv_group: str = ""
    """In a fleet with stages: blocks go only between workers of equal groups (model, template, block size),
    and to or from those without one. At most 128 bytes without control characters."""
    models: Sequence[str] = ()
    """The models that it serves; empty: those that it lists in GET /v1/models. Kept as a tuple."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    """Free pairs, which GET /admin/discovery and the refusal of POST /remove_worker show. Read-only."""

    def __post_init__(self) -> None:
        """Checks what each value is."""
        if not isinstance(self.url, str):
            raise TypeError(f"url is {described(self.url)}; it must be a str such as 'http://host:8000'")
        if not self.url.strip():
            raise ValueError("url is an empty text; it must be a URL such as http://host:8000")
        object.__setattr__(self, "weight", _number("weight", self.weight, 0.01, 100))
        for name in ("ready", "leaving"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"{name} is {show(value)}; it must be True or False")
        if self.drain_secs is not None:
            seconds = _number("drain_secs", self.drain_secs, 0, MAX_SECS, " of seconds")
            object.__setattr__(self, "drain_secs", seconds)
        if not isinstance(self.incarnation, str):
            raise TypeError(f"incarnation is {show(self.incarnation)}; it must be a str")
        ranks = self.data_parallel_size
        if ranks is not None:
            if isinstance(ranks, bool) or not isinstance(ranks, numbers.Integral):
                raise TypeError(f"data_parallel_size is {show(ranks)}; it must be an int or None")
            if not 1 <= ranks <= 4096:
                raise ValueError(f"data_parallel_size is {ranks}; it must be between 1 and 4096")
            object.__setattr__(self, "data_parallel_size", int(ranks))
        if self.worker_type not in WORKER_TYPES:
            known = ", ".join(WORKER_TYPES)
            raise ValueError(f"worker_type is {show(self.worker_type)}; it must be one of {known}")
        port = self.bootstrap_port
        if port is not None:
            if isinstance(port, bool) or not isinstance(port, numbers.Integral):
                raise TypeError(f"bootstrap_port is {show(port)}; it must be an int or None")
            if not 1 <= port <= 65535:
                raise ValueError(f"bootstrap_port is {port}; it must be between 1 and 65535")
            object.__setattr__(self, "bootstrap_port", int(port))
        if not isinstance(self.kv_group, str):
            raise TypeError(f"kv_group is {show(self.kv_group)}; it must be a str")
        if self.kv_group and self.worker_type == "regular":
            raise ValueError(
                f"kv_group is {show(self.kv_group)} and worker_type is regular; only prefill and decode "
                "workers have a kv_group"
            )
        if not may_be_kv_group(self.kv_group):
            raise ValueError(
                f"kv_group is {show(self.kv_group)}; it must have at most {MAX_KV_GROUP_BYTES} bytes, no "
                "control characters and no blanks at its ends"
            )
        if isinstance(self.models, (str, bytes)) or not isinstance(self.models, Sequence):
            raise TypeError(f"models is {described(self.models)}; it must be a list of names")
        if len(self.models) > MAX_MODELS:
            raise ValueError(f"models has {len(self.models)} names; a worker may have {MAX_MODELS}")
        for model in self.models:
            if not isinstance(model, str):
                raise TypeError(f"models has {show(model)}; it must be a list of names")
            if not may_be_model(model):
                raise ValueError(
                    f"models has {show(model)}; a name has 1 to 256 bytes and no control characters"
                )
        object.__setattr__(self, "models", tuple(self.models))
        if not isinstance(self.labels, Mapping):
            raise TypeError(f"labels is {described(self.labels)}; it must be a mapping of str to str")
        for key, value in self.labels.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"labels has {show(key)}={show(value)}; it must map str to str")
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))

    def __reduce__(self) -> tuple[Callable[[], WorkerSpec], tuple[()]]:
        """For copies and pickles, which take no MappingProxyType."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return functools.partial(type(self), **{**values, "labels": dict(self.labels)}), ()

    @property
    def detail(self) -> str:
        """The labels as one text of 200 characters at most: `k=v k=v`, by name."""
        try:
            return self._detail
        except AttributeError:  # the first time, and in a copy
            text = " ".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
            object.__setattr__(self, "_detail", text[:LONGEST_DETAIL])
            return self._detail


def _number(name: str, value: object, low: float, high: float, unit: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {show(value)}; it must be a number{unit} between {low} and {high}")
    number = float(value)
    if not low <= number <= high:  # NaN is not, either
        raise ValueError(f"{name} is {number:g}; it must be a number{unit} between {low} and {high}")
    return number


class Difference(NamedTuple):
    """What a list has changed: URLs, each with its `@rank` if it has one."""

    joined: list[str]
    """Workers that are new in the fleet, or join it once they pass their health check."""
    left: list[str]
    """Workers that leave: they get no new requests, and are removed when those they have are finished."""
    changed: list[str]
    """Workers with another weight, readiness, incarnation or detail."""
    held: list[str]
    """Workers that the list leaves out and that stay for now, since it leaves out too many at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """What one look has found.

    Raises:
        TypeError: `deleted` is no list of str.
        ValueError: `again_secs` is negative, or no number; or `deleted` comes without a list.
    """

    workers: Sequence[WorkerSpec] | None
    """All workers of the source as they are now; None: as they were at the last look."""
    complete: bool = True
    """False: workers that are not in the list stay, unless they are in `deleted`."""
    deleted: Sequence[str] = ()
    """URLs of workers that were seen to go. They leave at once, however many they are."""
    again_secs: float = 1.0
    """The time until the next look, 0.01 at least. 0 is for a look() that blocks until there is news."""

    def __post_init__(self) -> None:
        """Checks the time, the deleted URLs, and what goes together."""
        _check_again_secs(self.again_secs)
        if isinstance(self.deleted, (str, bytes, Mapping)) or not isinstance(self.deleted, Iterable):
            raise TypeError(f"deleted is {described(self.deleted)}; it must be a list of URLs")
        if not isinstance(self.deleted, Sequence):  # an iterator would be used up by the first look at it
            object.__setattr__(self, "deleted", tuple(self.deleted))
        for url in self.deleted:
            if not isinstance(url, str):
                raise TypeError(f"deleted holds {described(url)}; it must hold URLs as str")
        if self.workers is None and self.deleted:
            raise ValueError(
                "workers is None, so nothing has changed, and deleted is not empty; give the list, too"
            )


def _check_again_secs(seconds: object) -> None:
    real = isinstance(seconds, numbers.Real) and not isinstance(seconds, bool)
    if not real or not 0 <= float(seconds) <= MAX_SECS:  # type: ignore[arg-type]
        raise ValueError(
            f"again_secs is {show(seconds)}; it must be a number of seconds between 0 and {MAX_SECS}"
        )


class SourceError(Exception):
    """A source cannot tell its workers now. The fleet stays as it is.

    Args:
        kind: What went wrong, in a word of a-z and _ for the label of a metric, such as "timeout".
        message: A sentence for the log, without user names and passwords.
        again_secs: The time until the next look; None: a back-off from 0.5 s to 30 s.

    Raises:
        TypeError: `kind` or `message` is no str.
        ValueError: `kind` is no such word, or `again_secs` is out of range.
    """

    def __init__(self, kind: str, message: str, again_secs: float | None = None) -> None:
        super().__init__(message)
        for name, value in (("kind", kind), ("message", message)):
            if not isinstance(value, str):
                raise TypeError(f"{name} is {described(value)}; it must be a str")
        if not _KIND.fullmatch(kind):
            raise ValueError(f"kind is {show(kind)}; it must be 1 to 32 characters of a-z and _")
        if again_secs is not None:
            _check_again_secs(again_secs)
        self.kind = kind
        self.message = message
        self.again_secs = again_secs


class Source(abc.ABC):
    """Something that can list workers; `Router.follow()` lists them again and again."""

    name: str
    """Its name in logs and metrics: a-z, digits, `_` and `-`, at most 32 characters, the first a letter. A
    router follows one source of a name at a time."""

    @abc.abstractmethod
    def look(self) -> Listing:
        """List the workers as they are now. Called in a thread of its own, and may block.

        Raises:
            SourceError: that cannot be done now.
        """

    def close(self) -> None:  # noqa: B027, a look that does not block needs nothing
        """Make a look() that blocks return or raise soon.

        May be called from any thread, and more than once.
        """


def check_source_name(name: object) -> None:
    """That it is a name that a source may have.

    Raises:
        TypeError: it is no str.
        ValueError: it has other characters, or belongs to the router itself.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of the source is {described(name)}; it must be a str")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"the name of the source is {show(name)}; it must be 1 to 32 characters of a-z, 0-9, _ and -, "
            "the first of them a letter"
        )
    if name in OWN_SOURCES:
        raise ValueError(
            f"the name of the source is {name}, which belongs to the router itself: static are the URLs that "
            "it is made with, api are the workers of the admin endpoints; choose another name"
        )


class Follower:
    """A daemon thread that follows a source: it lists the workers and declares them to the router.

    Made by `Router.follow()`. It goes on until `stop()`, whatever the source raises; the workers it has
    declared stay in the fleet.

    Args:
        router: Gets the lists.
        source: Is looked at in the thread.
        randomness: For the back-off; None: a new generator of random numbers.
        wait: Waits for a number of seconds, and says whether to stop; None: until `stop()`.
        clock: Seconds, for how often a message is logged.

    Raises:
        TypeError: `source` is no `Source`, or its name no str.
        ValueError: the name of the source cannot be one.
    """

    def __init__(
        self,
        router: Router,
        source: Source,
        *,
        randomness: random.Random | None = None,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(source, Source):
            raise TypeError(f"source is of type {type(source).__name__}; it must be a vllm_router Source")
        check_source_name(getattr(source, "name", None))
        self.source = source
        self._router = router
        self._randomness = randomness or random.Random()
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._clock = clock
        self._first = threading.Event()
        self._announced = False
        self._failures = 0
        self._rejected: Listing | None = None
        self._excess = ""  # what is said of a list that is too long, as long as it is
        self._logged: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name=f"discovery-{source.name}", daemon=True)

    def first(self, timeout_secs: float | None = None) -> bool:
        """Wait until the first list was declared. False if that took longer than `timeout_secs` seconds."""
        return self._first.wait(timeout_secs)

    def stop(self, timeout_secs: float = 5.0) -> bool:
        """Stop following. The fleet stays as it is.

        Returns:
            Whether the thread has ended. A look that blocks longer than `timeout_secs` seconds is abandoned:
            what it finds is not declared any more.
        """
        self.begin_to_stop()
        thread = self._thread
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(0.0, timeout_secs))
        return not thread.is_alive()

    def begin_to_stop(self) -> None:
        """Tell the thread to stop, and return at once."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        try:
            self.source.close()
        except Exception as error:
            logger.error("source %s: close() raised %s", self.source.name, _said_of(error))

    @property
    def running(self) -> bool:
        """Whether it goes on following: not after `stop()`, nor in a process that was forked since."""
        started = self._thread.ident is not None
        return not self._stopping.is_set() and (self._thread.is_alive() or not started)

    def announce(self) -> None:
        """Tell the router that there is this source, which has not listed its workers yet."""
        self._announced = True
        self._router._report_source(self.source.name, "", "")

    def start(self) -> None:
        """Start the thread; `Router.follow()` has done that."""
        if not self._announced:
            self.announce()
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._wait(max(_SHORTEST_PAUSE_SECS, self._guarded_turn())):
            pass

    def _guarded_turn(self) -> float:
        """As `_turn()`, whatever the objects of the source are. Never raises: the thread goes on."""
        try:
            seconds = self._turn()
            _check_again_secs(seconds)
            return float(seconds)
        except BaseException as error:
            try:
                return float(self._failed(SourceError("internal", f"a look raised {_said_of(error)}")))
            except BaseException:  # a handler of the log may raise, too
                return _MAX_BACKOFF_SECS

    def _turn(self) -> float:
        """One look and what follows from it. Returns the time until the next one."""
        try:
            listing = self.source.look()
            _check_listing(listing)
        except SourceError as error:
            return self._failed(error)
        except BaseException as error:  # SystemExit, too: a source must not end the thread
            return self._failed(SourceError("internal", f"look() raised {_said_of(error)}"))
        if self._stopping.is_set():
            return 0
        declared = self._after_rejected(listing)
        try:
            self._declare(declared)
        except (ValueError, TypeError, RouterError) as error:
            self._rejected = declared
            # 0 is of a look() that blocks, maybe for long, and of others the next one must not be at once.
            again_secs = listing.again_secs or None
            return self._failed(SourceError("refused", without_userinfo(_text_of(error)), again_secs))
        except BaseException as error:
            self._rejected = declared
            return self._failed(SourceError("internal", f"reconcile() raised {_said_of(error)}"))
        self._rejected = None
        if self._failures:
            logger.info("source %s: lists its workers again", self.source.name)
        self._failures = 0
        if declared.workers is not None:
            self._first.set()
        if self._excess:  # the router forgets the last error with each list
            self._report("too_many", self._excess)
        return listing.again_secs

    def _declare(self, listing: Listing) -> None:
        """Declare the list, without the workers that the core would reject all of it for.

        Raises:
            ValueError, TypeError, RouterError: the list is rejected nevertheless.
        """
        if listing.workers is None:
            self._reconcile(listing, None)
            return
        fit = self._fit(only_specs(listing.workers))
        if sum(map(_ranks_of, fit)) > MAX_WORKERS:  # so that the same ones are taken whatever their order is
            fit.sort(key=lambda spec: spec.url)
        limit = MAX_WORKERS
        while True:
            some, excess = _first_of(fit, limit)
            try:
                self._reconcile(listing, some)
            except ValueError:
                # A router that serves rejects names, which one that is embedded takes.
                addresses = [spec for spec in fit if not _is_name(spec.url)]
                if len(addresses) == len(fit):
                    raise
                names = [spec for spec in fit if _is_name(spec.url)]
                self._log_left_out(
                    [(spec, "is a name, and a server connects to its workers") for spec in names]
                )
                fit = addresses
            except RouterError:  # other sources have workers, too, and the router has a number of ranks
                limit = min(limit, len(fit))
                if limit <= _FEWEST_WORKERS:
                    raise
                # New workers are given up before those that serve.
                serving = {_host_of(url) for url in self._router.worker_urls}
                fit.sort(key=lambda spec: (_host_of(spec.url) not in serving, spec.url))
                known = sum(_host_of(spec.url) in serving for spec in fit)
                limit = known + (limit - known) // 2 if limit > known else limit // 2
            else:
                self._excess = excess
                return

    def _reconcile(self, listing: Listing, workers: Sequence[WorkerSpec] | None) -> None:
        deleted = [url for url in listing.deleted if _key_and_misfit(url)[0]]  # others are no worker's
        self._router.reconcile(self.source.name, workers, complete=listing.complete, deleted=deleted)

    def _fit(self, workers: Sequence[WorkerSpec]) -> list[WorkerSpec]:
        """Those that the core takes, each once. The others are logged."""
        fit: list[WorkerSpec] = []
        left_out: list[tuple[WorkerSpec, str]] = []
        seen: set[str] = set()
        for spec in workers:
            misfit = misfit_of(spec)
            keys = () if misfit else keys_of(spec)
            if not misfit and not seen.isdisjoint(keys):
                misfit = "is in the list twice"
            if misfit:
                left_out.append((spec, misfit))
            else:
                seen.update(keys)
                fit.append(spec)
        self._log_left_out(left_out)
        return fit

    def _log_left_out(self, left_out: Sequence[tuple[WorkerSpec, str]]) -> None:
        for spec, misfit in left_out[:_MAX_SHOWN]:
            self._log(logging.WARNING, f"{_named(spec)} {misfit}; it is left out")
        more = len(left_out) - _MAX_SHOWN
        if more > 0:
            self._log(logging.WARNING, f"{more} more workers are left out")

    def _after_rejected(self, listing: Listing) -> Listing:
        """What to declare: a list that was not taken is still the source's, until it has another one."""
        before = self._rejected
        if before is None:
            return listing
        if listing.workers is None:
            return dataclasses.replace(before, again_secs=listing.again_secs)
        there = {spec.url for spec in listing.workers}  # one that is there again was deleted before
        deleted = [*(url for url in before.deleted if url not in there), *listing.deleted]
        return dataclasses.replace(listing, deleted=deleted)

    def _failed(self, error: SourceError) -> float:
        if self._stopping.is_set():
            return 0
        self._failures += 1
        self._report(error.kind, error.message)
        return self._backoff() if error.again_secs is None else error.again_secs

    def _report(self, kind: str, message: str) -> None:
        """Tell the router and the log of an error."""
        try:
            self._router._report_source(self.source.name, kind, _printable(message))
        except BaseException as unexpected:
            logger.error("source %s: cannot be reported: %s", self.source.name, _said_of(unexpected))
        self._log(logging.ERROR, message)

    def _log(self, level: int, message: str) -> None:
        """Log a message, unless that was done within the last minute."""
        now = self._clock()
        if now - self._logged.get(message, -math.inf) < _REPEAT_SECS:
            return
        while len(self._logged) >= _MAX_MESSAGES:
            del self._logged[next(iter(self._logged))]
        self._logged.pop(message, None)  # to the end: the oldest is forgotten first
        self._logged[message] = now
        logger.log(level, "source %s: %s", self.source.name, _printable(message))

    def _backoff(self) -> float:
        steps = min(self._failures - 1, 16)  # 0.5 s doubled 16 times is far above the maximum
        seconds = min(_MAX_BACKOFF_SECS, _FIRST_BACKOFF_SECS * 2**steps) * self._randomness.uniform(0.5, 1.5)
        return float(min(_MAX_BACKOFF_SECS, seconds))

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Follower of {self.source.name}{'' if self.running else ' stopped'}>"


def stop_all(followers: Sequence[Follower], timeout_secs: float) -> None:
    """Stop all at once, and wait for `timeout_secs` seconds at most."""
    for follower in followers:
        follower.begin_to_stop()
    end = time.monotonic() + timeout_secs
    for follower in followers:
        if not follower.stop(end - time.monotonic()):
            logger.warning(
                "source %s: did not stop within %g s; its thread is abandoned",
                follower.source.name,
                timeout_secs,
            )


def _check_listing(listing: object) -> None:
    if not isinstance(listing, Listing):
        found = "None" if listing is None else described(listing)
        raise TypeError(f"look() returned {found}; it must return a Listing")
    Listing.__post_init__(
        listing
    )  # once more: a source may have changed it since, or have a class of its own


def may_be_model(name: str) -> bool:
    """Whether the core takes it as the name of a model."""
    return is_model_name(name) and not re.search(r"[\ud800-\udfff]", name)


def may_be_kv_group(text: str) -> bool:
    """Whether the core takes it as the kv_group of a worker with a stage."""
    return (
        re.search(r"[\x00-\x1f\x7f\ud800-\udfff]|^ | $", text) is None
        and len(text.encode()) <= MAX_KV_GROUP_BYTES
    )


def misfit_of(spec: WorkerSpec) -> str:
    """Why the core would reject the worker, and with it the whole list; empty if it takes it."""
    misfit = _key_and_misfit(spec.url)[1]
    if misfit:
        return misfit
    for what, text in (("incarnation", spec.incarnation), ("labels", spec.detail)):
        if not text.isascii() and _printable(text) != text:
            return f"has {what} with half a character (a lone surrogate), which is no text"
    return ""


@functools.lru_cache(maxsize=16_384)  # a source lists the same workers again and again
def _key_and_misfit(url: str) -> tuple[str, str]:
    """What the core knows a worker by, or why it would reject the URL."""
    core: Any = import_module("vllm_router._core")  # which `--help` and the doctor do without
    try:
        return core.worker_key(url), ""
    except ValueError as error:
        return "", str(error)


def _host_of(url: str) -> str:
    """What all ranks of an engine are known by; `url` is one of a worker."""
    return _key_and_misfit(url)[0].partition("@")[0]


def keys_of(spec: WorkerSpec) -> Sequence[str]:
    """What the worker, or each of its ranks, is known by, if the number of ranks is not the router's."""
    key = _key_and_misfit(spec.url)[0]
    ranks = _ranks_of(spec)
    return [f"{key}@{rank}" for rank in range(ranks)] if ranks > 1 else [key]


def _ranks_of(spec: WorkerSpec) -> int:
    """How many workers of the fleet it is. One with a rank in its URL is one."""
    ranks = spec.data_parallel_size or 1
    return 1 if ranks == 1 or re.search(r"@[0-9]+/*\Z", spec.url) else ranks


def _first_of(workers: Sequence[WorkerSpec], limit: int) -> tuple[Sequence[WorkerSpec], str]:
    """The workers that fit into a limit, and what is to be said of the others; empty if there are none.

    They are taken in the order that they have, and one that does not fit makes room for the next.
    """
    total = sum(map(_ranks_of, workers))
    if total <= limit:
        return workers, ""
    chosen: list[WorkerSpec] = []
    room = limit
    sizes: dict[str, int] = {}
    for spec in workers:
        ranks = _ranks_of(spec)
        place = spec.detail or shown_urls(spec.url)
        sizes[place] = sizes.get(place, 0) + ranks
        if ranks <= room:
            room -= ranks
            chosen.append(spec)
    largest = max(sizes, key=lambda place: sizes[place])
    return chosen, (
        f"the list has {total} workers, each rank counted, of which {limit - room} are taken: "
        f"there is room for {limit}. The largest part is of {largest}: "
        f"{sizes[largest]}. Shorten the list, or run a second router"
    )


def _is_name(url: str) -> bool:
    return url.lower().startswith(("ray://", "name://"))


def _named(spec: WorkerSpec) -> str:
    """A worker in a message, with its labels, which name the object that it is from."""
    detail = f" ({spec.detail})" if spec.detail else ""
    return f"worker {shown_urls(spec.url)}{detail}"


def _printable(text: str) -> str:
    """Text that can be written as UTF-8: names of files and objects may have lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def only_specs(workers: Iterable[WorkerSpec]) -> list[WorkerSpec]:
    """The workers of a list, which the core reads field by field (cpp/worker/worker_declaration.h).

    Raises:
        TypeError: one of them is no WorkerSpec.
    """
    specs = list(workers)
    for spec in specs:
        if not isinstance(spec, WorkerSpec):
            raise TypeError(
                f"workers holds {shown_urls(spec) if isinstance(spec, str) else described(spec)}; it must "
                "hold WorkerSpec: write WorkerSpec(url)"
            )
    return specs


def _said_of(error: BaseException) -> str:
    """An exception for the log, in one line."""
    text = " ".join(without_userinfo(_text_of(error)).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # a __str__ of its own may raise anything
        return ""
