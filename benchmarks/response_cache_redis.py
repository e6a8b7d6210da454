#!/usr/bin/env python3
"""How long a response takes that is kept in Redis, beside one in memory, the worker's, and a bare GET.

    PYTHONPATH=build/release/python:. python benchmarks/response_cache_redis.py
    ... response_cache_redis.py --rounds 5 --times 2000

One request at a time on one connection; rounds alternate, and each figure is the median of the rounds'. A
worker that responds at once, the clients and a real redis-server are on this machine; each router has one
thread. The bare GET of a value of the response's size is the same client's, without a router, and
redis-benchmark's.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.pairs import OURS, Router, connect, kinds_of, router
from benchmarks.response_cache import HIT, KINDS, ask, send, worker
from tests.fakes.redis_server import RedisServer

Ask = Callable[[], None]
Percentiles = tuple[float, float]  # 50, 99, microseconds
SIZE = 1200  # of a kept response: its head and body
GET = b"*2\r\n$3\r\nGET\r\n$5\r\nbench\r\n"


def percentiles(once: Ask, count: int) -> Percentiles:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        once()
        taken.append(time.perf_counter() - began)
    hundredths = statistics.quantiles(taken, n=100)
    return hundredths[49] * 1e6, hundredths[98] * 1e6


@contextmanager
def asking(target: Router, kind: str) -> Iterator[Ask]:
    make = KINDS[kind][1]
    with connect(target.port) as client:
        yield lambda: ask(client, make())


@contextmanager
def getting(port: int) -> Iterator[Ask]:
    def once() -> None:
        client.sendall(GET)
        left = len(b"$%d\r\n\r\n" % SIZE) + SIZE
        while left > 0:
            left -= len(client.recv(65536))

    with connect(port) as client:
        yield once


def redis_benchmark(port: int, count: int) -> Percentiles:
    """A GET at a time."""
    command = ["redis-benchmark", "-p", str(port), "-c", "1", "-n", str(count), "--csv", "GET", "bench"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row = next(csv.DictReader(io.StringIO(text)))
    return 1e3 * float(row["p50_latency_ms"]), 1e3 * float(row["p99_latency_ms"])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=2000, help="requests of a round")
    options = parser.parse_args(arguments)
    (ours,) = kinds_of(argparse.Namespace(build=[], reference=None))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(RedisServer(folder))
        redis.call("SET", "bench", "x" * SIZE)
        url = stack.enter_context(worker(1))

        def start(*flags: str) -> Router:
            kind = ours._replace(flags=(*OURS, *flags))
            started = stack.enter_context(router(kind, "--worker-urls", url))
            send(started.port, [HIT] * 8)  # it is stored, and connections are open
            return started

        in_redis = ("--response-cache", "--response-cache-backend", "redis")
        off, memory = start(), start("--response-cache")
        kept = start(*in_redis, "--redis-url", redis.url)
        asks = {
            "off": stack.enter_context(asking(off, "off")),
            "hit, memory": stack.enter_context(asking(memory, "hit")),
            "hit, Redis": stack.enter_context(asking(kept, "hit")),
            "miss, memory": stack.enter_context(asking(memory, "miss")),
            "miss, Redis": stack.enter_context(asking(kept, "miss")),
            "GET": stack.enter_context(getting(redis.port)),
        }
        found: dict[str, list[Percentiles]] = {}
        for _ in range(options.rounds):
            for name, once in asks.items():
                found.setdefault(name, []).append(percentiles(once, options.times))
            bare = redis_benchmark(redis.port, options.times)
            found.setdefault("redis-benchmark", []).append(bare)
    print("| one at a time | p50 us | p99 us |\n|---|--:|--:|")
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in found.items()
    }
    for name, (half, most) in middle.items():
        print(f"| {name} | {half:.0f} | {most:.0f} |")
    added = [
        (hit[0] - memory_hit[0]) / get[0]
        for hit, memory_hit, get in zip(found["hit, Redis"], found["hit, memory"], found["GET"], strict=True)
    ]
    print(f"A hit in Redis takes {statistics.median(added):.2f} GETs longer than one in memory.")


if __name__ == "__main__":
    main()
