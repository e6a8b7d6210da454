"""KubernetesSource: the pods of a label selector, or the endpoints of a Service, as workers.

    options = KubernetesOptions(selector={"app": "vllm"}, ports=[8000], namespaces=["models"])
    with router.follow(KubernetesSource(options)) as follower:
        ...

A pod that is not ready stays and gets no new requests; one that is being deleted drains. With the options
`prefill_selector` and `decode_selector` the labels of a pod say its stage; one that both match is reported
and left out. It takes a Role with the verbs get, list and watch of pods, or of endpointslices in the API
group discovery.k8s.io.

    kubernetes_options     KubernetesOptions
    kubernetes_objects     pods and EndpointSlices -> WorkerSpec
    kubernetes_watch       ListWatch: the list-watch loop of one namespace
    kubernetes_client      ApiServer: requests, by the package kubernetes
    inference_pool         InferencePoolSource: the pods that an object says
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from vllm_router.discovery.kubernetes_client import ApiServer, said_of
from vllm_router.discovery.kubernetes_costs import DeletionCosts, Pod, Use, Writer
from vllm_router.discovery.kubernetes_objects import (
    Workers,
    key_of,
    merged,
    pods_to_specs,
    slices_to_specs,
    trimmed_json,
    workers_of_pod,
    workers_of_slice,
)
from vllm_router.discovery.kubernetes_options import KubernetesOptions
from vllm_router.discovery.kubernetes_watch import ListWatch, Server, Timing, is_older
from vllm_router.discovery.source import Listing, Source, SourceError

__all__ = ["KubernetesOptions", "KubernetesSource", "pods_to_specs", "slices_to_specs"]

logger = logging.getLogger("vllm_router.discovery")

_QUIET_SECS = 0.05  # a burst of events is over
_LONGEST_BURST_SECS = 0.2
_START_SECS = 10.0  # a namespace that says nothing for so long does not hold the others up
_MAX_SHOWN = 3  # pods in a message
_MAX_WARNINGS = 1000  # that are remembered, so that each is logged once


class _CachedObject(NamedTuple):
    """What is kept of an object."""

    uid: str
    version: str
    workers: Workers

    @property
    def urls(self) -> set[str]:
        """Of its workers."""
        return {spec.url for spec in self.workers.specs}


class _Namespace:
    """The objects of one namespace, or of all."""

    def __init__(self, cache: WatchCache) -> None:
        self.objects: dict[tuple[str, str], _CachedObject] = {}
        self.listed = False
        self.heard = False  # a list or a failure
        self.unreported: SourceError | None = None
        self._cache = cache

    def replaced(self, objects: list[dict[str, Any]]) -> None:
        """See kubernetes_watch.Holder. What has vanished is absent; nothing said that it was deleted."""
        with self._cache.changed:
            before = self.objects
            self.objects = {key_of(thing): self._cache.cached(thing) for thing in objects}
            for key, new in self.objects.items():
                old = before.get(key)
                if old is not None and old.uid == new.uid:
                    self._cache.deleted |= old.urls - new.urls
            self.listed = self.heard = True
            self.unreported = None
            self._cache.touched(at_once=True)

    def changed(self, kind: str, thing: dict[str, Any]) -> bool:
        """See kubernetes_watch.Holder. Events that come again, or too late, change nothing."""
        with self._cache.changed:
            self.unreported = None
            key = key_of(thing)
            old = self.objects.get(key)
            new = self._cache.cached(thing)
            if old is not None and is_older(new.version, old.version):
                return False
            if kind == "DELETED":
                if old is None or new.uid != old.uid:
                    return False
                del self.objects[key]
                self._cache.deleted |= old.urls
            else:
                self.objects[key] = new
                if old is not None and old.workers == new.workers:
                    return False
                if old is not None:
                    self._cache.deleted |= old.urls - new.urls
            self._cache.touched()
            return True

    def failed(self, error: SourceError) -> None:
        """See kubernetes_watch.Holder. The objects stay."""
        with self._cache.changed:
            self.heard = True
            self.unreported = error
            self._cache.changed.notify_all()


class WatchCache:
    """The workers of all namespaces, and when they are to be declared. `changed` guards all of it.

    A namespace that cannot be listed any more keeps the workers it had. While one has never been listed, the
    list is not complete: nothing leaves the fleet by absence.
    """

    def __init__(
        self, options: KubernetesOptions, clock: Callable[[], float], changed: threading.Condition
    ) -> None:
        self.changed = changed
        self.deleted: set[str] = set()  # seen to go since the last list
        self.namespaces = [_Namespace(self) for _ in options.namespace_list or ("",)]
        self._options = options
        self._clock = clock
        self._begun = clock()
        self._first_touch: float | None = None
        self._last_touch = 0.0
        self._at_once = False
        self._warned: dict[str, None] = {}
        self._conflict: SourceError | None = None

    def cached(self, thing: dict[str, Any]) -> _CachedObject:
        """An object, cut to what is read of it."""
        metadata = thing.get("metadata", {})
        convert = workers_of_slice if self._options.service else workers_of_pod
        workers = convert(thing, self._options, self._warn)
        return _CachedObject(
            str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""), workers
        )

    def touched(self, at_once: bool = False) -> None:
        """Something has changed."""
        self._last_touch = self._clock()
        if self._first_touch is None:
            self._first_touch = self._last_touch
        self._at_once = self._at_once or at_once
        self.changed.notify_all()

    def due_at(self) -> float | None:
        """When the workers are to be declared; None: nothing has changed."""
        if self._first_touch is None:
            return None
        starting = self._begun + _START_SECS
        if self._clock() < starting and not all(part.heard for part in self.namespaces):
            return starting
        if self._at_once:
            return self._first_touch
        return min(self._last_touch + _QUIET_SECS, self._first_touch + _LONGEST_BURST_SECS)

    def take(self) -> Listing:
        """All workers, and those that were seen to go."""
        objects = [one for part in self.namespaces for one in part.objects.values()]
        specs = merged((one.workers for one in objects), self._options)
        deleted = sorted(self.deleted - {spec.url for spec in specs})
        self.deleted.clear()
        self._first_touch = None
        self._at_once = False
        options = self._options
        where = f"in {', '.join(options.namespace_list) or 'all namespaces'}"
        ports = ", ".join(map(str, options.port_list))
        if not options.stages and not specs:
            what = f"{len(objects)} {options.resource} {where} match {options.label_selector}"
            none = f", and none of them has started and has an address and one of the ports {ports}"
            self._warn(what + none if objects else what)
        for stage in options.stages:
            if not any(spec.worker_type == stage for spec in specs):
                terms = ",".join(getattr(options, f"{stage}_selector"))
                self._warn(
                    f"no pod {where} matches {stage}_selector {terms}, has started and has an address and "
                    f"one of the ports {ports}, so there is no {stage} worker"
                )
        self._conflict = _conflict_in([one.workers.conflict for one in objects])
        complete = all(part.listed for part in self.namespaces)
        return Listing(specs, complete=complete, deleted=deleted, again_secs=0)

    def take_error(self) -> SourceError | None:
        """A failure that has not been reported yet."""
        conflict, self._conflict = self._conflict, None
        if conflict is not None:
            return conflict
        for part in self.namespaces:
            error, part.unreported = part.unreported, None
            if error is not None:
                # Only then is there nothing to hear of in the meantime.
                idle = len(self.namespaces) == 1 and self._first_touch is None
                return SourceError(error.kind, error.message, error.again_secs if idle else 0)
        return None

    def _warn(self, message: str) -> None:
        if message in self._warned:
            return
        while len(self._warned) >= _MAX_WARNINGS:
            del self._warned[next(iter(self._warned))]
        self._warned[message] = None
        logger.warning("source kubernetes: %s", message)


def _conflict_in(conflicts: Iterable[str]) -> SourceError | None:
    """What is reported beside a list, which is taken without these pods."""
    found = sorted(filter(None, conflicts))
    if not found:
        return None
    more = len(found) - _MAX_SHOWN
    rest = f"; {more} more pods are left out" if more > 0 else ""
    return SourceError("both_stages", "; ".join(found[:_MAX_SHOWN]) + rest, 0)


class KubernetesSource(Source):
    """Workers of a Kubernetes cluster.

    Each namespace is watched in a thread of its own, from the first look() until close(), which is final.
    Without a cluster to be reached it says so again and again, and goes on.

    Args:
        options: Which objects, and where the API server is.
        server: Makes the requests; None: the package kubernetes.
        timing: None: that of a cluster, with `resync_secs` of the options.
        clock: Seconds that only grow.
        randomness: For windows and pauses; None: a new generator of random numbers.

    Raises:
        ImportError: the package kubernetes is not there.
        ValueError: the options name an InferencePool.
    """

    name = "kubernetes"

    def __init__(
        self,
        options: KubernetesOptions,
        *,
        server: Server | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        randomness: random.Random | None = None,
    ) -> None:
        if options.pool:
            raise ValueError(
                f"pool is {options.pool}, whose labels are not known; make an InferencePoolSource of it"
            )
        self.options = options
        self._server = server or ApiServer(options)
        self._timing = timing or Timing(resync=options.resync_secs)
        self._clock = clock
        self._randomness = randomness or random.Random()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._cache: WatchCache | None = None
        self._reported: SourceError | None = None
        self._loops: list[ListWatch] = []
        self._threads: list[threading.Thread] = []

    def look(self) -> Listing:
        """All workers, once something has changed; see `Source.look()`."""
        with self._changed:
            cache = self._cache or self._start()
            while not self._closing.is_set():
                due, now = cache.due_at(), self._clock()
                if due is not None and now >= due:
                    return cache.take()
                error = self._reported or cache.take_error()
                self._reported = None
                if error is not None:
                    raise error
                self._changed.wait(None if due is None else due - now)
        raise SourceError("closed", "this KubernetesSource is closed; make a new one")

    def close(self) -> None:
        """End look() and the threads; see `Source.close()`."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()

    def report(self, error: SourceError) -> None:
        """Have look() raise a failure that was found elsewhere."""
        with self._changed:
            self._reported = error
            self._changed.notify_all()

    def deletion_costs(self, uses: Callable[[], Iterable[Use] | None], **options: Any) -> DeletionCosts:
        """What writes the costs of this source's pods; see kubernetes_costs. It is to be stopped first."""
        return DeletionCosts(cast("Writer", self._server), self.pods, uses, **options)

    def pods(self) -> list[Pod]:
        """Those that are workers now."""
        with self._changed:
            parts = [] if self._cache is None else self._cache.namespaces
            return [
                Pod(*key, one.uid, tuple(sorted(one.urls)))
                for part in parts
                for key, one in part.objects.items()
                if one.workers.specs
            ]

    @property
    def restarts(self) -> Counter[str]:
        """How often a watch ended, by reason: closed, cut, gone, timeout, error, malformed, resync."""
        return sum((loop.restarts for loop in self._loops), Counter())

    def _start(self) -> WatchCache:
        cache = self._cache = WatchCache(self.options, self._clock, self._changed)
        for name, part in zip(self.options.namespace_list or ("",), cache.namespaces, strict=True):
            loop = ListWatch(
                self._server,
                self.options.resource,
                name,
                part,
                self._timing,
                self._clock,
                random.Random(self._randomness.random()),
                functools.partial(trimmed_json, more=self.options.kept_names),
            )
            thread = threading.Thread(
                target=self._run, args=(loop, part), name=f"discovery-kubernetes-{name or 'all'}", daemon=True
            )
            self._loops.append(loop)
            self._threads.append(thread)
            if not self._closing.is_set():
                thread.start()
        return cache

    def _run(self, loop: ListWatch, part: _Namespace) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            try:
                pause = loop.turn()
            except Exception as error:  # whatever it is, this thread goes on
                if self._closing.is_set():
                    return
                pause = self._timing.backoff[1]
                message = f"{type(error).__name__}: {said_of(error)}"
                part.failed(SourceError("internal", message, pause))
