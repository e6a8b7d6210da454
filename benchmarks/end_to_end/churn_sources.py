"""The router of churn.py, and the sources that tell it of its workers.

Each source is told all workers that there are, and tells the router what has changed in its own way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.end_to_end.churn_workers import WorkerProcess, die_with_parent
from tests.fakes.dns import FakeDns
from tests.fakes.kubernetes import FakeKubernetes, pod

PATIENCE_SECS = 60.0


@dataclasses.dataclass(eq=False)
class Worker:
    """A worker, as its source sees it."""

    host: str
    port: int
    process: WorkerProcess | None = None
    ready: bool = True
    leaving: bool = False
    incarnation: int = 0
    at_work: bool = False  # declared, up, and nothing happens to it

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


OPTIONS = ("--prometheus-port", "0", "--health-check-interval-secs", "1", "--decision-headers")


class Router:
    """The command, and calls to it."""

    def __init__(self, arguments: Iterable[str], log: Path) -> None:
        command = [sys.executable, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", "0"]
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                [*command, *OPTIONS, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the access log
                stderr=sink,
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            found = re.search(rb"serves http://[^: ]+:(\d+)", log.read_bytes())
            if found:
                break
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"churn.py: the router did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        self.port = int(found[1])

    def call(self, method: str, path: str, **query: Any) -> Any:
        """JSON, or the text of an error; `query` is sent in the URL."""
        text = f"?{urllib.parse.urlencode(query)}" if query else ""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}{text}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECS) as response:
                body = response.read()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        with contextlib.suppress(ValueError):
            return json.loads(body)
        return body.decode()

    def states(self) -> dict[str, str]:
        """The state of each worker."""
        return {row["url"]: row["state"] for row in self.call("GET", "/admin/discovery")["workers"]}

    def loads(self) -> dict[str, int]:
        return {row["url"]: row["load"] for row in self.call("GET", "/workers")["workers"]}

    def metric(self, name: str) -> float:
        lines = self.call("GET", "/metrics").splitlines()
        values = [float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name}")]
        assert values, f"there is no metric {name}"
        return sum(values)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class FileSource:
    """A file that is replaced."""

    def __init__(self, folder: Path, port: int) -> None:
        del port
        self._path = folder / "workers.json"
        self.declare([])

    def arguments(self) -> list[str]:
        return ["--worker-file", str(self._path)]

    def declare(self, workers: Iterable[Worker]) -> None:
        rows = [
            {
                "url": worker.url,
                "ready": worker.ready,
                "leaving": worker.leaving,
                "incarnation": str(worker.incarnation),
            }
            for worker in workers
        ]
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"workers": rows}))
        fresh.replace(self._path)

    def close(self) -> None:
        pass


class DnsSource:
    """The addresses of a name. They say nothing of readiness, departures or restarts."""

    def __init__(self, folder: Path, port: int) -> None:
        del folder
        self._port = port
        self._dns = FakeDns()

    def arguments(self) -> list[str]:
        return ["--worker-dns", f"http://workers.test:{self._port}", "--dns-server", self._dns.address]

    def declare(self, workers: Iterable[Worker]) -> None:
        self._dns.set("workers.test", "A", *(worker.host for worker in workers if not worker.leaving), ttl=1)

    def close(self) -> None:
        self._dns.close()


class KubernetesSource:
    """Pods."""

    def __init__(self, folder: Path, port: int) -> None:
        self._port = port
        self._cluster = FakeKubernetes()
        self._config = self._cluster.kubeconfig(folder)
        self._pods: dict[str, dict[str, Any]] = {}

    def arguments(self) -> list[str]:
        return [
            *("--service-discovery", "--selector", "app=vllm", "--service-discovery-port", str(self._port)),
            *("--service-discovery-namespace", "default", "--kubeconfig", self._config),
        ]

    def declare(self, workers: Iterable[Worker]) -> None:
        pods = {}
        for worker in workers:
            more = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if worker.leaving else {}
            pods[worker.host] = pod(
                f"vllm-{worker.host.replace('.', '-')}",
                worker.host,
                ready=worker.ready,
                restarts=worker.incarnation,
                **more,
            )
        for host, thing in pods.items():
            if self._pods.get(host) != thing:
                self._cluster.put(thing)
        for host, thing in self._pods.items():
            if host not in pods:
                self._cluster.delete(thing)
        self._pods = pods

    def close(self) -> None:
        self._cluster.__exit__()


class ApiSource:
    """Calls of /add_worker, /admin/drain and /remove_worker, each of which may block."""

    def __init__(self, folder: Path, port: int) -> None:
        del folder, port
        self.router: Router | None = None
        self._there: set[str] = set()
        self._draining: set[str] = set()

    def arguments(self) -> list[str]:
        return []

    def declare(self, workers: Iterable[Worker]) -> None:
        wanted = {worker.url: worker for worker in workers}
        for url, worker in wanted.items():
            if url not in self._there:
                threading.Thread(target=self._call, args=("/add_worker", url), daemon=True).start()
            elif worker.leaving and url not in self._draining:
                self._call("/admin/drain", url)
                self._draining.add(url)
        for url in self._there - wanted.keys():
            if url not in self._draining:
                self._call("/remove_worker", url)
        self._there = set(wanted)
        self._draining &= self._there

    def _call(self, path: str, url: str) -> None:
        assert self.router is not None
        self.router.call("POST", path, url=url)

    def close(self) -> None:
        pass


SOURCES = {"api": ApiSource, "dns": DnsSource, "file": FileSource, "kubernetes": KubernetesSource}
