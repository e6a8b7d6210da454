#!/usr/bin/env python3
"""What long request bodies cost: the router's memory and CPU, and what small requests notice.

    PYTHONPATH=build/release/python python benchmarks/end_to_end/long_bodies.py --mib 512 --at-once 1 10

Worker and clients are threads of this program. A body is a chat of one long message; `round_robin` needs
its head only (plan Stream), `consistent_hash` has to see the body (plan Prefix). `--slow` lets the worker
read 1 MB/s, to show that what it has not read waits in the client and not in the router. RSS is RssAnon,
the router's own memory, sampled every 2 ms; its growth is over what it had before the bodies came.

Small requests ask the router itself (/liveness), from a process of their own, in real time where that is
allowed: so they measure how long a body keeps the router's one thread, and nobody else's. The router has a
core to itself.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event as EventType
from pathlib import Path

MIB = 2**20
PIECE = 256 * 1024
SMALL = b"GET /liveness HTTP/1.1\r\nHost: a\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def read_head(peer: socket.socket) -> tuple[bytes, bytes]:
    """A head, and what came behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = peer.recv(65536)
        if not more:
            raise ConnectionError("closed")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def work(peer: socket.socket, slow: bool) -> None:
    """A worker's end of one connection."""
    room = bytearray(PIECE)
    with peer, contextlib.suppress(OSError):
        while True:
            head, rest = read_head(peer)
            length = re.search(rb"(?i)content-length: (\d+)", head)
            left = int(length[1]) - len(rest) if length else 0
            while left > 0:
                got = peer.recv_into(room, min(left, PIECE))
                if not got:
                    return
                left -= got
                if slow:
                    time.sleep(got / 1e6)
            peer.sendall(ANSWER)


def serve(listener: socket.socket, slow: bool) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=work, args=(peer, slow), daemon=True).start()


def send_long(port: int, size: int) -> None:
    begin, end = b'{"user":"ann","messages":[{"role":"user","content":"', b'"}]}'
    piece = b"All work and no play makes Jack a dull boy. " * (PIECE // 44)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + begin
        )
        left = size - len(begin) - len(end)
        while left > 0:
            client.sendall(piece[:left])
            left -= min(left, len(piece))
        client.sendall(end)
        head, _ = read_head(client)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.split(b"\r\n")[0].decode())


def ask_small(port: int, stop: EventType, times: Connection) -> None:
    """A process: sends the milliseconds that each small request took when it is told to stop."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    took = []
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            begin = time.perf_counter()
            client.sendall(SMALL)
            read_head(client)
            took.append((time.perf_counter() - begin) * 1e3)
            time.sleep(0.002)
    times.send(took)


@contextlib.contextmanager
def small_requests(port: int) -> Iterator[list[float]]:
    """Asks as long as the block lasts; afterwards the list holds how long each took."""
    times: list[float] = []
    processes = multiprocessing.get_context("fork")
    stop = processes.Event()
    here, there = processes.Pipe(duplex=False)
    process = processes.Process(target=ask_small, args=(port, stop, there), daemon=True)
    process.start()
    try:
        yield times
    finally:
        stop.set()
        if here.poll(30):
            times += here.recv()
        process.join()


def anonymous_memory(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def cpu_seconds(pid: int) -> float:
    return (
        sum(int((t / "schedstat").read_text().split()[0]) for t in Path(f"/proc/{pid}/task").iterdir()) / 1e9
    )


@contextlib.contextmanager
def router(policy: str, worker_port: int) -> Iterator[tuple[int, int]]:
    """(its process id, its port)"""
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    command = [
        *(sys.executable, "-m", "vllm_router.launch_router"),
        *("--worker-urls", f"http://127.0.0.1:{worker_port}", "--policy", policy, "--port", str(port)),
        *("--threads", "1", "--health-check-interval-secs", "3600", "--log-level", "warn"),
    ]
    process = subprocess.Popen(command, env=os.environ)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(process.pid, cores[:1])
        os.sched_setaffinity(0, cores[1:])
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError("the router did not start") from None
                time.sleep(0.05)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()
        os.sched_setaffinity(0, cores)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


def measure(policy: str, size: int, at_once: int, slow: bool) -> str:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=serve, args=(listener, slow), daemon=True).start()
    try:
        with router(policy, listener.getsockname()[1]) as (pid, port):
            with small_requests(port) as quiet:
                time.sleep(2)
            before, cpu = anonymous_memory(pid), cpu_seconds(pid)
            failures: list[BaseException] = []

            def one() -> None:
                try:
                    send_long(port, size)
                except Exception as failure:
                    failures.append(failure)

            senders = [threading.Thread(target=one) for _ in range(at_once)]
            most = before
            with small_requests(port) as busy:
                began = time.perf_counter()
                for thread in senders:
                    thread.start()
                while any(thread.is_alive() for thread in senders):
                    most = max(most, anonymous_memory(pid))
                    time.sleep(0.002)
                took = time.perf_counter() - began
            if failures:
                raise failures[0]
            used = cpu_seconds(pid) - cpu
            return (
                f"{policy:16} {size // MIB:5} {at_once:7} {'1 MB/s' if slow else 'fast':>7} {took:7.2f}"
                f" {used / at_once:9.3f} {(most - before) / MIB:9.2f}"
                f" {statistics.median(quiet):8.2f} {statistics.median(busy):8.2f}"
                f" {percentile(quiet, 0.99):8.2f} {percentile(busy, 0.99):8.2f}"
            )
    finally:
        listener.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=512, help="the size of a body")
    parser.add_argument(
        "--at-once", type=int, nargs="+", default=[1], help="how many bodies at the same time"
    )
    parser.add_argument("--policies", nargs="+", default=["round_robin", "consistent_hash"])
    parser.add_argument("--slow", action="store_true", help="a worker that reads 1 MB/s, and bodies of 10 MB")
    arguments = parser.parse_args()
    print(
        "policy             MiB at once  worker seconds CPU s/body RSS +MiB"
        "  small requests, ms: p50 quiet, busy, p99 quiet, busy"
    )
    for policy in arguments.policies:
        for at_once in arguments.at_once:
            size = 10_000_000 if arguments.slow else arguments.mib * MIB
            print(measure(policy, size, at_once, arguments.slow), flush=True)


if __name__ == "__main__":
    main()
