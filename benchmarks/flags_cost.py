#!/usr/bin/env python3
"""What flags cost the router: its CPU per request of 1 KB with them, beside the same router without.

    PYTHONPATH=build/bench/python python -m benchmarks.flags_cost
    ... flags_cost --events 200 --set "continue=--continue-streams verified"
    ... flags_cost --slices 400 --set "all=--enable-trace --otlp-traces-endpoint {collector}"

Each set is a router of its own with one thread; "none" twice, so that the second says how far equal code
differs. All get the same short slices of requests in turns, in a new order each time, so that what else the
machine does hits all alike; a figure is the median of the ratios within a turn, with an interval of 95 %
(order statistics of the binomial distribution). `{collector}` is a server that takes what is posted.
--events: the responses are event streams of so many events, and the figure is per event.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import shlex
import socket
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence

from benchmarks.pairs import OURS, Kind, connect, measure, own_path, read_message, router, send, whole
from benchmarks.response_cache import request_of, worker

NONE = "none"
SETS = (
    "trace 1 %=--enable-trace --otlp-traces-endpoint {collector} --otel-sampling-ratio 0.01",
    "trace all=--enable-trace --otlp-traces-endpoint {collector}",
    "no receipts=--receipts 0",
)


@contextlib.contextmanager
def collector() -> Iterator[str]:
    """Responds 200 to every POST."""

    def serve(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while read_message(client):
                client.sendall(whole(b"{}"))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def send_streams(port: int, request: bytes, count: int) -> None:
    """As pairs.send(), where responses are event streams."""
    with connect(port) as client:
        for _ in range(count):
            client.sendall(request)
            data = head = client.recv(65536)
            while not data.endswith(b"0\r\n\r\n"):
                more = client.recv(65536)
                if not more:
                    raise RuntimeError(f"it ended: {data[-200:]!r}")
                data = data[-8:] + more
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, at 95 %."""
    ordered = sorted(values)
    half = 0.98 * math.sqrt(len(ordered))
    middle = len(ordered) / 2
    low, high = math.floor(middle - half), math.ceil(middle + half)
    return ordered[max(0, low)], ordered[min(len(ordered) - 1, high)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", dest="sets", metavar="NAME=FLAGS", help="repeatable")
    parser.add_argument("--slices", type=int, default=200)
    parser.add_argument("--requests", type=int, default=400, help="in a slice")
    parser.add_argument("--events", type=int, default=0, help="0: whole responses of 1 KB")
    parser.add_argument("--policy", default="auto")
    options = parser.parse_args(arguments)
    stream = options.events > 0
    request = request_of(stream=True) if stream else request_of()
    with contextlib.ExitStack() as stack:
        flags = {NONE: "", f"{NONE} again": ""}
        flags |= dict(text.split("=", 1) for text in options.sets or SETS)
        endpoint = stack.enter_context(collector())
        urls = [stack.enter_context(worker(options.events)) for _ in range(2)]
        routers = {}
        for name, text in flags.items():
            more = shlex.split(text.format(collector=endpoint))
            kind = Kind(name, sys.executable, (*OURS, "--policy", options.policy, *more), own_path())
            routers[name] = stack.enter_context(router(kind, "--worker-urls", *urls))
        turns: list[dict[str, float]] = []
        names = list(routers)
        order = random.Random(1)
        for number in range(options.slices + 5):
            order.shuffle(names)
            turn = {
                name: measure(routers[name], request, options.requests, send_streams if stream else send)
                for name in names
            }
            if number >= 5:
                turns.append(turn)
    print(f"{'flags':24} {'CPU us':>8} {'ratio':>7}   95 %")
    for name in flags:
        ratios = [turn[name] / turn[NONE] for turn in turns]
        low, high = interval(ratios)
        used = statistics.median(turn[name] for turn in turns) / max(1, options.events)
        print(f"{name:24} {used:8.2f} {statistics.median(ratios):7.3f}   {low:.3f} to {high:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
