"""What does following a Kubernetes cluster cost, and how late does the fleet know of an event?

    PYTHONPATH=build/release/python:. python benchmarks/kubernetes_cost.py [--pods 1000] [--rate 10]

The API server is tests/fakes/kubernetes.py, in this process. The follower is a process of its own with the
production source and the client that makes its requests. For the cost it has a recorder in place of the core,
so that the figures are those of Python alone. For the latency it has the core, without a server: a worker
joins without a health check, and an event counts as known once the fleet with it has been published. Times
run from the call that changes the fake API server, so they include what that takes to send the event.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes import FakeKubernetes, pod
from tests.fakes.wire import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
Object = dict[str, Any]
Figures = dict[str, Any]

OTHERS = {"labels": {"app": "another"}}
DELETION = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
# What happens to a pod, one after another, until it is as it was.
STEPS: tuple[dict[str, Any], ...] = (
    {"ready": False},
    {},
    {"restarts": 1},
    OTHERS,
    {"restarts": 1},
    DELETION,
    {},
)


# The cluster, in this process


def padding(size: int) -> Object:
    """What a pod holds beside the things that are read of it: `size` bytes of JSON, nested as it is there."""
    fields: Object = {f"f:field-{number}": {".": {}, "f:name": {}, "f:value": {}} for number in range(12)}
    manager = {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": fields}}
    variables = [{"name": f"VLLM_SETTING_{number}", "value": "x" * 40} for number in range(12)]
    once = {"managers": [manager], "variables": variables}
    count = max(1, round(size / len(json.dumps(once))))
    return {"managers": [manager] * count, "variables": variables * count}


def made_pod(number: int, more: Object, **changes: Any) -> Object:
    made = pod(f"vllm-{number}", f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", **changes)
    made["metadata"]["managedFields"] = more["managers"]
    made["spec"]["containers"][0]["env"] = more["variables"]
    return made


def url_of(number: int) -> str:
    return f"http://{made_pod(number, padding(0))['status']['podIP']}:8000"


def events(pods: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Pods and what happens to each; each step of one comes long after the step before."""
    at_once = min(pods, 40)
    first = 0
    while True:
        for step in STEPS:
            for number in range(first, first + at_once):
                yield number % pods, step
        first += at_once


def send(
    cluster: FakeKubernetes, count: int, rate: float, pods: int, more: Object
) -> list[tuple[str, float]]:
    """So many events, `rate` in a second. Returns of each the URL of its worker and when it was sent."""
    sent = []
    begun = time.monotonic()
    for index, (number, step) in zip(range(count), events(pods), strict=False):
        time.sleep(max(0.0, begun + index / rate - time.monotonic()))
        thing = made_pod(number, more, **step)
        sent.append((url_of(number), time.monotonic()))
        cluster.put(thing)
    return sent


# The follower, in a process of its own


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def follow(kubeconfig: str, with_core: bool) -> None:
    """Follow until standard input ends; each line of it is answered with the figures so far."""
    figures: Figures = {"python": resident()}
    from vllm_router import Router

    figures["router"] = resident()
    published: list[tuple[float, list[str]]] = []

    class Recorder(Router):
        """A router that writes down what is declared."""

        def _reconcile(self, *declared: Any) -> Any:
            changes = super()._reconcile(*declared) if with_core else ([], [], [], [])
            published.append((time.monotonic(), [url for urls in changes[:3] for url in urls]))
            return changes

    begun = cpu()
    from kubernetes.client import ApiClient, Configuration, CoreV1Api  # which loads its models now, not later

    from vllm_router.discovery.kubernetes import KubernetesOptions, KubernetesSource

    CoreV1Api(ApiClient(Configuration()))
    source = KubernetesSource(
        KubernetesOptions("app=vllm", ports=8000, namespaces=["default"], kubeconfig=kubeconfig)
    )
    figures |= {"client": resident(), "import_secs": cpu() - begun}
    begun = cpu()
    with Recorder("round_robin").follow(source) as follower:
        assert follower.first(PATIENCE)
        figures["list_secs"] = cpu() - begun
        print("listed", flush=True)
        for _ in sys.stdin:
            now = {"cpu": cpu(), "now": time.monotonic(), "resident": resident(), "declared": len(published)}
            print(json.dumps(figures | now), flush=True)
    print(json.dumps(published), flush=True)


class Follower:
    """The process. Ends with the `with` block."""

    def __init__(self, cluster: FakeKubernetes, folder: Path, with_core: bool) -> None:
        config = cluster.kubeconfig(folder)
        code = f"from benchmarks.kubernetes_cost import follow; follow({config!r}, {with_core})"
        paths = [str(ROOT), *(path for path in sys.path if path)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._line() == "listed"
        cluster.wait_watching()

    def figures(self) -> Figures:
        assert self._process.stdin is not None
        self._process.stdin.write("figures\n")
        self._process.stdin.flush()
        answer: Figures = json.loads(self._line())
        return answer

    def end(self) -> list[tuple[float, list[str]]]:
        """Stop it. Returns when what was published."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        published: list[tuple[float, list[str]]] = json.loads(self._line())
        self._process.wait(PATIENCE)
        return published

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the follower has ended"
        return line

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


# What is measured


def percentile(ordered: list[float], percent: float) -> float:
    """The smallest of these that so many percent do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def cost(pods: int, rate: float, seconds: float, more: Object, folder: Path) -> Figures:
    """CPU and memory of a follower, in all and per declared list."""
    with FakeKubernetes(watch_secs=3600) as cluster:
        for number in range(pods):
            cluster.put(made_pod(number, more))
        with Follower(cluster, folder, with_core=False) as follower:
            send(cluster, max(1, round(rate)), rate, pods, more)  # the first second is not like the others
            before = follower.figures()
            send(cluster, max(1, round(rate * seconds)), rate, pods, more)
            after = follower.figures()
            follower.end()
    spent = after["cpu"] - before["cpu"]
    declared = after["declared"] - before["declared"]
    return after | {
        "share": spent / (after["now"] - before["now"]),
        "declared_per_s": declared / (after["now"] - before["now"]),
        "per_list": spent / max(1, declared),
    }


def latencies(pods: int, rate: float, count: int, more: Object, folder: Path) -> list[float]:
    """Seconds from each event to the publication of the fleet with it."""
    with FakeKubernetes(watch_secs=3600) as cluster:
        for number in range(pods):
            cluster.put(made_pod(number, more))
        with Follower(cluster, folder, with_core=True) as follower:
            sent = send(cluster, count, rate, pods, more)
            listed = follower.figures()["declared"]
            deadline = time.monotonic() + PATIENCE
            while follower.figures()["declared"] == listed and time.monotonic() < deadline:
                if time.monotonic() - sent[-1][1] > 2:  # it was there already
                    break
                time.sleep(0.05)
            published = follower.end()
    by_url: dict[str, list[float]] = {}
    for at, urls in published:
        for url in urls:
            by_url.setdefault(url, []).append(at)
    taken = []
    for url, at in sent:
        known = [when for when in by_url.get(url, ()) if when >= at]
        if not known:
            raise SystemExit(f"kubernetes_cost.py: an event of {url} never reached the fleet")
        taken.append(known[0] - at)
    return taken


def main(argv: list[str] | None = None) -> None:
    """Print the figures, each with its bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--pod-kb", type=float, default=8, help="JSON of one pod, in KB")
    parser.add_argument("--rate", type=float, default=10, help="events per second")
    parser.add_argument("--seconds", type=float, default=30, help="for which the cost is measured")
    parser.add_argument("--events", type=int, default=300, help="whose latency is measured, at each rate")
    parser.add_argument("--latency-rates", type=float, nargs="*", default=[10, 40], help="events per second")
    args = parser.parse_args(argv)
    more = padding(round(args.pod_kb * 1000))
    size = len(json.dumps(made_pod(0, more)))
    print(f"{args.pods} pods of {size / 1000:.1f} KB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = cost(args.pods, args.rate, args.seconds, more, folder)
        mib = {key: found[key] / 2**20 for key in ("python", "router", "client", "resident")}
        print(
            f"{args.rate:g} events/s: {found['share']:.2%} of a core (bar 2 %); "
            f"{found['declared_per_s']:.1f} lists declared a second, {found['per_list'] * 1e3:.2f} ms each"
        )
        print(
            f"memory: {mib['resident']:.1f} MiB (bar 60), of these {mib['router']:.1f} after importing "
            f"vllm_router, {mib['client']:.1f} with the client"
        )
        print(
            f"importing the client: {found['import_secs'] * 1e3:.0f} ms of CPU; the first list of the API "
            f"server: {found['list_secs'] * 1e3:.0f} ms, {found['list_secs'] / 60:.2%} of a core each minute"
        )
        for rate in args.latency_rates:
            taken = sorted(latencies(args.pods, rate, args.events, more, folder))
            print(
                f"{rate:g} events/s, {len(taken)} events: published after "
                f"{statistics.median(taken) * 1e3:.0f} ms p50, {percentile(taken, 99) * 1e3:.0f} ms p99 "
                f"(bar 250), {taken[-1] * 1e3:.0f} ms at most",
                flush=True,
            )


if __name__ == "__main__":
    main()
