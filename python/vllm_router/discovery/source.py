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
import logging
import math
import numbers
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_router._messages import show
from vllm_router._secrets import described, shown_urls, without_userinfo
from vllm_router.errors import RouterError

if TYPE_CHECKING:
    from vllm_router.router import Router

__all__ = ["Difference", "Follower", "Listing", "Source", "SourceError", "WorkerSpec"]

logger = logging.getLogger("vllm_router.discovery")

LONGEST_DETAIL = 200
MAX_SECS = 31_536_000  # a year, as in settings
OWN_SOURCES = ("static", "api")  # the router's own: flags, and the admin endpoints

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KIND = re.compile(r"[a-z_]{1,32}")
_FIRST_BACKOFF_SECS = 0.5
_MAX_BACKOFF_SECS = 30.0
_REPEAT_SECS = 60.0  # the same message is logged again after this
_MAX_MESSAGES = 64  # that are remembered for it


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerSpec:
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
    """How many ranks it has, 1 to 4096; None: the router's `intra_node_data_parallel_size`."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    """Free pairs, for the log and for GET /admin/discovery."""

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
        if not isinstance(self.labels, Mapping):
            raise TypeError(f"labels is {described(self.labels)}; it must be a mapping of str to str")
        for key, value in self.labels.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(f"labels has {show(key)}={show(value)}; it must map str to str")
        object.__setattr__(self, "labels", dict(self.labels))

    @property
    def detail(self) -> str:
        """The labels as one text of 200 characters at most: `k=v k=v`, by name."""
        return " ".join(f"{key}={value}" for key, value in sorted(self.labels.items()))[:LONGEST_DETAIL]


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
        ValueError: `again_secs` is negative, or no number; or `deleted` comes without a list.
    """

    workers: Sequence[WorkerSpec] | None
    """All workers of the source as they are now; None: as they were at the last look."""
    complete: bool = True
    """False: workers that are not in the list stay, unless they are in `deleted`."""
    deleted: Sequence[str] = ()
    """URLs of workers that were seen to go. They leave at once, however many they are."""
    again_secs: float = 1.0
    """The time until the next look. 0 is for a look() that blocks until there is something new."""

    def __post_init__(self) -> None:
        """Checks the time, and what goes together."""
        _check_again_secs(self.again_secs)
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
        ValueError: `kind` is no such word, or `again_secs` is out of range.
    """

    def __init__(self, kind: str, message: str, again_secs: float | None = None) -> None:
        super().__init__(message)
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
        dice: For the back-off; None: a new generator.
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
        dice: random.Random | None = None,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(source, Source):
            raise TypeError(f"source is of type {type(source).__name__}; it must be a vllm_router Source")
        check_source_name(getattr(source, "name", None))
        self.source = source
        self._router = router
        self._dice = dice or random.Random()
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._clock = clock
        self._first = threading.Event()
        self._announced = False
        self._failures = 0
        self._rejected: Listing | None = None
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
        """Whether it goes on following."""
        return not self._stopping.is_set()

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
        while self.running and not self._wait(self._turn()):
            pass

    def _turn(self) -> float:
        """One look and what follows from it. Returns the time until the next one, and never raises."""
        try:
            listing = self.source.look()
            _check_listing(listing)
        except SourceError as error:
            return self._failed(error)
        except BaseException as error:  # SystemExit, too: a source must not end the thread
            return self._failed(SourceError("internal", f"look() raised {_said_of(error)}"))
        if not self.running:
            return 0
        declared = self._after_rejected(listing)
        try:
            self._router.reconcile(
                self.source.name, declared.workers, complete=declared.complete, deleted=declared.deleted
            )
        except (ValueError, TypeError, RouterError) as error:
            self._rejected = declared
            return self._failed(SourceError("refused", without_userinfo(str(error))))
        except BaseException as error:
            self._rejected = declared
            return self._failed(SourceError("internal", f"reconcile() raised {_said_of(error)}"))
        self._rejected = None
        if self._failures:
            logger.info("source %s: lists its workers again", self.source.name)
        self._failures = 0
        if declared.workers is not None:
            self._first.set()
        return listing.again_secs

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
        if not self.running:
            return 0
        self._failures += 1
        name = self.source.name
        message = error.message.encode("utf-8", "replace").decode()  # names of files may be no UTF-8
        try:
            self._router._report_source(name, error.kind, message)
        except BaseException as unexpected:
            logger.error("source %s: cannot be reported: %s", name, _said_of(unexpected))
        now = self._clock()
        if now - self._logged.get(error.message, -math.inf) >= _REPEAT_SECS:
            while len(self._logged) >= _MAX_MESSAGES:
                del self._logged[next(iter(self._logged))]
            self._logged.pop(error.message, None)  # to the end: the oldest is forgotten first
            self._logged[error.message] = now
            logger.error("source %s: %s", name, error.message)
        return self._backoff() if error.again_secs is None else error.again_secs

    def _backoff(self) -> float:
        steps = min(self._failures - 1, 16)  # 0.5 s doubled 16 times is far above the maximum
        seconds = min(_MAX_BACKOFF_SECS, _FIRST_BACKOFF_SECS * 2**steps) * self._dice.uniform(0.5, 1.5)
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
        raise TypeError(f"look() returned {described(listing)}; it must return a Listing")


def rows_of(workers: Iterable[WorkerSpec]) -> list[tuple[Any, ...]]:
    """The workers as the core takes them.

    Raises:
        TypeError: one of them is no WorkerSpec.
    """
    rows = []
    for spec in workers:
        if not isinstance(spec, WorkerSpec):
            raise TypeError(
                f"workers holds {shown_urls(spec) if isinstance(spec, str) else described(spec)}; it must "
                "hold WorkerSpec: write WorkerSpec(url)"
            )
        rows.append(
            (
                spec.url,
                spec.weight,
                spec.ready,
                spec.leaving,
                spec.drain_secs,
                spec.incarnation,
                spec.data_parallel_size or 0,
                spec.detail,
            )
        )
    return rows


def _said_of(error: BaseException) -> str:
    """An exception for the log, in one line."""
    text = " ".join(without_userinfo(str(error)).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
