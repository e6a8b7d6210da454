"""ListWatch: what one namespace holds, listed once and watched from then on.

    LIST ──200──▶ WATCH ──the server closes it──▶ WATCH again, from the last version that was seen
     ▲              │ 410, a stream that cannot be read, silence, two empty streams, time to list again
     └──────────────┘

What goes wrong again and again has growing pauses, until a watch has lasted or has brought news: a change of
the workers, with a newer version. And whatever comes, watches begin at most 12 times a minute, after six.

Events may be lost, and a stream may fall silent without ending. So everything is listed again after
`resync_secs`, and silence has a limit. The connection, the clock and the random numbers are passed in.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from vllm_router.discovery.kubernetes_client import ConfigError, CutError, HttpError, SilentError, said_of
from vllm_router.discovery.kubernetes_objects import trimmed_json
from vllm_router.discovery.source import SourceError

_LONGEST_LINE = 16 << 20  # etcd takes objects of 1.5 MB
_PAGE = 500
_MAX_PAGES = 200  # 100,000 objects; a token that leads to another one again and again must end
_KINDS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    429: "throttled",
    503: "unavailable",
}


@dataclasses.dataclass(frozen=True)
class Timing:
    """Times in seconds. The defaults are for a cluster, smaller ones for tests."""

    resync: float = 60.0
    window: tuple[float, float] = (50.0, 70.0)  # of one watch, at random
    slack: float = 15.0  # a watch may be silent for its window and this
    list_silence: float = 20.0
    short: float = 1.0  # a watch that ends sooner, without news, is as good as a 410
    restarts: tuple[int, float] = (6, 5.0)  # so many at once, and one more in so much time
    backoff: tuple[float, float] = (0.5, 30.0)
    forbidden: float = 30.0  # the longest back-off of requests that are rejected with 400, 403 or 404
    longest_retry_after: float = 300.0


class Body(Protocol):
    """See kubernetes_client.Stream."""

    def read(self) -> bytes:
        """What has come."""

    def close(self) -> None:
        """Close the connection."""


class Server(Protocol):
    """See kubernetes_client.ApiServer."""

    def get(self, namespace: str, read_secs: float, **query: Any) -> Body:
        """List or watch."""

    def renew(self) -> None:
        """Read the credentials again."""

    def shutdown(self) -> None:
        """End what reads in another thread."""


class Holder(Protocol):
    """What hears of the objects."""

    def replaced(self, objects: list[dict[str, Any]]) -> None:
        """These are all there are."""

    def changed(self, kind: str, thing: dict[str, Any]) -> bool:
        """One was ADDED, MODIFIED or DELETED. Returns whether that is news: it changes the workers."""

    def failed(self, error: SourceError) -> None:
        """They cannot be listed, or watched, now."""


class _RelistError(Exception):
    """The watch cannot go on from where it is."""

    def __init__(self, reason: str, message: str, consistent: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.consistent = consistent


class ListWatch:
    """The list-watch loop of one namespace, one list or one watch at a time.

    Args:
        server: Makes the requests.
        resource: `pods`, `endpointslices` or `inferencepools`, for messages.
        namespace: Empty: all of them.
        holder: Hears of the objects.
        timing: See `Timing`.
        clock: Seconds that only grow.
        randomness: For windows and pauses.
        read: Makes JSON of what the server sends; ValueError: it is none.
    """

    def __init__(
        self,
        server: Server,
        resource: str,
        namespace: str,
        holder: Holder,
        timing: Timing,
        clock: Callable[[], float],
        randomness: random.Random,
        read: Callable[[bytes], Any] = trimmed_json,
    ) -> None:
        self._read = read
        self.restarts: Counter[str] = Counter()
        self._server = server
        self._resource = resource
        self._namespace = namespace
        self._holder = holder
        self._timing = timing
        self._clock = clock
        self._randomness = randomness
        self._version = ""  # where to watch from; empty: list first
        self._seen = ""  # the newest version that was seen
        self._consistent = False  # list without the API server's cache
        self._resync_at = 0.0
        self._failures = 0  # since the last response
        self._rejected = 0  # requests, with 400, 403 or 404, since a watch began
        self._fruitless = 0  # relists since a watch that was good for something
        self._short = 0  # watches in a row that ended at once, without news
        self._restarts_left = float(timing.restarts[0])
        self._restarted_at = clock()
        self._renewed = False  # the credentials, since the last response

    def turn(self) -> float:
        """One list or one watch. Returns the seconds to wait before the next."""
        watching = self._version != "" and self._clock() < self._resync_at
        try:
            if watching:
                return self._watch()
            if self._version:
                self.restarts["resync"] += 1
            self._list()
        except HttpError as error:
            return self._http_error(error, "watch" if watching else "list")
        except _RelistError as error:
            return self._relist(error)
        except SilentError as error:
            self._version = ""
            return self._failed("timeout", f"no response: {said_of(error)}")
        except CutError as error:
            return self._failed("unreachable", f"the API server cannot be reached: {said_of(error)}")
        except ConfigError as error:
            return self._failed("config", said_of(error))
        except Exception:
            self._version = ""  # whatever was not heard of is listed again
            raise
        return 0.0

    # ---- one list

    def _list(self) -> None:
        cached = not self._consistent
        objects, version = self._listed("0" if cached else None)
        if cached and is_older(version, self._seen):
            # From the cache of an API server that lags behind what another one has told before.
            objects, version = self._listed(None)
        self._consistent = False
        self._version = self._seen = version
        self._short = 0
        # Not at the same time in all routers.
        self._resync_at = self._clock() + self._timing.resync * self._randomness.uniform(0.9, 1.0)
        self._holder.replaced(objects)

    def _listed(self, version: str | None) -> tuple[list[dict[str, Any]], str]:
        objects: list[dict[str, Any]] = []
        following: str | None = None
        for _ in range(_MAX_PAGES):
            body = self._get(
                self._timing.list_silence, limit=_PAGE, resource_version=version, _continue=following
            )
            try:
                text = b"".join(iter(body.read, b""))
            finally:
                body.close()
            page = _parsed(text, self._read)
            items = page.get("items")
            metadata = page.get("metadata")
            # The API server writes a list without objects as [], so without items it is something else.
            if not isinstance(metadata, dict) or not isinstance(items, list):
                raise _RelistError("malformed", "a list without metadata and items")
            objects += [_checked(item) for item in items]
            following = metadata.get("continue") or None
            version = None  # the continue token has it
            if following is None:
                if not metadata.get("resourceVersion"):
                    raise _RelistError("error", "a list without a resourceVersion")
                return objects, str(metadata["resourceVersion"])
        raise _RelistError("malformed", f"a list of more than {_MAX_PAGES} pages of {_PAGE} objects")

    # ---- one watch

    def _watch(self) -> float:
        timing = self._timing
        begun = self._clock()
        # It ends in time for the next list by itself; a second more than that is no harm.
        window = min(self._randomness.uniform(*timing.window), max(timing.short, self._resync_at - begun))
        body = self._get(
            window + timing.slack,
            watch=True,
            resource_version=self._version,
            timeout_seconds=max(1, round(window)),
            allow_watch_bookmarks=True,
        )
        news = 0
        reason = "closed"
        try:
            for line in _lines(body):
                news += self._event(_parsed(line, self._read))
                if self._clock() >= self._resync_at:
                    return 0.0
        except SilentError as error:
            raise _RelistError("timeout", f"a watch was silent: {said_of(error)}") from None
        except CutError:
            reason = "cut"
        finally:
            body.close()
            lasted = self._clock() - begun
            if news or lasted >= timing.short:
                self._short = self._fruitless = 0
        self.restarts[reason] += 1
        if not news and lasted < timing.short:
            self._short += 1
            if self._short >= 2:
                raise _RelistError("gone", "two watches in a row ended at once", consistent=True)
        pause = self._until_restart()
        if pause > 0:
            self._fail("ended", f"watches end too soon, the last one after {lasted:.1f} s", pause)
        return pause

    def _until_restart(self) -> float:
        """Count one more watch that has ended. Returns the seconds until the next may begin."""
        most, period = self._timing.restarts
        now = self._clock()
        earned = (now - self._restarted_at) / period
        self._restarts_left = min(most, self._restarts_left + earned) - 1
        self._restarted_at = now
        return max(0.0, -self._restarts_left * period) * self._randomness.uniform(1.0, 1.2)

    def _event(self, event: dict[str, Any]) -> bool:
        """Take in one event. Returns whether it brings news."""
        kind = event.get("type")
        thing = event.get("object")
        if not isinstance(thing, dict):
            raise _RelistError("error", f"an event of type {kind!r:.40} without an object")
        if kind == "ERROR":
            code = thing.get("code")
            message = str(thing.get("message") or "")[:300]
            if code == 410 or thing.get("reason") in ("Expired", "Gone"):
                raise _RelistError(
                    "gone", message or "the server says 410, and nothing more", consistent=True
                )
            raise _RelistError("error", f"{code}: {message or 'the server says nothing more'}")
        metadata = thing.get("metadata")
        version = str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
        changes = kind in ("ADDED", "MODIFIED", "DELETED") and self._holder.changed(kind, _checked(thing))
        moves = bool(version) and version != self._seen and not is_older(version, self._seen)
        if moves:
            self._version = self._seen = version
        return changes and moves

    # ---- what goes wrong

    def _get(self, read_secs: float, **query: Any) -> Body:
        body = self._server.get(self._namespace, read_secs, **query)
        self._failures = 0
        self._renewed = False
        if query.get("watch"):  # and not after a list: what can only be listed is to be listed seldom
            self._rejected = 0
        return body

    def _relist(self, error: _RelistError) -> float:
        """List again: at once, but with pauses if that does not help."""
        self.restarts[error.reason] += 1
        self._version = ""
        self._consistent = self._consistent or error.consistent
        self._fruitless += 1
        pause = self._until_restart()
        if self._fruitless > 1:
            pause = max(pause, self._backoff(self._fruitless - 1))
        if pause == 0:
            return 0.0
        self._fail(error.reason, f"cannot be watched: {said_of(error)}", pause)
        return pause

    def _http_error(self, error: HttpError, verb: str) -> float:
        status = error.status
        if status == 410:
            return self._relist(_RelistError("gone", said_of(error), consistent=True))
        if status == 401:
            self._server.renew()
            if not self._renewed:
                self._renewed = True
                return 0.0
        message = f"cannot {verb}: {said_of(error)}"
        self._failures += 1
        pause = self._backoff(self._failures)
        if status in (400, 403, 404):
            self._version = ""  # what can be listed but not watched is listed again and again
            self._rejected += 1
            # The first pauses are short: an API server that starts rejects everything until it has its roles.
            pause = min(self._timing.forbidden, self._backoff(self._rejected))
        if status == 403:
            role = "Role" if self._namespace else "ClusterRole"
            message += f"; a {role} has to allow the verbs get, list and watch of {self._resource}"
        if status in (429, 503) and error.retry_after is not None:
            pause = min(max(error.retry_after, self._timing.backoff[0]), self._timing.longest_retry_after)
        self._fail(_KINDS.get(status, "server_error"), message, pause)
        return pause

    def _failed(self, kind: str, message: str) -> float:
        self._failures += 1
        pause = self._backoff(self._failures)
        self._fail(kind, message, pause)
        return pause

    def _fail(self, kind: str, message: str, pause: float) -> None:
        where = f"namespace {self._namespace}" if self._namespace else "all namespaces"
        self._holder.failed(SourceError(kind, f"{self._resource} in {where}: {message}", pause))

    def _backoff(self, failures: int) -> float:
        first, most = self._timing.backoff
        return min(most, first * 2.0 ** min(failures - 1, 16) * self._randomness.uniform(0.5, 1.5))


def _parsed(text: bytes, read: Callable[[bytes], Any]) -> dict[str, Any]:
    try:
        parsed = read(text)
    except ValueError as error:
        raise _RelistError("error", f"a response that is no JSON: {said_of(error)}") from None
    if not isinstance(parsed, dict):
        raise _RelistError("error", "a response that is no JSON object")
    return parsed


def _checked(thing: object) -> dict[str, Any]:
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    if not isinstance(thing, dict) or not isinstance(metadata, dict) or not metadata.get("name"):
        raise _RelistError("error", "an object without a name")
    return thing


def _lines(body: Body) -> Iterator[bytes]:
    """Whole lines. What is behind the last one has been cut off, and comes again with the next watch."""
    parts: list[bytes] = []
    size = 0
    while piece := body.read():
        *whole, piece = piece.split(b"\n")
        if whole:
            yield from (line for line in (b"".join([*parts, whole[0]]), *whole[1:]) if line.strip())
            parts, size = [], 0
        parts.append(piece)
        size += len(piece)
        if size > _LONGEST_LINE:
            raise _RelistError("error", f"an event of more than {_LONGEST_LINE >> 20} MiB")


def is_older(version: str, other: str) -> bool:
    """Whether a resource version is older than another: API servers count, in digits without zeros before."""
    if not re.fullmatch("[0-9]+", version) or not re.fullmatch("[0-9]+", other):
        return False
    return (len(version), version) < (len(other), other)
