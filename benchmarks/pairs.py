#!/usr/bin/env python3
"""What a request that two workers serve (prefill and decode) costs the router, beside one that one serves.

    PYTHONPATH=build/release/python python benchmarks/pairs.py
    ... pairs.py --rounds 3 --requests 2000 --words 20 2000
    ... pairs.py --reference /tmp/reference/bin/python      # vllm-project/router's wheel, in the same run
    ... pairs.py --build ../before/build/release/python     # and what another commit built

CPU: simulated workers without compute time and the clients are this process; each router is a process of its
own with one thread. Rounds alternate between the routers, so that what else the machine does hits all alike:
figures are medians over the rounds, ratios are medians of the ratios within a round. Each request is for 4
tokens; `--words` is the length of its prompt. *At once*: with a connector whose workers get their requests
together (sglang, before workers that know nothing of it).

Time: one request at a time, a stream, in turn without a router and through each one, before stages that
respond at once and note when. *Added* is the time to the first byte of the body that passes outside of the
stages, less the median of a client which sends both requests itself; the hand-over, from the response of
prefill to the request of decode; the first byte, from that of decode to that of the client.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_router.testing import SimulatedWorker

CLIENTS = 8
OURS = ("--policy", "least_load", "--model-refresh-secs", "0", "--threads", "1", "--log-level", "warn")
REFERENCE_NAME = "vllm-project/router"  # the last one
REFERENCE = ("--policy", "round_robin", "--worker-startup-check-interval", "1", "--log-level", "error")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Kind(NamedTuple):
    """A package, and how it is started."""

    name: str
    python: str
    flags: tuple[str, ...]
    path: str | None = None  # instead of this process's PYTHONPATH; empty: none


class Router(NamedTuple):
    name: str
    pid: int
    port: int


@contextlib.contextmanager
def router(kind: Kind, *fleet: str) -> Iterator[Router]:
    """Once it serves."""
    port = free_port()
    ports = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()))
    environment = dict(os.environ)
    if kind.path is not None:
        environment["PYTHONPATH"] = kind.path
    command = [kind.python, "-m", "vllm_router.launch_router", *ports, *kind.flags, *fleet]
    # In another directory, since the working directory is in the path.
    process = subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not is_ready(port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError(f"{kind.name} did not start")
            time.sleep(0.05)
        yield Router(kind.name, process.pid, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_ready(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as probe:
        probe.sendall(b"GET /readiness HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n")
        return probe.recv(64).startswith(b"HTTP/1.1 200")
    return False


def stages_of(prefill: str, decode: str) -> tuple[str, ...]:
    return ("--vllm-pd-disaggregation", "--prefill", prefill, "--decode", decode)


def add_kinds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", help="the Python of an environment with vllm-project/router")
    parser.add_argument(
        "--build", action="append", default=[], help="a build/release/python of another commit"
    )


def own_path() -> str:
    """This process's PYTHONPATH, for one in another directory."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(str(Path(part).resolve()) for part in parts)


def kinds_of(options: argparse.Namespace) -> list[Kind]:
    """This package first."""
    kinds = [Kind("this one", sys.executable, OURS, own_path())]
    kinds += [Kind(build, sys.executable, OURS, str(Path(build).resolve())) for build in options.build]
    if options.reference:
        kinds.append(Kind(REFERENCE_NAME, options.reference, REFERENCE, ""))
    return kinds


# ---- CPU


def cpu_us(pid: int) -> float:
    """Of all its threads, by the scheduler's account, which is finer than the clock ticks of `stat`."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e3


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def send(port: int, request: bytes, count: int) -> None:
    with connect(port) as client:
        for _ in range(count):
            client.sendall(request)
            data = b""
            while True:
                data += client.recv(65536)
                head, end, body = data.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if end and length and len(body) >= int(length[1]):
                    break
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(data.decode())


def measure(
    target: Router, request: bytes, count: int, send: Callable[[int, bytes, int], None] = send
) -> float:
    """Microseconds of the router's CPU per request. `send`: what one client does, of so many requests."""
    before = cpu_us(target.pid)
    threads = [
        threading.Thread(target=send, args=(target.port, request, count // CLIENTS)) for _ in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (cpu_us(target.pid) - before) / (count // CLIENTS * CLIENTS)


def request_of(words: int, **more: object) -> bytes:
    body = json.dumps(
        {"model": "simulated-model", "prompt": "word " * words, "max_tokens": 4, **more}
    ).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


# ---- time


class Stage:
    """Responds at once to any POST, and notes when it had the last request and when it responded."""

    PARAMETERS = (
        b'{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[1, 2, 3, 4]],'
        b' "remote_engine_id": "engine", "remote_request_id": "cmpl-1", "remote_host": "127.0.0.1",'
        b' "remote_port": 5600, "tp_size": 1}'
    )
    EVENT = b'data: {"choices": [{"index": 0, "text": " a", "finish_reason": null}]}\n\n'
    END = b'data: {"choices": [{"index": 0, "text": " b", "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'

    def __init__(self, prefill: bool) -> None:
        self.received = self.responded = 0.0
        self._prefill = prefill
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while head := read_message(connection):
                if head.startswith(b"POST"):
                    self._respond(connection)
                else:
                    connection.sendall(whole(b'{"object": "list", "data": []}'))

    def _respond(self, connection: socket.socket) -> None:
        self.received = time.perf_counter()
        if self._prefill:
            choices = b'{"choices": [{"index": 0, "text": " a", "finish_reason": "length"}], '
            response = whole(choices + b'"kv_transfer_params": ' + self.PARAMETERS + b"}")
            self.responded = time.perf_counter()
            connection.sendall(response)
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.responded = time.perf_counter()
        connection.sendall(head + chunk(self.EVENT))
        connection.sendall(chunk(self.END) + chunk(b""))


def whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_message(connection: socket.socket) -> bytes:
    """The head of a message with a Content-Length, once its body is there; empty: the connection ended."""
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if not (more := connection.recv(1 << 18)):
            return b""
        data += more
    head = bytes(data[:end])
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    left = end + 4 + (int(length[1]) if length else 0) - len(data)
    while left > 0:
        if not (more := connection.recv(1 << 18)):
            return b""
        left -= len(more)
    return head


def stream(client: socket.socket, request: bytes) -> float:
    """When the first byte of the body came."""
    client.sendall(request)
    data = b""
    first = 0.0
    while not data.endswith(b"0\r\n\r\n"):
        if not (more := client.recv(65536)):
            raise RuntimeError(f"it ended: {data!r}")
        data += more
        if not first and b"data:" in data:
            first = time.perf_counter()
    if not data.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(data.decode())
    return first


class Times(NamedTuple):
    """In microseconds."""

    outside: float  # of the stages, from the client's request to the first byte
    handover: float
    behind: float  # the first byte, behind decode's


def measure_times(
    targets: Sequence[Router], stages: tuple[Stage, Stage], words: int, count: int
) -> list[list[Times]]:
    """Without a router, and through each; a request to each in turn."""
    prefill, decode = stages
    request = request_of(words, stream=True)
    copies = request_of(words, stream=False), request_of(words, stream=True)
    with contextlib.ExitStack() as stack:
        direct = [stack.enter_context(connect(stage.port)) for stage in stages]
        clients = [stack.enter_context(connect(target.port)) for target in targets]
        times: list[list[Times]] = [[] for _ in range(1 + len(targets))]
        for number in range(count + 20):
            for index in range(len(times)):
                began = time.perf_counter()
                if index == 0:
                    direct[0].sendall(copies[0])
                    read_message(direct[0])
                    first = stream(direct[1], copies[1])
                else:
                    first = stream(clients[index - 1], request)
                handover, behind = decode.received - prefill.responded, first - decode.responded
                parts = (prefill.received - began + handover + behind, handover, behind)
                if number >= 20:
                    times[index].append(Times(*(1e6 * part for part in parts)))
    return times


# ---- the table

COLUMNS = (
    "router",
    "bytes",
    "one worker, CPU us",
    "pair, CPU us",
    "ratio",
    "at once, CPU us",
    "ratio",
    "added p50, p99 us",
    "hand-over p50, p99 us",
    "first byte p50, p99 us",
)


def shown(values: Sequence[float], less: float = 0) -> str:
    """The median and the 99th percentile."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2] - less:.0f}, {ordered[len(ordered) * 99 // 100] - less:.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=8000, help="in each round, to each router")
    parser.add_argument(
        "--times", type=int, default=2000, help="requests whose times are taken, of each router"
    )
    parser.add_argument("--words", type=int, nargs="+", default=[20, 200, 20000])
    add_kinds(parser)
    options = parser.parse_args(arguments)
    kinds = kinds_of(options)
    with contextlib.ExitStack() as stack:
        single = stack.enter_context(SimulatedWorker(engine="instant"))
        prefill = stack.enter_context(SimulatedWorker(engine="instant", stage="prefill"))
        decode = stack.enter_context(SimulatedWorker(engine="instant", stage="decode"))
        noting = Stage(prefill=True), Stage(prefill=False)
        for stage in noting:
            stack.callback(stage.close)
        fleets = (
            ("--worker-urls", single.url),
            stages_of(prefill.url, decode.url),
            stages_of(noting[0].url, noting[1].url),
        )
        alone, pairs, timed = (
            [stack.enter_context(router(kind, *fleet)) for kind in kinds] for fleet in fleets
        )
        plain = [stack.enter_context(SimulatedWorker(engine="instant")).url for _ in range(2)]
        at_once = [
            stack.enter_context(router(kind, *stages_of(*plain), "--kv-connector", "sglang"))
            for kind in kinds
            if kind.name != REFERENCE_NAME
        ]
        print("| " + " | ".join(COLUMNS) + " |")
        print("|---" * len(COLUMNS) + "|")
        for words in options.words:
            request = request_of(words)
            targets = [*alone, *pairs, *at_once]
            for target in targets:
                measure(target, request, CLIENTS * 10)
            rounds = [
                [measure(target, request, options.requests) for target in targets]
                for _ in range(options.rounds)
            ]
            direct, *through = measure_times(timed, noting, words, options.times)
            least = statistics.median(one.outside for one in direct)
            for index, times in enumerate(through):
                ones, *twos = (
                    [row[at + index] for row in rounds]
                    for at in range(0, len(targets), len(kinds))
                    if at + index < len(targets)
                )
                ratios = [
                    statistics.median(two / one for one, two in zip(ones, pair, strict=True)) for pair in twos
                ]
                costs = [
                    cell
                    for pair, ratio in zip(twos, ratios, strict=True)
                    for cell in (f"{statistics.median(pair):.1f}", f"{ratio:.2f}")
                ]
                cells = (
                    kinds[index].name,
                    f"{len(request):,}",
                    f"{statistics.median(ones):.1f}",
                    *costs,
                    *[""] * (4 - len(costs)),
                    shown([one.outside for one in times], least),
                    shown([one.handover for one in times]),
                    shown([one.behind for one in times]),
                )
                print("| " + " | ".join(cells) + " |", flush=True)
        counters = prefill.kv_counters()
        assert counters.stranded == 0, "blocks were left to their lease"
    return 0


if __name__ == "__main__":
    sys.exit(main())
