#!/usr/bin/env python3
"""What a hit, a miss and a bypass of the response cache cost beside the same request without the cache.

    PYTHONPATH=build/release/python python benchmarks/response_cache.py
    ... response_cache.py --rounds 5 --requests 4000 --times 1000 --events 2000
    ... response_cache.py --build ../before/build/release/python      # and without it compiled in

CPU: workers that respond at once and the clients are this process; each router is a process of its own with
one thread. Time: the median of one request at a time. Rounds alternate between the kinds, so that what else
the machine does hits all alike; ratios are medians of those within a round, to a router without the cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from socket import create_server, socket

from benchmarks.pairs import CLIENTS, Kind, Router, add_kinds, connect, cpu_us, kinds_of, router

Make = Callable[[], bytes]
numbers = itertools.count()


@contextmanager
def worker(events: int) -> Iterator[str]:
    """Responds at once: to a request with "stream" with so many events, else with 1 KB of JSON."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x" * 900}, "finish_reason": "stop"}
    body = json.dumps({"id": "chatcmpl-1", "choices": [choice]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    event = b'data: {"choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null}]}'
    event += b" " * (198 - len(event)) + b"\n\n"
    last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    stream_head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    def serve(client: socket) -> None:
        data = b""
        with suppress(OSError), client:
            while True:
                while (end := data.find(b"\r\n\r\n")) < 0:
                    if not (more := client.recv(65536)):
                        return
                    data += more
                length = re.search(rb"(?i)content-length: (\d+)", data[:end])
                size = end + 4 + (int(length[1]) if length else 0)
                while len(data) < size:
                    data += client.recv(65536)
                request, data = data[:size], data[size:]
                if b'"stream": true' not in request:
                    client.sendall(head + body)
                    continue
                client.sendall(stream_head)
                for _ in range(events):  # one at a time, as an engine does
                    client.sendall(b"%x\r\n" % len(event) + event + b"\r\n")
                client.sendall(b"%x\r\n" % len(last) + last + b"\r\n0\r\n\r\n")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    listener = create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def request_of(**members: object) -> bytes:
    messages = [{"role": "user", "content": "word " * 190}]
    body = json.dumps({"model": "m", "messages": messages, **members}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


HIT = request_of(temperature=0)
STREAM = request_of(temperature=0, stream=True)
KINDS: dict[str, tuple[bool, Make]] = {  # whether the cache is on, and what is sent
    "off": (False, lambda: HIT),
    "hit": (True, lambda: HIT),
    "miss": (True, lambda: request_of(temperature=0, seed=next(numbers))),
    "bypass": (True, lambda: request_of(temperature=1)),
}
STREAMS: dict[str, tuple[bool, Make]] = {"off": (False, lambda: STREAM), "hit": (True, lambda: STREAM)}


def ask(client: socket, request: bytes) -> None:
    client.sendall(request)
    data = b""
    while True:
        more = client.recv(1 << 20)
        if not more:
            raise RuntimeError("the router closed the connection")
        data = data + more if len(data) < 4096 else data[-4096:] + more
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head) if data.startswith(b"HTTP") else None
        if data.endswith(b"\r\n0\r\n\r\n") or (end and length and len(body) >= int(length[1])):
            return


def send(port: int, requests: list[bytes]) -> None:
    with connect(port) as client:
        for request in requests:
            ask(client, request)


def cpu_of(target: Router, make: Make, count: int) -> float:
    """Microseconds of the router's CPU per request."""
    parts = [[make() for _ in range(count // CLIENTS)] for _ in range(CLIENTS)]
    before = cpu_us(target.pid)
    threads = [threading.Thread(target=send, args=(target.port, part)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (cpu_us(target.pid) - before) / (count // CLIENTS * CLIENTS)


def time_of(target: Router, make: Make, count: int) -> float:
    """Microseconds of one request at a time, the median."""
    taken = []
    requests = [make() for _ in range(count)]
    with connect(target.port) as client:
        for request in requests:
            began = time.perf_counter()
            ask(client, request)
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def compare(
    title: str, names: dict[str, tuple[bool, Make]], routers: dict[bool, Router], before: list[Router],
    rounds: int, figure: Callable[[Router, Make], float],
) -> None:  # fmt: skip
    found: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (on, make) in names.items():
            alike = figure(routers[False], make)  # the same requests, without the cache
            found.setdefault(name, []).append(figure(routers[on], make))
            ratios.setdefault(name, []).append(found[name][-1] / alike)
        for other in before:
            alike = figure(routers[False], names["off"][1])
            found.setdefault(other.name, []).append(figure(other, names["off"][1]))
            ratios.setdefault(other.name, []).append(found[other.name][-1] / alike)
    print(f"{title}: us, and the ratio to a router without the cache")
    for name, figures in found.items():
        print(f"  {name:8} {statistics.median(figures):10.1f} {statistics.median(ratios[name]):7.3f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4000, help="of a round, for CPU")
    parser.add_argument("--times", type=int, default=1000, help="requests of a round, for time")
    parser.add_argument("--events", type=int, default=2000, help="of a stream")
    parser.add_argument("--streams", type=int, default=40, help="of a round")
    parser.add_argument("--policy", default="least_load", help="auto reads bodies as well (%(default)s)")
    add_kinds(parser)
    options = parser.parse_args(arguments)
    chosen = ("--policy", options.policy)
    kinds = [kind._replace(flags=(*kind.flags, *chosen)) for kind in kinds_of(options)]
    ours, *others = (kind for kind in kinds if kind.name != "vllm-project/router")
    with_cache = Kind("cache", ours.python, (*ours.flags, "--response-cache"), ours.path)
    with ExitStack() as stack:
        url = stack.enter_context(worker(options.events))
        started = [stack.enter_context(router(kind, "--worker-urls", url)) for kind in (ours, with_cache)]
        before = [stack.enter_context(router(kind, "--worker-urls", url)) for kind in others]
        routers = dict(zip((False, True), started, strict=True))
        for target in (*started, *before):  # connections are open, and hits are stored
            send(target.port, [HIT, STREAM] * 4)
        rounds = options.rounds
        compare("CPU", KINDS, routers, before, rounds, lambda r, m: cpu_of(r, m, options.requests))
        compare("time", KINDS, routers, before, rounds, lambda r, m: time_of(r, m, options.times))
        title = f"CPU of a stream of {options.events} events"
        compare(title, STREAMS, routers, before, rounds, lambda r, m: cpu_of(r, m, options.streams))


if __name__ == "__main__":
    main()
