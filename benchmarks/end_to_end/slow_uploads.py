"""What clients cost that announce a long body and hardly bring any of it.

    python benchmarks/end_to_end/slow_uploads.py [--connections 1000]

A router in a process of its own under a policy that reads bodies, connections that have each sent 66 KB of an
announced 8 MiB, and a simulated worker. Printed are the router's anonymous memory, what it counts against
--body-memory-mb, and how long an honest body of 8 MiB takes beside them. The kernel's own memory for
sockets is not in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from vllm_router.testing import SimulatedWorker

MIB = 2**20
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"


def anonymous_bytes(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def claimed_bytes(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        found = re.search(r"^vllm_router_body_memory_bytes (\S+)$", page.read().decode(), re.MULTILINE)
    assert found
    return float(found[1])


def begin(port: int, announced: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(HEAD % announced + b"x" * 66_000)
    return connection


def serve(router_port: int, size: int) -> tuple[str, float]:
    """The status line of an honest body's response, and how long it took."""
    asked = {
        "model": "simulated-model",
        "prompt": "hello",
        "max_tokens": 1,
        "padding": "x" * max(0, size - 100),
    }
    body = json.dumps(asked).encode()
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", router_port)) as connection:
        with contextlib.suppress(ConnectionError):  # it may be rejected before all of it is sent
            connection.sendall(HEAD % len(body) + body)
        answer = connection.recv(100_000)
    return answer.split(b"\r\n")[0].decode(), time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=1000)
    count = parser.parse_args().connections
    command = [sys.executable, "-m", "vllm_router.launch_router", "--port", "0", "--threads", "1"]
    command += ["--prometheus-port", "0", "--policy", "consistent_hash", "--queue-timeout-secs", "5"]
    command += ["--body-memory-mb", "256"]
    with (
        SimulatedWorker() as worker,
        subprocess.Popen(
            [*command, "--worker-urls", worker.url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as router,
    ):
        assert router.stderr is not None
        lines = (line for line in router.stderr)
        ports: dict[str, int] = {}
        while len(ports) < 2:
            line = next(lines)
            for what, address in (
                ("metrics", r"metrics.*127\.0\.0\.1:(\d+)"),
                ("port", r" serves http.*?:(\d+)"),
            ):
                if found := re.search(address, line):
                    ports.setdefault(what, int(found[1]))
        serve(ports["port"], 8 * MIB)
        before = anonymous_bytes(router.pid)
        held = [begin(ports["port"], 8 * MIB) for _ in range(count)]
        serve(ports["port"], 100)  # by then all of them have been read
        grown, claimed = anonymous_bytes(router.pid) - before, claimed_bytes(ports["metrics"])
        status, seconds = serve(ports["port"], 8 * MIB)
        print(
            f"{count} connections: {grown / MIB:.0f} MiB more memory, {claimed / MIB:.0f} MiB claimed; "
            f"a body of 8 MiB beside them: {status} after {seconds:.2f} s"
        )
        for connection in held:
            connection.close()
        router.terminate()


if __name__ == "__main__":
    main()
