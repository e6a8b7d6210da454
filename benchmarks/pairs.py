#!/usr/bin/env python3
"""What a request that two workers serve (prefill and decode) costs the router, beside one that one serves.

    PYTHONPATH=build/release/python python benchmarks/pairs.py
    ... pairs.py --rounds 3 --requests 2000 --words 20 2000

Simulated workers without compute time and the clients are this process; each router is a process of its own
with one thread. Rounds alternate between the two routers, so that what else the machine does hits both alike:
figures are medians over the rounds of the router's CPU time and of the clients' time per request, ratios are
medians of the ratios within a round. Each request is for 4 tokens; `--words` is the length of its prompt.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from vllm_router.testing import SimulatedWorker

CLIENTS = 8
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def router(*fleet: str) -> Iterator[tuple[int, int]]:
    """Its process id and its port."""
    port = free_port()
    options = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", "0", "--threads", "1")
    quiet = ("--log-level", "warn", "--policy", "least_load", "--model-refresh-secs", "0")
    process = subprocess.Popen([sys.executable, "-m", "vllm_router.launch_router", *options, *quiet, *fleet])
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("the router did not start")
            time.sleep(0.05)
        yield process.pid, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def cpu_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_US


def send(port: int, request: bytes, count: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


def measure(pid: int, port: int, request: bytes, count: int) -> tuple[float, float]:
    """Microseconds per request: of the router's CPU, and of a client's time."""
    before, began = cpu_us(pid), time.perf_counter()
    threads = [threading.Thread(target=send, args=(port, request, count // CLIENTS)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = count // CLIENTS * CLIENTS
    return (cpu_us(pid) - before) / done, (time.perf_counter() - began) * 1e6 * CLIENTS / done


def request_of(words: int) -> bytes:
    body = json.dumps({"prompt": "word " * words, "max_tokens": 4}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=8000, help="in each round, to each router")
    parser.add_argument("--words", type=int, nargs="+", default=[20, 200, 20000])
    options = parser.parse_args(arguments)
    with (
        SimulatedWorker(engine="instant") as single,
        SimulatedWorker(engine="instant", stage="prefill") as prefill,
        SimulatedWorker(engine="instant", stage="decode") as decode,
        router("--worker-urls", single.url) as alone,
        router("--vllm-pd-disaggregation", "--prefill", prefill.url, "--decode", decode.url) as pair,
    ):
        print("| bytes | one worker, CPU us | pair, CPU us | ratio | one worker, us | pair, us |")
        print("|---|---|---|---|---|---|")
        for words in options.words:
            request = request_of(words)
            for target in (alone, pair):
                measure(*target, request, CLIENTS * 10)
            rows = [
                (*measure(*alone, request, options.requests), *measure(*pair, request, options.requests))
                for _ in range(options.rounds)
            ]
            one, one_time, two, two_time = (statistics.median(column) for column in zip(*rows, strict=True))
            ratio = statistics.median(row[2] / row[0] for row in rows)
            times = f"{one_time:.0f} | {two_time:.0f}"
            print(f"| {len(request):,} | {one:.1f} | {two:.1f} | {ratio:.2f} | {times} |")
        counters = prefill.kv_counters()
        assert counters.stranded == 0, "blocks were left to their lease"
    return 0


if __name__ == "__main__":
    sys.exit(main())
