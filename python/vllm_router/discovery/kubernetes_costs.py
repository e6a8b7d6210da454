"""Pod deletion costs: which of the workers' pods a ReplicaSet removes first when it is scaled down.

    100 x requests under way + tokens / 256 that its cache saved in the last 10 minutes
        -> metadata.annotations["controller.kubernetes.io/pod-deletion-cost"]

The pod of the lowest cost goes first. Requests are those of all routers; what caches saved is known from the
responses that this router saw, where engines tell it in `usage`. One router of a fleet writes, each
`EVERY_SECS`, and only what has moved by a quarter, so that the API server is not written to for noise.

    PodValues       the pure part: costs of pods, and which of them have to be written
    DeletionCosts   the thread that writes them
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from vllm_router._core import worker_key
from vllm_router.discovery.kubernetes_client import ConfigError, CutError, HttpError, SilentError, said_of

__all__ = ["ANNOTATION", "DeletionCosts", "Pod", "PodValues", "Use"]

logger = logging.getLogger("vllm_router.discovery")

ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
EVERY_SECS = 30.0
WINDOW_SECS = 600.0
OF_REQUEST = 100
TOKENS = 256  # of a cache that are worth 1
SMALLEST_STEP = 25  # a quarter of a request
LARGEST = 2**31 - 1  # the annotation is an int32

MOST_WRITES = 500  # in a row; the others have their turn after EVERY_SECS
_LONGEST_TURN_SECS = 20.0
_READ_SECS = 5.0
_FORBIDDEN_SECS = 300.0
_REPEAT_SECS = 600.0  # the same trouble is logged again after this


class Use(NamedTuple):
    """A worker's host, as the core tells it."""

    url: str
    requests: int
    cached_tokens: int
    """So far; it only grows, unless the worker is another one."""


class Pod(NamedTuple):
    """A pod that is one or more workers."""

    namespace: str
    name: str
    uid: str
    urls: tuple[str, ...]


def _key(url: str) -> str:
    try:
        return worker_key(url)
    except ValueError:
        return url


def is_of_another_uid(error: HttpError) -> bool:
    """Another pod has the name by now. An API server takes the uid of the patch for a change of it."""
    return error.status == 422 and "metadata.uid" in str(error)


class PodValues:
    """What pods are worth, and what was written of it. The time is passed in."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()  # cached tokens by worker
        self._written: dict[str, int] = {}  # by uid

    def observe(self, now: float, uses: Iterable[Use]) -> dict[str, int]:
        """The cost of each worker, by its key."""
        uses = list(uses)
        self._seen.append((now, {_key(use.url): use.cached_tokens for use in uses}))
        while len(self._seen) > 1 and self._seen[1][0] <= now - WINDOW_SECS:
            self._seen.popleft()
        before = self._seen[0][1]
        costs: dict[str, int] = {}
        for use in uses:
            key = _key(use.url)
            first = before.get(key, 0)
            saved = use.cached_tokens - (first if first <= use.cached_tokens else 0)
            costs[key] = min(OF_REQUEST * use.requests + saved // TOKENS, LARGEST)
        return costs

    def due(self, pods: Iterable[Pod], costs: Mapping[str, int]) -> list[tuple[Pod, int]]:
        """The pods whose cost has to be written, the largest change first. Others are forgotten."""
        changes: list[tuple[int, Pod, int]] = []
        kept: dict[str, int] = {}
        for pod in pods:
            known = [costs[key] for key in map(_key, pod.urls) if key in costs]
            written = self._written.get(pod.uid)
            if written is not None:
                kept[pod.uid] = written
            if not known:
                continue  # not in the fleet yet, or not any more
            cost = min(sum(known), LARGEST)
            step = cost + 1 if written is None else abs(cost - written)
            if written is None or step >= max(SMALLEST_STEP, written / 4):
                changes.append((step, pod, cost))
        self._written = kept
        changes.sort(key=lambda change: -change[0])
        return [(pod, cost) for _, pod, cost in changes]

    def wrote(self, pod: Pod, cost: int) -> None:
        """It is in the annotation."""
        self._written[pod.uid] = cost

    def forget(self) -> None:
        """Another router may have written since."""
        self._written.clear()


class Writer(Protocol):
    """Makes the requests; `ApiServer` is one."""

    def annotate_pod(self, namespace: str, name: str, uid: str, key: str, value: str, secs: float) -> None:
        """Sets an annotation of the pod with this uid."""
        ...

    def renew(self) -> None:
        """Read the credentials again before the next request."""
        ...


class DeletionCosts:
    """Writes the costs of pods until `stop()`.

    Args:
        writer: Makes the requests.
        pods: Those that are workers now.
        uses: What the core tells of its workers; None: another router writes.
        every_secs: Between two turns; None: EVERY_SECS.
    """

    def __init__(
        self,
        writer: Writer,
        pods: Callable[[], Iterable[Pod]],
        uses: Callable[[], Iterable[Use] | None],
        every_secs: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._pods = pods
        self._uses = uses
        self._every_secs = EVERY_SECS if every_secs is None else every_secs
        self._clock = clock
        self._values = PodValues()
        self._stopping = threading.Event()
        self._told: dict[str, float] = {}
        self._refused: dict[str, float] = {}  # namespaces, and uids of pods: when
        self._thread = threading.Thread(target=self._run, name="pod-deletion-costs", daemon=True)

    def start(self) -> None:
        """Begin; the first turn is after `every_secs`."""
        self._thread.start()

    def stop(self, wait_secs: float = 0.0) -> None:
        """End; a request that is under way may go on for some seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(wait_secs)

    def _run(self) -> None:
        pause = self._every_secs
        while not self._stopping.wait(pause):
            try:
                pause = self.turn()
            except Exception as error:  # whatever it is, this thread goes on
                self._warn("internal", f"{type(error).__name__}: {said_of(error)}")
                pause = self._every_secs

    def turn(self) -> float:
        """Writes what has changed. Returns the seconds until the next turn."""
        uses = self._uses()
        if uses is None:
            self._values.forget()
            return self._every_secs
        begun = self._clock()
        costs = self._values.observe(begun, uses)
        self._refused = {key: at for key, at in self._refused.items() if begun - at < _FORBIDDEN_SECS}
        due = [
            (pod, cost)
            for pod, cost in self._values.due(self._pods(), costs)
            if pod.uid not in self._refused and pod.namespace not in self._refused
        ]
        for pod, cost in due[:MOST_WRITES]:
            if pod.namespace in self._refused:
                continue
            if self._stopping.is_set() or self._clock() - begun > _LONGEST_TURN_SECS:
                break
            try:
                self._writer.annotate_pod(pod.namespace, pod.name, pod.uid, ANNOTATION, str(cost), _READ_SECS)
            except HttpError as error:
                if error.status in (404, 409) or is_of_another_uid(error):  # it has gone
                    continue
                if error.status in (403, 422):  # of this pod, or of its namespace; the others may be written
                    self._refused[pod.namespace if error.status == 403 else pod.uid] = begun
                    self._warn(str(error.status), said_of(error))
                    continue
                return self._failed(error)
            except (CutError, SilentError, ConfigError) as error:
                self._warn("unreachable", said_of(error))
                break
            self._values.wrote(pod, cost)
        return self._every_secs

    def _failed(self, error: HttpError) -> float:
        self._warn(str(error.status), said_of(error))
        if error.status == 401:
            self._writer.renew()
        return max(self._every_secs, min(error.retry_after or 0.0, _FORBIDDEN_SECS))

    def _warn(self, kind: str, message: str) -> None:
        now = self._clock()
        if self._stopping.is_set() or now - self._told.get(kind, -_REPEAT_SECS) < _REPEAT_SECS:
            return
        self._told[kind] = now
        hint = "; the router's Role needs the verb patch of pods" if kind == "403" else ""
        logger.warning("pod deletion costs cannot be written: %s%s", message, hint)
