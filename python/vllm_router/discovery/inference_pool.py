"""InferencePoolSource: the pods of an InferencePool, as workers.

    options = KubernetesOptions(pool="vllm", namespaces=["models"])
    with router.follow(InferencePoolSource(options)) as follower:
        ...

An InferencePool of the Gateway API Inference Extension says which labels its pods have, and which of their
ports are workers. The object is watched, and its pods by a KubernetesSource, which another one replaces when
labels or ports have changed: workers that the pool has no longer leave the fleet as deleted ones. A pool that
is deleted, or has a mistake, is reported, and its last pods are followed on. It takes a Role with the verbs
get, list and watch of pods and of inferencepools in the API group inference.networking.k8s.io.
"""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from vllm_router._messages import show
from vllm_router.discovery.kubernetes import KubernetesSource
from vllm_router.discovery.kubernetes_client import ApiServer, said_of
from vllm_router.discovery.kubernetes_costs import DeletionCosts, Pod, Use, Writer
from vllm_router.discovery.kubernetes_options import KubernetesOptions
from vllm_router.discovery.kubernetes_watch import ListWatch, Server, Timing, is_older
from vllm_router.discovery.source import Listing, Source, SourceError

__all__ = ["InferencePoolSource"]


class PoolPods(NamedTuple):
    """What an InferencePool says of its pods."""

    labels: tuple[tuple[str, str], ...]
    ports: tuple[int, ...]

    @classmethod
    def of(cls, thing: Mapping[str, Any]) -> PoolPods:
        """Read an object.

        Raises:
            ValueError: it says no labels or no ports.
        """
        spec = _mapping(thing.get("spec"))
        labels = _mapping(_mapping(spec.get("selector")).get("matchLabels"))
        if not labels or not all(isinstance(value, str) for value in labels.values()):
            raise ValueError(
                "spec.selector.matchLabels has no labels; name those of the pods, such as app: vllm"
            )
        listed = spec.get("targetPorts")
        ports: list[int] = []
        for one in listed if isinstance(listed, list) else []:
            port = _mapping(one).get("number")
            if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
                raise ValueError(
                    f"spec.targetPorts has the number {show(port)}; name 1 to 8 ports between 1 and 65535, "
                    "such as number: 8000"
                )
            ports.append(port)
        if not ports:
            raise ValueError("spec.targetPorts is empty; name 1 to 8 ports, such as number: 8000")
        return cls(tuple(sorted(labels.items())), tuple(dict.fromkeys(ports)))


class _Pool:
    """The object: what hears of it. `changed` guards it."""

    def __init__(
        self, options: KubernetesOptions, changed: threading.Condition, tell: Callable[[], None]
    ) -> None:
        self.pods: PoolPods | None = None
        self.error: SourceError | None = None  # that has not been reported yet
        self._where = f"InferencePool {options.namespace_list[0]}/{options.pool}"
        self._name = options.pool
        self._changed = changed
        self._tell = tell
        self._version = ""

    def replaced(self, objects: list[dict[str, Any]]) -> None:
        """See kubernetes_watch.Holder."""
        found = [one for one in objects if one["metadata"]["name"] == self._name]
        if found:
            self._take(found[0])
        else:
            self.failed(self._absent())

    def changed(self, kind: str, thing: dict[str, Any]) -> bool:
        """See kubernetes_watch.Holder."""
        metadata = thing["metadata"]
        if metadata["name"] != self._name or is_older(
            str(metadata.get("resourceVersion") or ""), self._version
        ):
            return False
        if kind == "DELETED":
            self.failed(self._absent())
            return True
        return self._take(thing)

    def failed(self, error: SourceError) -> None:
        """See kubernetes_watch.Holder."""
        with self._changed:
            self.error = error
            self._changed.notify_all()
        self._tell()

    def _absent(self) -> SourceError:
        kept = "" if self.pods is None else "; its last pods are followed on"
        return SourceError("no_pool", f"there is no {self._where}{kept}", 0)

    def _take(self, thing: dict[str, Any]) -> bool:
        self._version = str(thing["metadata"].get("resourceVersion") or "")
        try:
            pods = PoolPods.of(thing)
        except ValueError as error:
            self.failed(SourceError("bad_pool", f"{self._where}: {error}", 0))
            return False
        with self._changed:
            self.error = None
            if pods == self.pods:
                return False
            self.pods = pods
            self._changed.notify_all()
        self._tell()
        return True


class InferencePoolSource(Source):
    """The workers of an InferencePool.

    Args:
        options: With `pool`, and the one namespace.
        server: Makes the requests about the pool; None: the package kubernetes.
        pods: Makes the source of its pods; None: `KubernetesSource`.
        timing: None: that of a cluster, with `resync_secs` of the options.
        clock: Seconds that only grow.
        randomness: For windows and pauses; None: a new generator of random numbers.

    Raises:
        ImportError: the package kubernetes is not there.
        ValueError: the options name no InferencePool.
    """

    name = "kubernetes"

    def __init__(
        self,
        options: KubernetesOptions,
        *,
        server: Server | None = None,
        pods: Callable[[KubernetesOptions], KubernetesSource] | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        randomness: random.Random | None = None,
    ) -> None:
        if not options.pool:
            raise ValueError("pool is empty; set it to the name of an InferencePool")
        self.options = options
        self._server = server or ApiServer(options)
        self._timing = timing or Timing(resync=options.resync_secs)
        self._clock = clock
        self._randomness = randomness or random.Random()
        self._make_pods = pods or self._new_pods
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._pool = _Pool(options, self._changed, self._interrupt)
        self._pods: KubernetesSource | None = None
        self._followed: PoolPods | None = None  # by `_pods`
        self._is_new = False  # `_pods` has listed nothing yet
        self._urls: set[str] = set()  # of the last list
        self._loop: ListWatch | None = None
        self._threads: list[threading.Thread] = []

    def look(self) -> Listing:
        """All workers, once something has changed; see `Source.look()`."""
        while True:
            pods = self._current()
            try:
                listing = pods.look()
            except SourceError as error:
                if error.kind != "closed":
                    raise
                continue  # another one follows the pods, or this source is closed
            return self._declared(pods, listing)

    def close(self) -> None:
        """End look() and the threads; see `Source.close()`."""
        self._closing.set()
        with self._changed:
            pods = self._pods
            self._changed.notify_all()
        self._server.shutdown()
        if pods is not None:
            pods.close()

    def deletion_costs(self, uses: Callable[[], Iterable[Use] | None], **options: Any) -> DeletionCosts:
        """What writes the costs of the pool's pods; see kubernetes_costs. It is to be stopped first."""
        return DeletionCosts(cast("Writer", self._server), self.pods, uses, **options)

    def pods(self) -> list[Pod]:
        """Those that are workers now."""
        with self._changed:
            source = self._pods
        return [] if source is None else source.pods()

    @property
    def restarts(self) -> Counter[str]:
        """How often a watch of the pool ended, by reason; see `KubernetesSource.restarts`."""
        return Counter() if self._loop is None else self._loop.restarts

    def _current(self) -> KubernetesSource:
        """The source of the pods, once the pool has said which those are."""
        with self._changed:
            if self._loop is None and not self._closing.is_set():
                self._start()
            while not self._closing.is_set():
                error, self._pool.error = self._pool.error, None
                if error is not None:
                    raise error
                if self._pool.pods is not None:
                    if self._pods is None or self._followed != self._pool.pods:
                        self._followed = self._pool.pods
                        self._pods = self._make_pods(self._options_of(self._followed))
                        self._is_new = True
                    return self._pods
                self._changed.wait()
        raise SourceError("closed", "this InferencePoolSource is closed; make a new one")

    def _declared(self, pods: KubernetesSource, listing: Listing) -> Listing:
        urls = {spec.url for spec in listing.workers or ()}
        with self._changed:
            gone, self._urls = self._urls - urls, urls
            is_new, self._is_new = self._is_new and pods is self._pods, False
        if not is_new:
            return listing
        return dataclasses.replace(listing, deleted=sorted({*listing.deleted, *gone}))

    def _interrupt(self) -> None:
        """End a look() of the pods that waits, so that the news of the pool is heard."""
        with self._changed:
            pods, error = self._pods, self._pool.error
            replaced = pods is not None and self._pool.pods != self._followed
            if pods is not None and error is not None:
                self._pool.error = None
            if replaced:
                self._followed = None
        if pods is None:
            return
        if error is not None:
            pods.report(error)
        if replaced:
            pods.close()

    def _options_of(self, pods: PoolPods) -> KubernetesOptions:
        return dataclasses.replace(self.options, pool="", selector=dict(pods.labels), ports=pods.ports)

    def _new_pods(self, options: KubernetesOptions) -> KubernetesSource:
        randomness = random.Random(self._randomness.random())
        return KubernetesSource(options, timing=self._timing, clock=self._clock, randomness=randomness)

    def _start(self) -> None:
        self._loop = ListWatch(
            self._server,
            self.options.resource,
            self.options.namespace_list[0],
            self._pool,
            self._timing,
            self._clock,
            random.Random(self._randomness.random()),
            _whole_json,
        )
        self._threads.append(threading.Thread(target=self._run, name="discovery-inference-pool", daemon=True))
        self._threads[0].start()

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            try:
                pause = cast("ListWatch", self._loop).turn()
            except Exception as error:  # whatever it is, this thread goes on
                if self._closing.is_set():
                    return
                pause = self._timing.backoff[1]
                self._pool.failed(SourceError("internal", f"{type(error).__name__}: {said_of(error)}", pause))


def _whole_json(text: bytes) -> Any:
    """Labels may have any name, so nothing is left out."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
