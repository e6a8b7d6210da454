#!/usr/bin/env python3
"""A flood of requests for one of the router's own endpoints: what is left for everybody else?

    PYTHONPATH=build/release/python python benchmarks/own_endpoints.py         # all of them, 4,096 workers
    ... own_endpoints.py --paths /metrics /workers --connections 4000 --workers 4096

Each endpoint is flooded by connections that come 1,000 a second, send three requests each and read nothing.
Beside them honest clients send 20 chats a second, each on a new connection with 10 s of patience; the same is
measured without a flood before each endpoint, in the same run. *served* is how many got a 200, others count
as 10 s; *ratio* is that of the two 99th percentiles; *alone* what the endpoint takes one reader while nothing
else happens. All workers are one process, which listens at every address that begins with 127: so the router
has 4,096 hosts. Health checks are off. *renders* is how often the page was made, *MB more* the memory taken
meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PATHS = (
    "/liveness", "/health", "/readiness", "/v1/models", "/v1/models/m", "/get_loads", "/list_workers",
    "/workers", "/admin/drain/status", "/admin/discovery", "/ha/health", "/ha/status", "/ha/workers",
    "/scale", "/admin/config",
    "/admin/prefix-routing/stats", "/admin/index/stats", "/admin/kv-events", "/admin/kv-index/stats",
    "/admin/kv-index/backends", "/admin/response-cache/stats", "/metrics",
)  # fmt: skip
COLUMNS = ("path", "bytes", "alone", "served", "p50", "p99", "p99 without", "ratio", "renders", "MB more")
PATIENCE_S = 10.0
CHAT = json.dumps(
    {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
).encode()
MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


class Worker(asyncio.Protocol):
    """One that answers each request at once with a list of models, whatever it asks for."""

    def __init__(self) -> None:
        self.waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while (end := self.waiting.find(b"\r\n\r\n")) >= 0:
            found = re.search(rb"\r\ncontent-length: *(\d+)", self.waiting[:end], re.IGNORECASE)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self.waiting) < whole:
                return
            self.waiting = self.waiting[whole:]
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(self.response())

    def response(self) -> bytes:
        """To each request."""
        return RESPONSE % (len(MODELS), MODELS)


def serve_as_workers(worker: type[Worker] = Worker) -> None:
    """At every address that begins with 127, until the process is killed; prints the port."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(worker, "0.0.0.0", 0, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    raise_file_limit()
    asyncio.run(run())


def flood(port: int, path: str, connections: int, seconds: float) -> None:
    """Ends after `seconds`; prints how many connections it had."""
    raise_file_limit()
    begun, open_ones = time.monotonic(), []
    for number in range(connections):
        time.sleep(max(0.0, begun + number / 1000 - time.monotonic()))
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(5)
        with contextlib.suppress(OSError):
            sock.connect(("127.0.0.1", port))
            sock.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 3)
            open_ones.append(sock)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    print(len(open_ones), flush=True)


def raise_file_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Honest(NamedTuple):
    sent: int
    seconds: list[float]  # of those that got a 200

    def quantile(self, share: float) -> float:
        times = sorted(self.seconds) + [PATIENCE_S] * (self.sent - len(self.seconds))
        return times[min(len(times) - 1, int(len(times) * share))]


async def chat(port: int) -> float | None:
    """How long it took; None: it was not served."""
    begun = time.monotonic()

    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(CHAT), CHAT)
            )
            return await reader.read()
        finally:
            writer.close()

    try:
        response = await asyncio.wait_for(exchange(), PATIENCE_S)
    except (OSError, TimeoutError, asyncio.TimeoutError):
        return None
    return time.monotonic() - begun if response.startswith(b"HTTP/1.1 200") else None


async def honest(port: int, seconds: float, per_second: int) -> Honest:
    begun, tasks = time.monotonic(), []
    for number in range(int(seconds * per_second)):
        await asyncio.sleep(max(0.0, begun + number / per_second - time.monotonic()))
        tasks.append(asyncio.create_task(chat(port)))
    times = await asyncio.gather(*tasks)
    return Honest(len(times), [time_ for time_ in times if time_ is not None])


def url_of(number: int, port: int) -> str:
    return f"http://127.1.{number // 250}.{number % 250 + 1}:{port}"


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        return bytes(error.read())


def alone(port: int, path: str) -> tuple[int, float]:
    times, body = [], b""
    for _ in range(5):
        begun = time.monotonic()
        body = get(port, path)
        times.append(time.monotonic() - begun)
    return len(body), statistics.median(times)


def renders(port: int, path: str) -> int | None:
    """None: this router does not say."""
    try:
        page = get(port, "/metrics").decode()
    except OSError:
        return None
    if "_page_renders_total" not in page:
        return None
    label = "/v1/models/{id}" if path == "/v1/models/m" else path
    found = re.search(
        rf'^vllm_router_page_renders_total{{route="{re.escape(label)}"}} (\S+)$', page, re.MULTILINE
    )
    return int(float(found[1])) if found else 0


def wait_for(router: subprocess.Popen[str], port: int) -> None:
    begun = time.monotonic()
    while True:
        try:
            get(port, "/liveness")
            return
        except OSError:
            if router.poll() is not None or time.monotonic() - begun > 60:
                raise
            time.sleep(0.05)


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def measure(args: argparse.Namespace, router: subprocess.Popen[str], port: int, path: str) -> tuple[str, ...]:
    size, took = alone(port, path)
    without = asyncio.run(honest(port, args.seconds, args.per_second))
    before, megabytes = renders(port, path), resident_mb(router.pid)
    me = [sys.executable, __file__]
    flooding = [*me, "--flood", str(port), path, str(args.connections), str(args.seconds)]
    with running(flooding) as flooder:
        beside = asyncio.run(honest(port, args.seconds, args.per_second))
        more = resident_mb(router.pid) - megabytes
        assert flooder.stdout is not None
        flooder.stdout.readline()
    time.sleep(0.5)
    after = renders(port, path)
    ratio = beside.quantile(0.99) / without.quantile(0.99)
    return (
        path, str(size), f"{took * 1e3:.1f} ms", f"{len(beside.seconds)} of {beside.sent}",
        f"{beside.quantile(0.5) * 1e3:.1f} ms", f"{beside.quantile(0.99) * 1e3:.1f} ms",
        f"{without.quantile(0.99) * 1e3:.1f} ms", f"{ratio:.2f}",
        "-" if after is None or before is None else str(after - before), f"{more:.0f}",
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", nargs="+", default=PATHS)
    parser.add_argument("--workers", type=int, default=4096)
    parser.add_argument("--connections", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--per-second", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args(argv)
    raise_file_limit()
    port = free_port()
    with running([sys.executable, __file__, "--serve"]) as workers:
        assert workers.stdout is not None
        worker_port = int(workers.stdout.readline())
        urls = [url_of(number, worker_port) for number in range(args.workers)]
        command = [
            sys.executable, "-m", "vllm_router", "--port", str(port), "--host", "127.0.0.1", "--threads",
            str(args.threads), "--policy", "round_robin", "--health-check-interval-secs", "0",
            "--kv-events", "off", "--model-refresh-secs", "0", "--log-level", "warning",
            "--worker-urls", *urls,
        ]  # fmt: skip
        print(" | ".join(COLUMNS), flush=True)
        for path in args.paths:  # each has a router of its own, since one may leave it with work for minutes
            with running(command) as router:
                wait_for(router, port)
                print(" | ".join(measure(args, router, port, path)), flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_as_workers()
    elif sys.argv[1:2] == ["--flood"]:
        flood(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    else:
        sys.exit(main())
