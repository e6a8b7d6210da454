"""What one frozen engine of four costs its clients, with and without the detection of hanging workers.

    python benchmarks/end_to_end/hanging_worker.py [--clients 32] [--seconds 40] [--settle 10]

Four simulated workers, each a process of its own, serve streams of 60 tokens to clients that ask again at
once. After `--settle` seconds one is frozen by SIGSTOP, and it goes on as long before the end. Its health
check would fail as well, since the whole process stands, so there are none here: as if an API server
responded for a blocked engine. Printed are the requests that waited for more than 4 s for their first byte,
the slowest of them, and how long after the freeze new ones went there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from vllm_router import Router

LATE = 4.0


def start_worker(number: int) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "vllm_router", "simulate-worker", "--port", "0", "--speed", "4"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://[\d.]+:\d+", line):
            return process, found[0]
    raise SystemExit(f"worker {number} did not start")


def ask(port: int, client: int, count: int) -> float:
    """Seconds until the first byte of the response; all of it is read."""
    body = json.dumps(
        {
            "model": "simulated-model",
            "prompt": f"client {client} asks for the {count}th time: " + "word " * 200,
            "max_tokens": 60,
            "stream": True,
        }
    ).encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.monotonic()
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.%d\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (client % 250, len(body), body)
        )
        assert connection.recv(1)
        waited = time.monotonic() - began
        while connection.recv(65536):
            pass
    return waited


def measure(clients: int, seconds: float, settle: float, factor: float) -> None:
    workers = [start_worker(i) for i in range(4)]
    waits: list[tuple[float, float]] = []  # when it was sent, how long
    over = threading.Event()
    try:
        with Router("round_robin", [url for _, url in workers]).serve(
            log_level="error", health_check_interval_secs=3600, hang_detection_factor=factor
        ) as server:

            def run(client: int) -> None:
                count = 0
                while not over.is_set():
                    count += 1
                    sent = time.monotonic()
                    waits.append((sent, ask(server.port, client, count)))

            threads = [threading.Thread(target=run, args=(i,)) for i in range(clients)]
            for thread in threads:
                thread.start()
            time.sleep(settle)
            frozen = time.monotonic()
            workers[0][0].send_signal(signal.SIGSTOP)
            series = f'worker_in_doubt{{worker="{workers[0][1]}"}} 1'
            found = None
            while time.monotonic() < frozen + seconds - 2 * settle:
                if found is None and series in server.metrics():
                    found = time.monotonic() - frozen
                time.sleep(0.05)
            workers[0][0].send_signal(signal.SIGCONT)
            time.sleep(settle)
            over.set()
            for thread in threads:
                thread.join()
        late = [wait for _, wait in waits if wait > LATE]
        sent_late = [sent - frozen for sent, wait in waits if wait > LATE and sent > frozen]
        print(
            f"factor {factor:g}: in doubt {f'after {found:.1f} s' if found else 'never'}; "
            f"{len(waits)} requests, {len(late)} waited for more than {LATE:g} s, "
            f"the slowest {max(wait for _, wait in waits):.1f} s, "
            f"the last of them sent {max(sent_late, default=0):.1f} s after the freeze"
        )
    finally:
        for process, _ in workers:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()  # closes the pipe as well


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--settle", type=float, default=10)
    args = parser.parse_args(argv)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    for factor in (0, 5):
        measure(args.clients, args.seconds, args.settle, factor)


if __name__ == "__main__":
    main()
